"""How requests, the agent's CPU time and its memory grow with the nodes of an ironic.

``python -m bench.baremetal [--quick]`` prints a table. Ironic's answers are recorded ones, given
again: see tests/support/recorded_ironic.py.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.growth import Pass, running
from tests.support.http_placement import HttpPlacement
from tests.support.ini import write_config
from tests.support.recorded_ironic import RecordedIronic, node_uuid

NODES, QUICK_NODES = (10, 100, 1000, 5000), (10, 100)
CHANGED = 3
PASSES = ("first", "steady", "3 changed", "restart")
HEAD = (
    "N",
    *(f"{name}: {what}" for name in PASSES for what in ("requests", "s", "CPU ms")),
    "MiB",
    "peak MiB",
)


@contextmanager
def ironic_of(number: int) -> Iterator[RecordedIronic]:
    """So many nodes."""
    server = RecordedIronic(number)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def measure(placement: HttpPlacement, folder: Path, number: int) -> list[Pass]:
    """A first pass on an empty Placement, an unchanged one, one after which three nodes have
    changed, and the first of a new process.
    """
    placement.reset()
    with ironic_of(number) as ironic:
        config = write_config(
            folder / "agent.conf",
            {
                "DEFAULT": {"host": "bench", "compute_driver": "ironic"},
                "ironic": ironic.credentials(),
                "store": {"path": folder / "store"},
                # one request at a time, because a Placement on SQLite answers 500 to parallel
                # writes
                "placement": {**placement.credentials(), "max_in_flight": 1},
            },
        )
        with running(config, placement) as agent:
            first = agent.cycle("changed")
            # because the first steady pass frees what the first one of all needed
            agent.cycle("in-sync")
            steady = agent.cycle("in-sync")
            for one in range(CHANGED):
                ironic.nodes[node_uuid(one)]["maintenance"] = True
            changed = agent.cycle("changed", "in-sync")
        with running(config, placement) as agent:
            restart = agent.cycle("in-sync")
    return [first, steady, changed, restart]


def row(number: int, passes: Sequence[Pass]) -> str:
    """One line of the table."""
    figures = [
        text
        for one in passes
        for text in (str(one.requests), f"{one.seconds:.2f}", f"{one.cpu * 1000:.0f}")
    ]
    _, steady, _, _ = passes
    return (
        "| "
        + " | ".join([str(number), *figures, f"{steady.resident:.0f}", f"{steady.peak:.0f}"])
        + " |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.baremetal", description="How cost grows with the nodes of an ironic."
    )
    parser.add_argument("--quick", action="store_true", help="only the sizes that take seconds")
    quick = parser.parse_args(arguments).quick
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        placement = HttpPlacement(folder)
        placement.start()
        try:
            print("| " + " | ".join(HEAD) + " |\n|" + "---:|" * len(HEAD), flush=True)
            for number in QUICK_NODES if quick else NODES:
                print(row(number, measure(placement, folder / f"N{number}", number)), flush=True)
        finally:
            placement.stop()


if __name__ == "__main__":
    main()
