"""How many claims a second an agent makes durable in one process, and what the audit of a node with
a thousand instances costs.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median

from agent.store.store import open_store
from tests.support.postgresql import BINARIES, PostgreSQL
from tests.support.tracking import F1, Host, World

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
THREADS = 8
WARM, CLAIMS, RUNS = 80, 800, 3
INSTANCES, AUDITS = 1000, 5
SYNCS = 100

Connection = str | None
"""``[store] connection``, None for SQLite."""


def synced(folder: Path) -> float:
    """How many milliseconds it takes until 4 KiB are on the disk, which no durable write can be
    faster than.
    """
    block, took = b"x" * 4096, []
    with (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(block)
            os.fsync(file)
            took.append(time.perf_counter() - begun)
    return 1000 * median(took)


@contextmanager
def world(connection: Connection) -> Iterator[World]:
    """An empty store, in a folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="agent-bench-") as folder,
        open_store(Path(folder) / "store", connection) as store,
    ):
        yield World(store)


def claim(host: Host, names: Sequence[str]) -> list[float]:
    """Claim room for all, one after the other; how long each took, in seconds."""
    took = []
    for name in names:
        begun = time.perf_counter()
        host.claim(name, F1)
        took.append(time.perf_counter() - begun)
    return took


@dataclass(frozen=True)
class Rate:
    """``a_second``: how many claims; ``cpu``: this process's seconds for each; ``waits``: seconds
    until each was made, in order.
    """

    a_second: float
    cpu: float
    waits: Sequence[float]


def rate(world: World, threads: int, nodes: int) -> Rate:
    """Claims of so many threads on so many nodes."""
    hosts = [world.plain(f"host-{number}") for number in range(nodes)]
    claim(hosts[0], [f"warm-{number}" for number in range(WARM)])
    names = [
        [f"{thread}-{number}" for number in range(CLAIMS // threads)] for thread in range(threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        begun, cpu = time.perf_counter(), time.process_time()
        waits = list(pool.map(claim, [hosts[thread % nodes] for thread in range(threads)], names))
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return Rate(CLAIMS / seconds, cpu / CLAIMS, sorted(one for some in waits for one in some))


def best(action: Callable[[], object]) -> float:
    """CPU milliseconds of the best of some runs, because the machine may be busy."""

    def once() -> float:
        begun = time.process_time()
        action()
        return time.process_time() - begun

    return 1000 * min(once() for _ in range(AUDITS))


@dataclass(frozen=True)
class ClaimRow:
    """The claims of so many threads on so many nodes. The milliseconds are how long a claim took."""

    store: str
    threads: int
    nodes: int
    a_second: float
    cpu_milliseconds: float
    milliseconds_median: float
    milliseconds_99: float


@dataclass(frozen=True)
class Claims:
    """What was measured of claims in one process, and of the disk below their store."""

    rows: Sequence[ClaimRow]
    audits: Mapping[str, float]
    """CPU milliseconds of audits of a node with a thousand instances."""
    synced: float
    """Milliseconds until 4 KiB are on the disk."""


def claim_figures(folder: Path, runs: int) -> Claims:
    """Measure each rate ``runs`` times, of which the best counts, and the audits once."""
    return Claims(list(_rows(runs)), _audits(), synced(folder))


def _rows(runs: int) -> Iterator[ClaimRow]:
    """Yield the rows of SQLite, and of PostgreSQL if there is one."""
    yield from _rows_of(SQLITE, lambda: None, runs)
    if not any(BINARIES.glob("*/bin/postgres")):
        return
    server = PostgreSQL(durable=True)
    try:
        yield from _rows_of(POSTGRESQL, lambda: server.url(server.create()), runs)
    finally:
        server.remove()


def _rows_of(store: str, connection: Callable[[], Connection], runs: int) -> Iterator[ClaimRow]:
    shapes = ((1, 1), (THREADS, 1), (THREADS, THREADS))
    found: dict[tuple[int, int], list[Rate]] = {shape: [] for shape in shapes}
    # In turns, so that a slow minute of the machine does not meet one shape alone.
    for _ in range(runs):
        for shape, rates in found.items():
            with world(connection()) as empty:
                rates.append(rate(empty, *shape))
    for (threads, nodes), rates in found.items():
        fastest = max(rates, key=attrgetter("a_second"))
        waits = fastest.waits
        yield ClaimRow(
            store,
            threads,
            nodes,
            fastest.a_second,
            1000 * fastest.cpu,
            1000 * median(waits),
            1000 * waits[len(waits) * 99 // 100],
        )


def _audits() -> Mapping[str, float]:
    """Return the CPU milliseconds of the audits of a node with a thousand instances."""
    with world(None) as empty:
        host = empty.plain("host")
        claim(host, [f"guest-{number}" for number in range(INSTANCES)])
        return {
            "every audit": best(host.audit),
            "the first after a restart": best(lambda: (host.restart(), host.audit(start=True))),
        }
