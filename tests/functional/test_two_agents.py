"""Two hosts, each with an agent of its own, on one Placement: guests move between them while agents
are killed.

The hosts have stores of their own, as is the default, or one PostgreSQL.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.api.client import MoveStep
from tests.functional.cloud import Cloud, cloud_on, killing
from tests.support.compute_host import ComputeHost
from tests.support.http_placement import HttpPlacement
from tests.support.orchestrator import KINDS, PINNED, Guest
from tests.support.postgresql import PostgreSQL
from tests.support.service_manager import until

ROUNDS = int(os.environ.get("TWO_AGENTS_ROUNDS", "2"))
SOON = 120.0
"""Seconds in which an agent that was killed is back, on a machine that is very busy; a lease that it had to wait for would take longer."""
COLD_ENDS: tuple[MoveStep, ...] = ("confirm", "revert", "abort")
LIVE_ENDS: tuple[MoveStep, ...] = ("finish", "abort")


@pytest.fixture(params=["own stores", "one store"])
def cloud(
    request: pytest.FixtureRequest, http_placement: HttpPlacement, tmp_path: Path
) -> Iterator[Cloud]:
    shared = request.getfixturevalue("postgresql") if request.param == "one store" else None
    with cloud_on(tmp_path, http_placement, shared) as found:
        yield found


@pytest.fixture
def shared_cloud(
    http_placement: HttpPlacement, postgresql: PostgreSQL, tmp_path: Path
) -> Iterator[Cloud]:
    with cloud_on(tmp_path, http_placement, postgresql) as found:
        yield found


# --- what an orchestrator does --------------------------------------------------------------------


def cold(
    guest: Guest, source: ComputeHost, dest: ComputeHost, end: MoveStep, *, resize: bool
) -> None:
    """A resize, or a cold migration; confirmed, reverted, or given up on the way."""
    flavor = guest.kind.large if resize else None
    guest.becomes(source, task_state="resize_prep")
    guest.leave("resize" if resize else "migration", dest, flavor)
    guest.becomes(source, task_state="resize_migrated")
    if end == "abort":
        guest.stayed(guest.step("abort", dest, source))
        guest.becomes(source, task_state=None)
        return
    guest.step("finish", dest, source)
    guest.becomes(dest, vm_state="resized", task_state=None)
    if end == "confirm":
        guest.arrived(dest, guest.step("confirm", dest, source), flavor)
        guest.becomes(dest, vm_state="active")
        return
    guest.becomes(dest, task_state="resize_reverting")
    guest.stayed(guest.step("revert", dest, source))
    guest.becomes(source, vm_state="active", task_state=None)


def live(guest: Guest, source: ComputeHost, dest: ComputeHost, end: MoveStep) -> None:
    """A live migration."""
    guest.becomes(source, task_state="migrating")
    guest.leave("live-migration", dest)
    status = guest.step(end, dest, source)
    if end == "finish":
        guest.arrived(dest, status)
        guest.becomes(dest, task_state=None)
    else:
        guest.stayed(status)
        guest.becomes(source, task_state=None)


def evacuations(guests: Sequence[Guest], dead: ComputeHost, dest: ComputeHost) -> None:
    """The host dies with three guests: one is elsewhere when it comes back, one is on its way, one
    cannot be had elsewhere.
    """
    gone, going, staying = guests
    with dead.down():
        for guest in guests:
            guest.leave("evacuation", dest)
            guest.becomes(dest, task_state="rebuilding")
        _rebuilt(gone, dest)
        staying.stayed(staying.step("abort", dest))
        staying.remove_share(dest)
    dead.wait_until_well()
    assert going.held() == going.allocations[going.uuid], (
        "the host that came back took a share that may still be needed"
    )
    for guest in guests:
        guest.told(dead)
    gone.step("finish", dead)
    gone.loses_share(dead)
    staying.step("abort", dead)
    _rebuilt(going, dest, dead)
    going.loses_share(dead)
    staying.becomes(dead, task_state=None)


def _rebuilt(guest: Guest, dest: ComputeHost, *source: ComputeHost) -> None:
    guest.arrived(dest, guest.step("finish", dest, *source))
    guest.becomes(dest, task_state=None)


def played(
    cloud: Cloud, dice: random.Random, pool: ThreadPoolExecutor
) -> tuple[list[Guest], list[Future[None]]]:
    """Every kind of move, all at once: the guests, and what goes on with them."""
    guests: list[Guest] = []
    under_way: list[Future[None]] = []

    def play(
        scenario: Callable[..., None], end: MoveStep, *, same: bool = False, **how: bool
    ) -> None:
        source, dest = dice.sample(cloud.both, 2)
        guest = cloud.guest(dice.choice(KINDS), dice)
        guests.append(guest)
        under_way.append(
            pool.submit(
                _built_and,
                [guest],
                source,
                lambda: scenario(guest, source, source if same else dest, end, **how),
            )
        )

    for cold_end in COLD_ENDS:
        play(cold, cold_end, resize=True)
        play(cold, cold_end, resize=True, same=True)
        play(cold, cold_end, resize=False)
    for live_end in LIVE_ENDS:
        play(live, live_end)
    evacuated = [cloud.guest(kind, dice) for kind in dice.sample(KINDS, 3)]
    guests += evacuated
    under_way.append(
        pool.submit(_built_and, evacuated, cloud.a, lambda: evacuations(evacuated, *cloud.both))
    )
    return guests, under_way


def _built_and(guests: Sequence[Guest], host: ComputeHost, scenario: Callable[[], None]) -> None:
    for guest in guests:
        guest.build(host)
    scenario()


@pytest.mark.long
@pytest.mark.timeout(0 if ROUNDS > 5 else 900)
def test_moves_end_exactly_whoever_is_killed_when(cloud: Cloud) -> None:
    for number in range(ROUNDS):
        dice = random.Random(number)
        with ThreadPoolExecutor(16) as pool:
            guests, under_way = played(cloud, dice, pool)
            # Beside the kill that an evacuation begins with.
            killed = killing(cloud, dice, under_way)
            for one in under_way:
                one.result()
        assert killed, "nobody was killed in time"
        cloud.is_exact(guests)
        for guest in guests:
            guest.end()
    cloud.is_exact([])


@pytest.mark.long
def test_a_copied_identity_is_refused_until_its_owner_lets_go(shared_cloud: Cloud) -> None:
    cloud = shared_cloud
    a, c = cloud.a, cloud.host("c", node=cloud.a.node)
    c.copy_identity(a)
    guest = cloud.guest(PINNED, random.Random(0))
    guest.build(a)

    def refused(one: ComputeHost, holder: ComputeHost) -> None:
        result = one.run_to_the_end()
        assert result.code == 1
        assert f"node {a.identity} is managed by host {holder.name}, " in result.stderr
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
    marks = {
        one
        for one in cloud.placement.other.traits(c.identity)
        if one.startswith("CUSTOM_COMPUTE_NODE_AGENT")
    }
    assert marks == {"CUSTOM_COMPUTE_NODE_AGENT_AGENT_C"}
    refused(a, holder=c)
    c.crash()
    c.wait_until_well(SOON)
    c.kill()
