"""How many claims a second an agent makes durable, and what the audit of a node with a thousand
instances costs.

``python -m bench.claims`` prints two tables. See README.md beside this file.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median

from agent.model.devices import DeviceRequest
from agent.store.store import open_store
from tests.support.postgresql import BINARIES, PostgreSQL
from tests.support.tracking import F1, Host, World, device, race

THREADS = 8
WARM, CLAIMS, RUNS = 80, 800, 3
INSTANCES, AUDITS = 1000, 5
SYNCS = 100
BUDGET = 300
"""Claims a second of one thread in SQLite."""
AUDIT_BUDGET = 500
"""CPU milliseconds."""

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


def fastest(
    connection: Callable[[], Connection], threads: int, nodes: int, runs: int = RUNS
) -> Rate:
    """The best of some runs, because the machine may be busy."""
    found = []
    for _ in range(runs):
        with world(connection()) as empty:
            found.append(rate(empty, threads, nodes))
    return max(found, key=attrgetter("a_second"))


@dataclass(frozen=True)
class ClaimRow:
    """The claims of so many threads on so many nodes."""

    store: str
    threads: int
    nodes: int
    rate: Rate

    @property
    def milliseconds(self) -> tuple[float, float]:
        """The median and the 99th percentile of the waits."""
        waits = self.rate.waits
        return 1000 * median(waits), 1000 * waits[len(waits) * 99 // 100]


def claim_rows(runs: int = RUNS) -> Iterator[ClaimRow]:
    """Yield the rows of SQLite, and of PostgreSQL if there is one."""
    yield from _rows("SQLite", lambda: None, runs)
    if not any(BINARIES.glob("*/bin/postgres")):
        return
    server = PostgreSQL(durable=True)
    try:
        yield from _rows("PostgreSQL", lambda: server.url(server.create()), runs)
    finally:
        server.remove()


def _rows(store: str, connection: Callable[[], Connection], runs: int) -> Iterator[ClaimRow]:
    for threads, nodes in ((1, 1), (THREADS, 1), (THREADS, THREADS)):
        yield ClaimRow(store, threads, nodes, fastest(connection, threads, nodes, runs))


def show_claims() -> None:
    """Print the table of claims."""
    print(
        "| store | threads | nodes | claims a second | budget | CPU ms | ms: median | 99 % "
        "|\n|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    for row in claim_rows():
        budget = BUDGET if (row.store, row.threads) == ("SQLite", 1) else "–"
        cells = [row.store, row.threads, row.nodes, f"{row.rate.a_second:.0f}", budget]
        waits = [f"{1000 * row.rate.cpu:.2f}", *(f"{found:.1f}" for found in row.milliseconds)]
        print("| " + " | ".join(map(str, [*cells, *waits])) + " |", flush=True)


def winners_of_the_last_device() -> int:
    """Return how many of eight threads that claim the same device at once get it."""
    with world(None) as empty:
        host = empty.plain("host")
        host.devices = (device(host, "0000:80:00.0"),)
        host.audit()
        wanted = (DeviceRequest("device", 1, {"product_id": "1563"}),)
        outcomes = race(
            *(
                partial(host.claim, f"guest-{number}", F1, devices=wanted)
                for number in range(THREADS)
            )
        )
    return sum(not isinstance(outcome, Exception) for outcome in outcomes)


def best(action: Callable[[], object]) -> float:
    """CPU milliseconds of the best of some runs, because the machine may be busy."""

    def once() -> float:
        begun = time.process_time()
        action()
        return time.process_time() - begun

    return 1000 * min(once() for _ in range(AUDITS))


def audit_milliseconds() -> Mapping[str, float]:
    """Return the CPU milliseconds of the audits of a node with a thousand instances."""
    with world(None) as empty:
        host = empty.plain("host")
        claim(host, [f"guest-{number}" for number in range(INSTANCES)])
        return {
            "every audit": best(host.audit),
            "the first after a restart": best(lambda: (host.restart(), host.audit(start=True))),
        }


def show_audits() -> None:
    """Print the table of audits."""
    print(f"\n| audit of {INSTANCES} instances | CPU ms | budget |\n|---|---:|---:|")
    for name, milliseconds in audit_milliseconds().items():
        print(f"| {name} | {milliseconds:.0f} | {AUDIT_BUDGET} |")


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as folder:
        print(f"4 KiB are on the disk after {synced(Path(folder)):.2f} ms.\n")
    show_claims()
    show_audits()


if __name__ == "__main__":
    main()
