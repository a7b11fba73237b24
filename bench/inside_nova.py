"""What nova-compute's tracker asks of Placement, as it is and with the agent's engine.

``NOVA_PYTHON=…/bin/python python -m bench.inside_nova [--quick]`` prints a table. See README.md
beside this file.
"""

import argparse
import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import processes
from bench.processes import Pass, ended
from bench.tree_driver import HELD, Tree
from bench.tree_driver import ROOT as NODE
from tests.support.http_placement import HttpPlacement

PROVIDERS, QUICK_PROVIDERS = (1, 9, 73, 513), (1, 9)
CONSUMERS, QUICK_CONSUMERS = (0, 100), (0, 5)
CASES = ("first", "steady", "one change", "restart", "reshape")
ROOT = NODE.format(1)


@dataclass(frozen=True)
class Counted:
    """The Placement of the tests, which counts requests, but not what they take."""

    placement: HttpPlacement

    def clear(self) -> None:
        """Begin to count anew."""
        self.placement.clear()

    def counted(self) -> tuple[int, float]:
        """Return the requests since then."""
        return len(self.placement.requests), 0.0


@dataclass(frozen=True)
class Site:
    """A Placement, a Python that has nova, and how its tracker reports: ``nova`` or ``engine``."""

    placement: HttpPlacement
    python: str
    mode: str
    folder: Path

    @contextlib.contextmanager
    def tracker(self, providers: int) -> Iterator["Process"]:
        """Start a process with a tracker; it is ended at the end."""
        arguments = (self.mode, self.placement.url, str(self.folder))
        command = [self.python, "-W", "ignore", "-m", "bench.inside_nova_tracker", *arguments]
        with ended(processes.Process(command, Counted(self.placement))) as process:
            yield Process(process, providers)


class Process:
    """A running tracker of a host with ``providers``."""

    def __init__(self, process: processes.Process, providers: int) -> None:
        self._process, self._providers = process, providers

    def period(self, consumers: Sequence[str], *, grown: bool = False, split: bool = False) -> Pass:
        """Have it make one period."""
        tree = asdict(Tree(self._providers, grown=grown, split=split))
        figures, _ = self._process.ask({"tree": tree, "consumers": list(consumers)})
        if figures.errors:
            raise SystemExit("; ".join(figures.errors))
        return figures


def measure(site: Site, providers: int, consumers: int) -> Mapping[str, Pass]:
    """Each case on a Placement that is empty at first. Periods in between, which read what a change
    left, are not counted.
    """
    site.placement.reset()
    found: dict[str, Pass] = {}
    with site.tracker(providers) as tracker:
        found["first"] = tracker.period([])
        guests = [str(uuid.UUID(int=number + 1)) for number in range(consumers)]
        devices = sorted(
            row["uuid"] for row in site.placement.other.tree(ROOT) if "_DEVICE" in row["name"]
        )
        for number, guest in enumerate(guests):
            device = {devices[number % len(devices)]: {"SRIOV_NET_VF": 1}} if devices else {}
            site.placement.other.claim({ROOT: HELD, **device}, guest)
        for _ in range(2):
            tracker.period(guests)
        found["steady"] = tracker.period(guests)
        found["one change"] = tracker.period(guests, grown=True)
        tracker.period(guests, grown=True)
    with site.tracker(providers) as tracker:
        found["restart"] = tracker.period(guests, grown=True)
    with site.tracker(providers) as tracker:
        found["reshape"] = tracker.period(guests, grown=True, split=True)
    for guest in guests:
        held = site.placement.other.allocations(guest)["allocations"]
        assert "VCPU" not in held[ROOT]["resources"], f"{guest} was not moved"
    return found


def budget(case: str, providers: int, consumers: int) -> int:
    """How many requests the agent itself may send in this case."""
    with_traits = 1 + max(0, providers - 9)
    return {
        "first": providers + with_traits + 5 + (1 if providers > 9 else 0),
        "steady": 1,
        "one change": 2,
        "restart": 1,
        # Two providers are made, and all others had an inventory.
        "reshape": consumers + providers + 2 * 2 + 6,
    }[case]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.inside_nova",
        description="Requests of nova-compute's tracker, as it is and with the agent's engine.",
    )
    parser.add_argument("--quick", action="store_true", help="only the sizes that take seconds")
    quick = parser.parse_args(arguments).quick
    python = os.environ.get("NOVA_PYTHON")
    if python is None:
        raise SystemExit(
            "NOVA_PYTHON must name a Python that has nova and the agent's dependencies"
        )
    print("| P | C | case | nova: requests | s | CPU s | engine: requests | s | CPU s | budget |")
    print("|---:|---:|---|" + "---:|" * 7, flush=True)
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        placement = HttpPlacement(Path(name))
        placement.start()
        try:
            for providers in QUICK_PROVIDERS if quick else PROVIDERS:
                for consumers in QUICK_CONSUMERS if quick else CONSUMERS:
                    rows(placement, python, Path(name), (providers, consumers))
        finally:
            placement.stop()


def rows(placement: HttpPlacement, python: str, folder: Path, size: tuple[int, int]) -> None:
    """Print the rows of one size."""
    state = folder / "P{}C{}".format(*size)
    nova, engine = (
        measure(Site(placement, python, mode, state), *size) for mode in ("nova", "engine")
    )
    for case in CASES:
        cells = [*map(str, size), case]
        for period in (nova[case], engine[case]):
            cells += [str(period.requests), f"{period.seconds:.2f}", f"{period.cpu:.2f}"]
        print("| " + " | ".join([*cells, str(budget(case, *size) + 1)]) + " |", flush=True)


if __name__ == "__main__":
    main()
