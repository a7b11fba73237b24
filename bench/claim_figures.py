"""What one run of the bench shows of claims: how many a second on each store, who gets the last
device, what an audit with a thousand instances costs, and how fast the disk is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median

from agent.model.devices import DeviceRequest
from bench.claims import INSTANCES, THREADS, Connection, Rate, best, claim, rate, synced, world
from tests.support.postgresql import BINARIES, PostgreSQL
from tests.support.tracking import F1, device, race

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"


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
    winners: int
    """How many of eight threads got the last device."""
    audits: Mapping[str, float]
    """CPU milliseconds of audits of a node with a thousand instances."""
    synced: float
    """Milliseconds until 4 KiB are on the disk."""


def claim_figures(folder: Path, runs: int) -> Claims:
    """Measure each rate ``runs`` times, of which the best counts, and the others once."""
    return Claims(list(_rows(runs)), _winners_of_the_last_device(), _audits(), synced(folder))


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


def _winners_of_the_last_device() -> int:
    """Return how many of eight threads that claim the same device at once get it."""
    with world(None) as empty:
        host = empty.plain("host")
        host.devices = (device(host, "0000:80:00.0"),)
        host.audit()
        wanted = (DeviceRequest("device", 1, {"product_id": "1563"}),)
        guests = [f"guest-{number}" for number in range(THREADS)]
        outcomes = race(*(partial(host.claim, guest, F1, devices=wanted) for guest in guests))
    return sum(not isinstance(outcome, Exception) for outcome in outcomes)


def _audits() -> Mapping[str, float]:
    """Return the CPU milliseconds of the audits of a node with a thousand instances."""
    with world(None) as empty:
        host = empty.plain("host")
        claim(host, [f"guest-{number}" for number in range(INSTANCES)])
        return {
            "every audit": best(host.audit),
            "the first after a restart": best(lambda: (host.restart(), host.audit(start=True))),
        }
