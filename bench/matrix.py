"""The passes that nova's tracker and this agent make in turns: P providers with C consumers, and N
nodes, through everything that may happen to them.
"""

import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.placement_site import Backend, BenchPlacement
from bench.processes import Pass, Peer, Running, Subject
from bench.tree_driver import HELD, ROOT, Tree

Case = Literal[
    "first",
    "steady",
    "inventory",
    "conflict",
    "trait",
    "outage",
    "recovery",
    "held",
    "restart",
    "claim",
    "restart, no mirror",
    "reshape",
]
MEANINGS: dict[Case, str] = {
    "first": "Placement is empty",
    "steady": "nothing changed",
    "inventory": "one inventory is larger",
    "conflict": "one inventory is smaller, and somebody else writes to its provider just before",
    "trait": "one provider has a trait less",
    "outage": "Placement is away",
    "recovery": "the first pass after Placement came back, nothing changed",
    "held": "a provider is gone that a guest still uses; the second pass after that",
    "restart": "a new process, nothing changed",
    "claim": "room for one guest is claimed",
    "restart, no mirror": "a new process without anything saved, nothing changed",
    "reshape": "a new process; the VCPUs of the root and of all guests move to two new children",
}
PEERS: tuple[Peer, ...] = ("nova", "agent")
# Passes that read what a change left, and are not counted.
SETTLED = 2


@dataclass(frozen=True)
class Row:
    """What one peer needed for one case on one size."""

    backend: Backend
    providers: int
    consumers: int
    nodes: int
    case: Case
    peer: Peer
    figures: Pass

    @property
    def size(self) -> str:
        """The size in words."""
        return f"N={self.nodes}" if self.nodes > 1 else f"P={self.providers} C={self.consumers}"

    @property
    def key(self) -> str:
        """The name of the case on its size, the same for both peers."""
        return f"{self.backend} {self.size} {self.case}"


@dataclass(frozen=True)
class Size:
    """A tree, and how many guests hold something of it."""

    tree: Tree
    consumers: int = 0
    peers: tuple[Peer, ...] = PEERS


def measure_turns(
    backend: Backend,
    placement: BenchPlacement,
    size: Size,
    nova_python: str,
    folder: Path,
    rounds: int,
) -> Iterator[Row]:
    """Measure both peers in turns, ``rounds`` times, beginning with another one in each round; for
    each case the round with the least time of the processor counts.
    """
    best: dict[tuple[Case, Peer], Pass] = {}
    for number in range(rounds):
        for peer in size.peers[:: -1 if number % 2 else 1]:
            place = folder / f"{backend}-{number}-{peer}"
            subject = Subject(peer, placement, nova_python, place)
            for case, found in _measure(subject, size):
                known = best.get((case, peer))
                if known is None or found.cpu < known.cpu:
                    best[case, peer] = found
            shutil.rmtree(place)
    for (case, peer), found in best.items():
        tree = size.tree
        yield Row(backend, tree.providers, size.consumers, tree.nodes, case, peer, found)


def _measure(subject: Subject, size: Size) -> Iterator[tuple[Case, Pass]]:
    """Yield each case of one peer, on a Placement that is empty at first."""
    subject.placement.reset()
    tree = size.tree
    with subject.running() as process:
        yield "first", _well("first", process.cycle(tree))
        guests = _claim_allocations(subject.placement, size)
        process.keep(guests)
        yield from _changes(subject.placement, process, tree, guests)
    with subject.running() as process:
        yield "restart", _well("restart", process.cycle(tree, guests))
        if tree.nodes == 1:
            process.cycle(tree, guests)
            yield "claim", _well("claim", process.claim(str(uuid.UUID(int=1 << 64))))
    if tree.nodes > 1:
        return
    if not guests:
        shutil.rmtree(subject.folder)
        with subject.running() as process:
            case: Case = "restart, no mirror"
            yield case, _well(case, process.cycle(tree, guests))
    with subject.running() as process:
        yield "reshape", _well("reshape", process.cycle(replace(tree, split=True), guests))
    for guest in guests:
        held = subject.placement.other.allocations(guest)["allocations"]
        assert "VCPU" not in held[ROOT.format(1)]["resources"], f"{guest} was not moved"


def _changes(
    placement: BenchPlacement, process: Running, tree: Tree, guests: Sequence[str]
) -> Iterator[tuple[Case, Pass]]:
    """Yield the cases of a process that goes on; at the end the tree is as before."""
    _settle(process, tree, guests)
    yield "steady", _well("steady", process.cycle(tree, guests))
    grown = replace(tree, grown=True)
    yield "inventory", _well("inventory", process.cycle(grown, guests))
    _settle(process, grown, guests)
    placement.meddle()
    # nova gives the conflict back, and meets the new generation in its next period.
    yield "conflict", process.cycle(tree, guests)
    _settle(process, tree, guests)
    yield "trait", _well("trait", process.cycle(replace(tree, fewer_traits=True), guests))
    _settle(process, tree, guests)
    placement.stop()
    yield "outage", process.cycle(tree, guests)
    placement.start()
    yield "recovery", _well("recovery", process.cycle(tree, guests))
    _settle(process, tree, guests)
    if guests and tree.devices:
        dropped = replace(tree, dropped=True)
        _settle(process, dropped, guests)
        yield "held", process.cycle(dropped, guests)
        _settle(process, tree, guests)


def _settle(process: Running, tree: Tree, guests: Sequence[str]) -> None:
    for _ in range(SETTLED):
        process.cycle(tree, guests)


def _well(case: Case, found: Pass) -> Pass:
    """Return the pass.

    :raises SystemExit: it had errors, so that its figures mean nothing.
    """
    if found.errors:
        raise SystemExit(f"{case}: {'; '.join(found.errors)}")
    return found


def _claim_allocations(placement: BenchPlacement, size: Size) -> Sequence[str]:
    """Give each guest its share of the root, and one function of a device; return the guests.

    The last device is used by the last guest, so that there is one to hold.
    """
    guests = [str(uuid.UUID(int=number + 1)) for number in range(size.consumers)]
    tree = placement.other.tree(ROOT.format(1)) if guests else []
    devices = sorted(
        (row["name"].rpartition("DEVICE")[2].zfill(6), row["uuid"])
        for row in tree
        if "_DEVICE" in row["name"]
    )
    for number, guest in enumerate(reversed(guests)):
        device = devices[-1 - number % len(devices)][1] if devices else None
        share = {device: {"SRIOV_NET_VF": 1}} if device is not None else {}
        placement.other.claim({ROOT.format(1): HELD, **share}, guest)
    return guests
