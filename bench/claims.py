"""How many claims a second an agent makes durable, and what the audit of a node with a thousand
instances costs.

``python -m bench.claims`` prints two tables. See README.md beside this file.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median

from agent.store.store import open_store
from tests.support.postgresql import BINARIES, PostgreSQL
from tests.support.tracking import F1, Host, World

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


def fastest(connection: Callable[[], Connection], threads: int, nodes: int) -> Rate:
    """The best of some runs, because the machine may be busy."""
    found = []
    for _ in range(RUNS):
        with world(connection()) as empty:
            found.append(rate(empty, threads, nodes))
    return max(found, key=attrgetter("a_second"))


def rates(name: str, connection: Callable[[], Connection], budget: str) -> None:
    """Print a store's rows of the table of claims."""
    for threads, nodes in ((1, 1), (THREADS, 1), (THREADS, THREADS)):
        found = fastest(connection, threads, nodes)
        waits = (
            f"{1000 * median(found.waits):.1f} | "
            f"{1000 * found.waits[len(found.waits) * 99 // 100]:.1f}"
        )
        print(
            (
                f"| {name} | {threads} | {nodes} | {found.a_second:.0f} | {budget} | "
                f"{1000 * found.cpu:.2f} | {waits} |"
            ),
            flush=True,
        )


def claims() -> None:
    """Print the table of claims."""
    print(
        "| store | threads | nodes | claims a second | budget | CPU ms | ms: median | 99 % "
        "|\n|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    rates("SQLite", lambda: None, "300")
    if not any(BINARIES.glob("*/bin/postgres")):
        print(f"(no PostgreSQL in {BINARIES})")
        return
    server = PostgreSQL(durable=True)
    try:
        rates("PostgreSQL", lambda: server.url(server.create()), "–")
    finally:
        server.remove()


def best(action: Callable[[], object]) -> float:
    """CPU milliseconds of the best of some runs, because the machine may be busy."""

    def once() -> float:
        begun = time.process_time()
        action()
        return time.process_time() - begun

    return 1000 * min(once() for _ in range(AUDITS))


def audits() -> None:
    """Print the table of audits."""
    with world(None) as empty:
        host = empty.plain("host")
        claim(host, [f"guest-{number}" for number in range(INSTANCES)])
        figures = {
            "every audit": best(host.audit),
            "the first after a restart": best(lambda: (host.restart(), host.audit(start=True))),
        }
    print(f"\n| audit of {INSTANCES} instances | CPU ms | budget |\n|---|---:|---:|")
    for name, milliseconds in figures.items():
        print(f"| {name} | {milliseconds:.0f} | 500 |")


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as folder:
        print(f"4 KiB are on the disk after {synced(Path(folder)):.2f} ms.\n")
    claims()
    audits()


if __name__ == "__main__":
    main()
