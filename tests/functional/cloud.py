"""Two hosts, each with an agent of its own, on one Placement, and on one PostgreSQL or stores of
their own; and what has to be so when all is over.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agent.model.instance import Amounts
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import NodeRecords
from agent.store.reading import RecordReader
from agent.store.records import Records
from agent.store.store import open_read_only
from tests.support.compute_host import PATIENCE, RESERVED, ComputeHost
from tests.support.http_placement import HttpPlacement
from tests.support.orchestrator import PINNED, WITH_UNIT, Guest, Kind
from tests.support.postgresql import PostgreSQL
from tests.support.service_manager import until

KILLS = 4
"""While something is under way."""


class Cloud:
    """Hosts A and B, whose agents run, on ``placement`` and the database at ``url``; None for
    stores of their own.
    """

    def __init__(self, folder: Path, placement: HttpPlacement, url: str | None) -> None:
        self.folder, self.placement, self.url = folder, placement, url
        self.a, self.b = self.host("a"), self.host("b")

    def host(self, name: str, node: str | None = None) -> ComputeHost:
        """A host of this cloud."""
        return ComputeHost(
            self.folder / name,
            f"agent-{name}",
            node or f"node-{name}",
            self.placement.credentials(),
            self.url,
        )

    @property
    def both(self) -> tuple[ComputeHost, ComputeHost]:
        """Its hosts."""
        return self.a, self.b

    @contextmanager
    def running(self) -> Iterator["Cloud"]:
        """Inside, its agents run, though one may be killed."""
        with ExitStack() as stack:
            for one in self.both:
                stack.callback(one.kill)
                one.start()
            for one in self.both:
                one.wait_until_well()
            yield self

    def guest(self, kind: Kind, dice: random.Random) -> Guest:
        """A guest that nobody has built yet."""
        return Guest(self.placement, kind, random.Random(dice.random()))

    def allocations(self) -> dict[str, object]:
        """Who holds what in Placement."""
        return {
            uuid: one["allocations"]
            for uuid, one in self.placement.dump()["consumers"].items()
            if one["allocations"]
        }

    # --- what has to be so in the end -------------------------------------------------------------

    def is_exact(self, guests: Sequence[Guest]) -> None:
        """Everything is as it should be, with these guests and no other."""
        for host in self.both:
            # One may have been killed last of all.
            host.wait_until_well()
        wanted = {
            consumer: held for guest in guests for consumer, held in guest.allocations.items()
        }
        until(
            lambda: self.allocations() == wanted,
            lambda: f"{self.allocations()}\nis not\n{wanted}\n{self._logs()}",
            PATIENCE,
        )
        for host in self.both:
            mine = [guest for guest in guests if guest.owner is host]
            usage = {
                **{f"{name}_used": amount for name, amount in self._used(mine).items()},
                "instances": len(mine),
                "claims": len(mine),
                "migrations": 0,
            }
            until(
                lambda: host.summary()["usage"] == usage,  # noqa: B023
                lambda: f"{host.summary()['usage']} is not {usage}\n{self._logs()}",  # noqa: B023
                PATIENCE,
            )
            until(
                lambda: host.is_well() and not self.records(host).node.dirty,  # noqa: B023
                self._logs,
                PATIENCE,
            )
            self._are_exact(host, {guest.uuid: guest for guest in mine})
            assert host.bugs == []
        ended = {uuid: how for guest in guests for uuid, how in guest.ended.items()}
        found: dict[str, set[tuple[str, str]]] = {uuid: set() for uuid in ended}
        for host in self.both:
            with self._reading(host) as reading:
                for uuid in ended:
                    # A host with a store of its own knows only the moves that it was an end of.
                    if (one := reading.migration(ConsumerUuid(uuid))) is not None:
                        found[uuid].add((one.type, one.status))
        assert found == {uuid: {how} for uuid, how in ended.items()}

    def _are_exact(self, host: ComputeHost, guests: Mapping[str, Guest]) -> None:
        """The host's records."""
        records = self.records(host)
        assert not records.damaged
        assert records.node.host == host.name
        assert {one.uuid for one in records.instances} == guests.keys()
        for one in records.instances:
            assert (one.host, one.vm_state, one.task_state, one.flavor) == (
                host.name,
                "active",
                None,
                guests[one.uuid].flavor,
            )
            assert (one.old_flavor, one.new_flavor) == (None, None)
        assert sorted(one.instance for one in records.claims) == sorted(guests)
        for claim in records.claims:
            flavor = guests[claim.instance].flavor
            assert (claim.half, claim.migration, claim.flavor_id, claim.amounts) == (
                "only",
                None,
                flavor.id,
                flavor.amounts(volume_backed=False),
            )
        pins = [
            cpu for claim in records.claims for placed in claim.cells for cpu in placed.pinned_cpus
        ]
        assert (
            len(pins)
            == len(set(pins))
            == sum(one.flavor.vcpus for one in guests.values() if one.kind is PINNED)
        )
        holders = [unit.holder for unit in records.units if unit.holder is not None]
        assert sorted(holders) == sorted(
            one.id for one in records.claims if guests[one.instance].kind is WITH_UNIT
        )
        users = [device.holder for device in records.devices if device.holder is not None]
        assert sorted(users) == sorted(
            one.id for one in records.claims if guests[one.instance].kind.device
        )

    def records(self, host: ComputeHost) -> NodeRecords:
        """All that is on record of a host."""
        with self._reading(host) as reading:
            found = reading.load(ProviderUuid(host.identity))
        assert found is not None
        return found

    @contextmanager
    def _reading(self, host: ComputeHost) -> Iterator[RecordReader]:
        """The host's store as it is now; what is read of a store in a file is a copy."""
        place = (host.command.store, None) if self.url is None else (self.folder / "look", self.url)
        with open_read_only(*place) as store, Records(store).reading() as reading:
            yield reading

    @staticmethod
    def _used(guests: Sequence[Guest]) -> dict[str, int]:
        sums = sum((guest.flavor.amounts(volume_backed=False) for guest in guests), start=Amounts())
        return {name: amount + getattr(sums, name) for name, amount in RESERVED.items()}

    def _logs(self) -> str:
        return "\n".join(f"--- {host.name}\n{host.log[-3000:]}" for host in self.both)


@contextmanager
def cloud_on(
    folder: Path, placement: HttpPlacement, postgresql: PostgreSQL | None
) -> Iterator[Cloud]:
    """A cloud whose agents are well, with a database of its own; None: whose hosts have stores of
    their own.
    """
    if postgresql is None:
        with Cloud(folder, placement, None).running() as cloud:
            yield cloud
        return
    database = postgresql.create()
    with Cloud(folder, placement, postgresql.url(database)).running() as cloud:
        yield cloud
    postgresql.drop(database)


def killing(cloud: Cloud, dice: random.Random, under_way: Sequence[Future[None]]) -> int:
    """Kill one agent or the other, mostly when one has got somewhere again. Returns how often that
    was, while anything was under way.
    """
    killed = 0
    while killed < KILLS and not all(one.done() for one in under_way):
        if dice.random() < 0.8:
            until(
                lambda: (
                    all(one.done() for one in under_way)
                    or any(host.is_well() for host in cloud.both)
                ),
                seconds=PATIENCE,
            )
        time.sleep(dice.uniform(0, 0.5))
        killed += dice.choice(cloud.both).crash()
    return killed
