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
    "first, one in flight",
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
    "first, one in flight": "the same, with one request under way at a time where several may be",
    "steady": "nothing changed",
    "inventory": "one inventory is larger",
    "conflict": "one inventory is larger, and somebody else writes to its provider just before",
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
NOVA_CLAIMS = 73
"""On more providers nova is not asked to claim, which costs it another steady pass."""
MANY_NODES, MANY_PROVIDERS = 100, 1000
"""On more than these only the first, the steady and the restarted pass are measured."""


def size_words(providers: int, consumers: int, nodes: int) -> str:
    """Return a size in words."""
    return f"N={nodes}" if nodes > 1 else f"P={providers} C={consumers}"


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
        return size_words(self.providers, self.consumers, self.nodes)

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

    def __str__(self) -> str:
        return size_words(self.tree.providers, self.consumers, self.tree.nodes)


def measure_turns(
    backend: Backend,
    placement: BenchPlacement,
    size: Size,
    nova_python: str,
    folder: Path,
    rounds: int,
    *,
    count_lines: bool = False,
) -> Iterator[Row]:
    """Measure both peers in turns, ``rounds`` times, beginning with another one in each round; for
    each case the round with the least time of the processor counts.

    ``count_lines``: the agent's cases once more, to count the lines of Python.
    """
    best: dict[tuple[Case, Peer], Pass] = {}
    for number in range(rounds):
        for peer in size.peers[:: -1 if number % 2 else 1]:
            place = folder / f"{size}-{number}-{peer}".replace(" ", "-")
            for case, found in _measure(Subject(peer, placement, nova_python, place), size):
                known = best.get((case, peer))
                if known is None or found.cpu < known.cpu:
                    best[case, peer] = found
    if count_lines:
        place = folder / f"{size}-lines".replace(" ", "-")
        counted = Subject("agent", placement, nova_python, place, count_lines=True)
        for case, found in _measure(counted, size):
            best[case, "agent"] = replace(best[case, "agent"], lines=found.lines)
    tree = size.tree
    for case in MEANINGS:
        for peer in size.peers:
            if (case, peer) in best:
                sized = (tree.providers, size.consumers, tree.nodes)
                yield Row(backend, *sized, case, peer, best[case, peer])


def _measure(subject: Subject, size: Size) -> Iterator[tuple[Case, Pass]]:
    """Yield each case of one peer, on a Placement that is empty at first."""
    tree, placement = size.tree, subject.placement
    all_cases = tree.nodes <= MANY_NODES and tree.providers <= MANY_PROVIDERS
    if subject.peer == "agent" and placement.in_flight > 1 and tree.nodes == 1:
        placement.reset()
        with replace(_elsewhere(subject), in_flight=1).running() as process:
            yield "first, one in flight", _well("first", process.cycle(tree))
    placement.reset()
    with subject.running() as process:
        yield "first", _well("first", process.cycle(tree))
        guests = _claim_allocations(placement, size)
        process.keep(guests)
        process.settle(tree, guests)
    with subject.running() as process:
        # So both know what the guests have moved, and nova meets no conflict with them below.
        yield "restart", _well("restart", process.cycle(tree, guests))
        process.settle(tree, guests)
        yield "steady", _well("steady", process.cycle(tree, guests))
        if all_cases:
            yield from _changes(subject, process, tree, guests)
    if tree.nodes > 1 or not all_cases:
        return
    if not guests and subject.peer == "agent":
        # The reshape below needs what was saved, because it is the proof that the tree is its own.
        with _elsewhere(subject).running() as process:
            case: Case = "restart, no mirror"
            yield case, _well(case, process.cycle(tree, guests))
    with subject.running() as process:
        yield "reshape", _well("reshape", process.cycle(replace(tree, split=True), guests))
    for guest in guests:
        held = placement.other.allocations(guest)["allocations"]
        assert "VCPU" not in held[ROOT.format(1)]["resources"], f"{guest} was not moved"


def _elsewhere(subject: Subject) -> Subject:
    """Return the subject with nothing saved."""
    folder = subject.folder / "elsewhere"
    shutil.rmtree(folder, ignore_errors=True)
    return replace(subject, folder=folder)


def _changes(
    subject: Subject, process: Running, tree: Tree, guests: Sequence[str]
) -> Iterator[tuple[Case, Pass]]:
    """Yield the cases of a process that goes on. Each change is made on top of the one before; the
    last ones are undone, so that what follows begins as this did.
    """
    grown = replace(tree, grown=True)
    yield "inventory", _well("inventory", process.cycle(grown, guests))
    process.settle(grown, guests)
    changed = replace(grown, fewer_traits=True)
    yield "trait", _well("trait", process.cycle(changed, guests))
    process.settle(changed, guests)
    if tree.nodes == 1 and (subject.peer == "agent" or tree.providers <= NOVA_CLAIMS):
        yield "claim", _well("claim", process.claim(str(uuid.UUID(int=1 << 64))))
    with subject.placement.outage():
        yield "outage", process.cycle(changed, guests)
    if subject.peer == "agent":
        yield from _changes_of_agent(subject.placement, process, tree, guests)
    _well("recovery", process.cycle(tree, guests))


def _changes_of_agent(
    placement: BenchPlacement, process: Running, tree: Tree, guests: Sequence[str]
) -> Iterator[tuple[Case, Pass]]:
    """Yield the cases that have a budget, and that cost nova one or several of its passes."""
    changed = replace(tree, grown=True, fewer_traits=True)
    yield "recovery", _well("recovery", process.cycle(changed, guests))
    process.settle(tree, guests)
    placement.meddle()
    grown = replace(tree, grown=True)
    yield "conflict", _well("conflict", process.cycle(grown, guests))
    process.settle(tree, guests)
    if guests and tree.devices:
        dropped = replace(tree, dropped=True)
        process.settle(dropped, guests)
        # A problem is reported, because the device is in use.
        yield "held", process.cycle(dropped, guests)
        process.settle(tree, guests)


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
