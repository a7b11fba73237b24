"""Two hosts, each with an agent of its own, on one PostgreSQL and one Placement: guests move between them while agents are killed."""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.api.client import MoveStep
from agent.model.amounts import Amounts
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import NodeRecords
from agent.store.records import Records
from agent.store.store import open_read_only
from tests.support.compute_host import PATIENCE, RESERVED, ComputeHost
from tests.support.http_placement import HttpPlacement
from tests.support.orchestrator import KINDS, PINNED, WITH_UNIT, Guest, Kind
from tests.support.postgresql import PostgreSQL
from tests.support.service_manager import until

ROUNDS = int(os.environ.get("TWO_AGENTS_ROUNDS", "5"))
KILLS = 4
"""In a round, beside the one that an evacuation begins with."""
SOON = 10.0
"""Seconds in which an agent that was killed is back, on such a machine; a lease that it had to wait for would take longer."""
COLD_ENDS: tuple[MoveStep, ...] = ("confirm", "revert", "abort")
LIVE_ENDS: tuple[MoveStep, ...] = ("finish", "abort")


class Cloud:
    """Hosts A and B, whose agents run, on ``placement`` and the database at ``url``."""

    def __init__(self, folder: Path, placement: HttpPlacement, url: str) -> None:
        self.folder, self.placement, self.url = folder, placement, url
        self.a, self.b = self.host("a"), self.host("b")

    def host(self, name: str, node: str | None = None) -> ComputeHost:
        """A host of this cloud."""
        return ComputeHost(self.folder / name, f"agent-{name}", node or f"node-{name}", self.placement.credentials(), self.url)

    @property
    def both(self) -> tuple[ComputeHost, ComputeHost]:
        return self.a, self.b

    @contextmanager
    def running(self) -> Iterator["Cloud"]:
        try:
            for one in self.both:
                one.start()
            for one in self.both:
                one.wait_until_well()
            with open_read_only(self.folder / "look", self.url) as store:
                self._records = Records(store)
                yield self
        finally:
            for one in self.both:
                one.kill()

    def guest(self, kind: Kind, dice: random.Random) -> Guest:
        return Guest(self.placement, kind, random.Random(dice.random()))

    def allocations(self) -> dict[str, object]:
        """Who holds what in Placement."""
        return {uuid: one["allocations"] for uuid, one in self.placement.dump()["consumers"].items() if one["allocations"]}

    # --- what has to be so in the end -----------------------------------------------------------------------------

    def is_exact(self, guests: Sequence[Guest]) -> None:
        """Everything is as it should be, with these guests and no other."""
        for host in self.both:
            # One may have been killed last of all.
            host.wait_until_well()
        wanted = {consumer: held for guest in guests for consumer, held in guest.allocations.items()}
        until(lambda: self.allocations() == wanted, lambda: f"{self.allocations()}\nis not\n{wanted}\n{self._logs()}", PATIENCE)
        for host in self.both:
            mine = [guest for guest in guests if guest.owner is host]
            usage = {
                **{f"{name}_used": amount for name, amount in self._used(mine).items()}, "instances": len(mine), "claims": len(mine), "migrations": 0,
            }  # fmt: skip
            until(lambda: host.summary()["usage"] == usage, lambda: f"{host.summary()['usage']} is not {usage}\n{self._logs()}", PATIENCE)  # noqa: B023
            until(lambda: host.is_well() and not self.records(host).node.dirty, self._logs, PATIENCE)  # noqa: B023
            self._are_exact(host, {guest.uuid: guest for guest in mine})
            assert host.bugs == []
        with self._records.reading() as reading:
            for guest in guests:
                found = {uuid: reading.migration(ConsumerUuid(uuid)) for uuid in guest.ended}
                assert {uuid: one and (one.type, one.status) for uuid, one in found.items()} == guest.ended

    def _are_exact(self, host: ComputeHost, guests: Mapping[str, Guest]) -> None:
        """The host's records."""
        records = self.records(host)
        assert not records.damaged
        assert records.node.host == host.name
        assert {one.uuid for one in records.instances} == guests.keys()
        for one in records.instances:
            assert (one.host, one.vm_state, one.task_state, one.flavor) == (host.name, "active", None, guests[one.uuid].flavor)
            assert (one.old_flavor, one.new_flavor) == (None, None)
        assert sorted(one.instance for one in records.claims) == sorted(guests)
        for claim in records.claims:
            flavor = guests[claim.instance].flavor
            assert (claim.half, claim.migration, claim.flavor_id, claim.amounts) == ("only", None, flavor.id, flavor.amounts(volume_backed=False))
        pins = [cpu for claim in records.claims for placed in claim.cells for cpu in placed.pinned_cpus]
        assert len(pins) == len(set(pins)) == sum(one.flavor.vcpus for one in guests.values() if one.kind is PINNED)
        holders = [unit.holder for unit in records.units if unit.holder is not None]
        assert sorted(holders) == sorted(one.id for one in records.claims if guests[one.instance].kind is WITH_UNIT)

    def records(self, host: ComputeHost) -> NodeRecords:
        """All that is on record of a host."""
        with self._records.reading() as reading:
            found = reading.load(ProviderUuid(host.identity))
        assert found is not None
        return found

    @staticmethod
    def _used(guests: Sequence[Guest]) -> dict[str, int]:
        sums = sum((guest.flavor.amounts(volume_backed=False) for guest in guests), start=Amounts())
        return {name: amount + getattr(sums, name) for name, amount in RESERVED.items()}

    def _logs(self) -> str:
        return "\n".join(f"--- {host.name}\n{host.log[-3000:]}" for host in self.both)


@pytest.fixture
def cloud(http_placement: HttpPlacement, postgresql: PostgreSQL, tmp_path: Path) -> Iterator[Cloud]:
    database = postgresql.create()
    with Cloud(tmp_path, http_placement, postgresql.url(database)).running() as cloud:
        yield cloud
    postgresql.drop(database)


# --- what an orchestrator does ------------------------------------------------------------------------------------------


def cold(guest: Guest, source: ComputeHost, dest: ComputeHost, end: MoveStep, *, resize: bool) -> None:
    """A resize, or a cold migration; confirmed, reverted, or given up on the way."""
    flavor = guest.kind.large if resize else None
    guest.becomes(source, task_state="resize_prep")
    guest.leave("resize" if resize else "migration", dest, flavor)
    guest.becomes(source, task_state="resize_migrated")
    if end == "abort":
        guest.stayed(guest.step(dest, "abort"))
        guest.becomes(source, task_state=None)
        return
    guest.step(dest, "finish")
    guest.becomes(dest, vm_state="resized", task_state=None)
    if end == "confirm":
        guest.arrived(dest, guest.step(source, "confirm"), flavor)
        guest.becomes(dest, vm_state="active")
        return
    guest.becomes(dest, task_state="resize_reverting")
    guest.stayed(guest.step(dest, "revert"))
    guest.becomes(source, vm_state="active", task_state=None)


def live(guest: Guest, source: ComputeHost, dest: ComputeHost, end: MoveStep) -> None:
    """A live migration."""
    guest.becomes(source, task_state="migrating")
    guest.leave("live-migration", dest)
    status = guest.step(dest, end)
    if end == "finish":
        guest.arrived(dest, status)
        guest.becomes(dest, task_state=None)
    else:
        guest.stayed(status)
        guest.becomes(source, task_state=None)


def evacuations(guests: Sequence[Guest], dead: ComputeHost, dest: ComputeHost) -> None:
    """The host dies with three guests: one is elsewhere when it comes back, one is on its way, one cannot be had elsewhere."""
    gone, going, staying = guests
    with dead.down():
        for guest in guests:
            guest.leave("evacuation", dest)
            guest.becomes(dest, task_state="rebuilding")
        _rebuilt(gone, dead, dest)
        staying.stayed(staying.step(dest, "abort"))
        staying.remove_share(dest)
    dead.wait_until_well()
    assert going.held() == going.allocations[going.uuid], "the host that came back took a share that may still be needed"
    _rebuilt(going, dead, dest)
    staying.becomes(dead, task_state=None)


def _rebuilt(guest: Guest, dead: ComputeHost, dest: ComputeHost) -> None:
    guest.arrived(dest, guest.step(dest, "finish"))
    guest.becomes(dest, task_state=None)
    guest.loses_share(dead)


def played(cloud: Cloud, dice: random.Random, pool: ThreadPoolExecutor) -> tuple[list[Guest], list[Future[None]]]:
    """Every kind of move, all at once: the guests, and what goes on with them."""
    guests: list[Guest] = []
    under_way: list[Future[None]] = []

    def play(scenario: Callable[..., None], end: MoveStep, *, same: bool = False, **how: bool) -> None:
        source, dest = dice.sample(cloud.both, 2)
        guest = cloud.guest(dice.choice(KINDS), dice)
        guests.append(guest)
        under_way.append(pool.submit(_built_and, [guest], source, lambda: scenario(guest, source, source if same else dest, end, **how)))

    for cold_end in COLD_ENDS:
        play(cold, cold_end, resize=True)
        play(cold, cold_end, resize=True, same=True)
        play(cold, cold_end, resize=False)
    for live_end in LIVE_ENDS:
        play(live, live_end)
    evacuated = [cloud.guest(kind, dice) for kind in dice.sample(KINDS, 3)]
    guests += evacuated
    under_way.append(pool.submit(_built_and, evacuated, cloud.a, lambda: evacuations(evacuated, *cloud.both)))
    return guests, under_way


def _built_and(guests: Sequence[Guest], host: ComputeHost, scenario: Callable[[], None]) -> None:
    for guest in guests:
        guest.build(host)
    scenario()


def killing(cloud: Cloud, dice: random.Random, under_way: Sequence[Future[None]]) -> int:
    """Kill one agent or the other, mostly when one has got somewhere again. Returns how often that was, while anything was under way."""
    killed = 0
    while killed < KILLS and not all(one.done() for one in under_way):
        if dice.random() < 0.8:
            until(lambda: all(one.done() for one in under_way) or any(host.is_well() for host in cloud.both), seconds=PATIENCE)
        time.sleep(dice.uniform(0, 0.5))
        killed += dice.choice(cloud.both).crash()
    return killed


@pytest.mark.timeout(0 if ROUNDS > 5 else 300)
def test_moves_end_exactly_whoever_is_killed_when(cloud: Cloud) -> None:
    for number in range(ROUNDS):
        dice = random.Random(number)
        with ThreadPoolExecutor(16) as pool:
            guests, under_way = played(cloud, dice, pool)
            killed = killing(cloud, dice, under_way)
            for one in under_way:
                one.result()
        assert killed, "nobody was killed in time"
        cloud.is_exact(guests)
        for guest in guests:
            guest.end()
    cloud.is_exact([])


def test_a_copied_identity_is_refused_until_its_owner_lets_go(cloud: Cloud) -> None:
    a, c = cloud.a, cloud.host("c", node=cloud.a.node)
    c.copy_identity(a)
    guest = cloud.guest(PINNED, random.Random(0))
    guest.build(a)

    def refused(one: ComputeHost, holder: ComputeHost) -> None:
        result = one.run_to_the_end()
        assert result.code == 1
        assert f"node {a.identity} is managed by host {holder.name} " in result.stderr
        assert f"and not by {one.name} " in result.stderr
        assert cloud.records(a).node.host == holder.name

    refused(c, holder=a)
    a.kill()
    # Its owner may come back at any moment.
    refused(c, holder=a)
    a.start()
    a.wait_until_well(SOON)
    assert a.stop() == 0
    c.start()
    c.wait_until_well()
    until(lambda: c.summary()["usage"]["instances"] == 1, lambda: c.log)
    assert cloud.records(c).node.host == c.name
    marks = {one for one in cloud.placement.other.traits(c.identity) if one.startswith("CUSTOM_COMPUTE_NODE_AGENT")}
    assert marks == {"CUSTOM_COMPUTE_NODE_AGENT_AGENT_C"}
    refused(a, holder=c)
    c.crash()
    c.wait_until_well(SOON)
    c.kill()
