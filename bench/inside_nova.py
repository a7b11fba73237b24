"""What nova-compute's tracker asks of Placement, as it is and with the agent's engine."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import processes
from bench.processes import Pass, ended
from bench.tree_driver import HELD, Tree
from bench.tree_driver import ROOT as NODE
from tests.support.http_placement import HttpPlacement

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
