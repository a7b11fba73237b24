"""Contenders for the last of something: threads of this process and processes of their own, on one
store, round after round.
"""

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier, Lock
from pathlib import Path

from agent.errors import AgentError
from agent.model.devices import AssignableUnit, DeviceRequest
from agent.model.facts import CpuFacts, HostFacts
from agent.model.instance import Flavor
from agent.numa.host_policy import HostPolicy
from agent.store.store import open_store
from agent.tracker.errors import ResourcesUnavailable
from tests.support.tracking import (
    DEDICATED,
    FM,
    NUMA_RESERVED,
    PMEM,
    Host,
    World,
    device,
    numa_cells,
    pmem_of,
    settled,
)

THREADS, PROCESSES = 8, 4
PATIENCE = 120.0
PINNED = Flavor("fp", "FP", 1, 1024, extra_specs=DEDICATED)
WON, REFUSED = "won", "resources unavailable"

CLAIMS: Mapping[str, Callable[[Host, str], object]] = {
    "pinned CPU": lambda host, name: host.claim(name, PINNED),
    "assigned unit": lambda host, name: host.claim(name, FM, allocations=pmem_of(host)),
    "device row": lambda host, name: host.claim(name, FM, devices=(DeviceRequest("any", 1),)),
}
"""What is contended for, and how it is claimed."""


def host_of_last_ones(world: World) -> Host:
    """A host that has one dedicated CPU, one unit and one device."""
    facts = HostFacts(
        "HL",
        world.time(),
        "test",
        cpu=CpuFacts(frozenset(range(16))),
        memory_mib=32768,
        disk_gib=500,
        numa=numa_cells(),
        units=(AssignableUnit(PMEM, "ns_0"),),
    )
    sets = HostPolicy(frozenset(range(4)), frozenset({4}))
    host = Host("HL", world.records, world.time, facts, policy=NUMA_RESERVED, cells=sets)
    host.devices = (device(host, "0000:81:00.0"),)
    host.audit(start=True)
    return host


def contended(
    folder: Path, connection: str | None, prize: str, rounds: int
) -> list[tuple[str, ...]]:
    """Have all contenders claim the same at the same moment, and the winner give it back,
    ``rounds`` times.

    Returns what each of them got, round by round: ``WON``, ``REFUSED``, or what went wrong.
    """
    spawned = multiprocessing.get_context("spawn")
    meeting = spawned.Barrier(THREADS + PROCESSES), spawned.Lock()
    with (
        open_store(folder, connection) as store,
        ThreadPoolExecutor(THREADS) as threads,
        ProcessPoolExecutor(PROCESSES, spawned, _meet_at, meeting) as processes,
    ):
        host = host_of_last_ones(World(store))
        contenders = [
            processes.submit(_process, folder, connection, prize, rounds, f"process-{number}")
            for number in range(PROCESSES)
        ]
        _meet_at(*meeting)
        contenders += [
            threads.submit(_contend, host, prize, rounds, f"thread-{number}")
            for number in range(THREADS)
        ]
        found = list(zip(*(one.result() for one in contenders), strict=True))
        settled(host)
    return found


_meetings: list[tuple[Barrier, Lock]] = []


def _meet_at(barrier: Barrier, opening: Lock) -> None:
    _meetings[:] = [(barrier, opening)]


def _process(folder: Path, connection: str | None, prize: str, rounds: int, name: str) -> list[str]:
    """A contender that is an agent of its own."""
    ((_, opening),) = _meetings
    with ExitStack() as closing:
        # One after the other, as the lock of the state folder has agents open their store.
        with opening:
            store = closing.enter_context(open_store(folder, connection))
            host = host_of_last_ones(World(store))
        return _contend(host, prize, rounds, name)


def _contend(host: Host, prize: str, rounds: int, name: str) -> list[str]:
    ((barrier, _),), results = _meetings, []
    try:
        for number in range(rounds):
            barrier.wait(PATIENCE)
            results.append(_tried(host, prize, f"{name}-{number}"))
            barrier.wait(PATIENCE)
            if results[-1] == WON:
                host.abort(f"{name}-{number}")
    except BaseException:
        # Else the others would wait for this one.
        barrier.abort()
        raise
    return results


def _tried(host: Host, prize: str, name: str) -> str:
    try:
        CLAIMS[prize](host, name)
    except ResourcesUnavailable:
        return REFUSED
    except AgentError as error:
        return f"{type(error).__name__}: {error}"
    return WON
