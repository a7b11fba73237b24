"""What a host of a walk is built of, and the wrong answers that its driver may give."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent.errors import NotReady
from agent.model.facts import CpuFacts, HostFacts, Section, Topology
from tests.support.compute_host import GPU, UNITS, VF

CARD, FUNCTIONS, GPUS = "F3", ("V30", "V31", "V32", "V33"), ("P0", "P1")
NAMESPACES = ("ns_0", "ns_1", "ns_2")
CLASS_OF = {
    **dict.fromkeys(FUNCTIONS, VF),
    **dict.fromkeys(GPUS, GPU),
    **dict.fromkeys(NAMESPACES, UNITS),
}
"""What counts each device and unit."""


@dataclass(frozen=True)
class Machine:
    """The CPUs of each cell, those of them for dedicated guest CPUs, and the devices and units that
    the host does not have.
    """

    cells: tuple[frozenset[int], ...] = (frozenset(range(16)), frozenset(range(16, 32)))
    dedicated: tuple[frozenset[int], ...] = (frozenset(range(4, 16)), frozenset(range(20, 32)))
    absent: frozenset[str] = frozenset()

    @property
    def shared(self) -> frozenset[int]:
        """The CPUs for shared guest CPUs."""
        return frozenset().union(*self.cells) - frozenset().union(*self.dedicated)


def random_machine(dice: random.Random) -> Machine:
    """One to four cells, each with room for the largest pinned guest of a walk."""
    cells, dedicated, first = [], [], 0
    for _ in range(dice.randint(1, 4)):
        size = dice.choice([8, 12, 16, 24])
        cells.append(frozenset(range(first, first + size)))
        # The first cell has some, because a host without shared CPUs takes no plain guest.
        kept = dice.randint(2 if first == 0 else 0, size - 4)
        dedicated.append(frozenset(range(first + kept, first + size)))
        first += size
    absent = frozenset(one for one in sorted(CLASS_OF) if dice.random() < 0.2)
    return Machine(tuple(cells), tuple(dedicated), absent)


SECTIONS: tuple[Section, ...] = ("cpu", "memory", "disk", "numa", "pci", "units", "domains")


@dataclass(frozen=True)
class Lie:
    """A wrong answer: facts that say of ``sections`` that they are incomplete, and tell ``missing``
    or too little of them; facts that cannot be; an exception; or no node at all.
    """

    kind: Literal["partial", "nonsense", "raises", "bug", "no-nodes", "nodes-raise"]
    sections: tuple[Section, ...] = ()
    missing: bool = True

    def told(self, facts: HostFacts) -> HostFacts:
        """What the driver tells instead of these facts."""
        if self.kind == "raises":
            raise NotReady("the hypervisor does not answer", "wait")
        if self.kind == "bug":
            raise KeyError("the driver has a bug")
        if self.kind == "nonsense":
            return replace(facts, **_NONSENSE[self.sections[0]])
        if self.kind == "partial":
            wrong: dict[str, Any] = {}
            for section in self.sections:
                wrong |= _damaged(facts, section, missing=self.missing)
            return replace(facts, incomplete=dict.fromkeys(self.sections, "no answer"), **wrong)
        return facts

    def nodes(self, found: dict[str, str]) -> dict[str, str]:
        """What the driver tells instead of these nodes."""
        if self.kind == "nodes-raise":
            raise NotReady("the hypervisor does not answer", "wait")
        return {} if self.kind == "no-nodes" else found


_NONSENSE: Mapping[Section, dict[str, Any]] = {
    "cpu": {"cpu": CpuFacts(frozenset({-1}))},
    "memory": {"memory_mib": -1},
    "disk": {"disk_gib": math.nan},
    "numa": {"numa": "two cells"},
    "pci": {"pci": ({"address": "0000:81:00.0"},)},
    "units": {"units": [None]},
    "domains": {"domains": 7},
}


def _damaged(facts: HostFacts, section: Section, *, missing: bool) -> dict[str, Any]:
    """A section that was not read, or not wholly."""
    if section == "cpu":
        some = facts.cpu and CpuFacts(frozenset(sorted(facts.cpu.online)[::2]))
        return {"cpu": None if missing else some}
    if section == "memory":
        return {"memory_mib": None if missing else (facts.memory_mib or 0) // 2}
    if section == "disk":
        return {"disk_gib": None if missing else (facts.disk_gib or 0) // 2}
    if section == "numa":
        return {"numa": None if missing else facts.numa and Topology(facts.numa.cells[1:])}
    found = getattr(facts, section) or ()
    return {section: None if missing else tuple(found)[1:]}


def random_lie(dice: random.Random) -> Lie:
    """Any of them; facts that are incomplete as often as all others together."""
    kinds = ["partial"] * 5 + ["nonsense", "raises", "bug", "no-nodes", "nodes-raise"]
    kind = dice.choice(kinds)
    sections = tuple(dice.sample(SECTIONS, 1 if kind == "nonsense" else dice.randint(1, 3)))
    return Lie(kind, sections, dice.random() < 0.5)  # type: ignore[arg-type]
