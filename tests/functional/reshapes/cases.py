"""The reshapes, each as two layouts of a host full of guests, and a place that
keeps hosts in them.
"""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from tests.functional.reshapes.reshape_host import (
    CONTEXT,
    FLOATING,
    MIXED,
    STRICT,
    VGPU,
    Kept,
    Layout,
    ReshapeHost,
    populated,
)
from tests.support.placement import PlacementServer

MANY, FEW = 100, 12
_NESTED, _DEVICES = Layout(pages=True), Layout(devices=True)
_FLAT = replace(_NESTED, nested=False)
_STRICT = replace(_NESTED, strict=True)

Guests = Literal["mixed", "strict", "floating"]
FLAVORS = {"mixed": MIXED, "strict": STRICT, "floating": (FLOATING,)}
BASES = {"mixed": _NESTED, "strict": _STRICT, "floating": _DEVICES}
"""In which layout the guests come; from there all others are reached."""

Way = Literal["there", "back"]


@dataclass(frozen=True)
class Case:
    """``old`` and ``new``: what the operator says before and after; ``back``: whether there is a
    way back.
    """

    old: Layout
    new: Layout
    guests: Guests = "mixed"
    back: bool = True

    def ends(self, way: Way) -> tuple[Layout, Layout]:
        """From where to where."""
        return (self.old, self.new) if way == "there" else (self.new, self.old)


REQUIRED = {
    "R1": Case(replace(_NESTED, on_root=frozenset({VGPU})), _NESTED),
    "R2": Case(replace(_FLAT, sets=False), _FLAT),
    "R3": Case(replace(_NESTED, on_root=frozenset({CONTEXT})), _NESTED),
    "R4": Case(_FLAT, _STRICT, "strict"),
    "R5": Case(_DEVICES, replace(_DEVICES, reported=True), "floating", back=False),
    "R6": Case(_NESTED, replace(_NESTED, shared=True)),
}
ALL_AT_ONCE = Case(
    replace(_FLAT, sets=False, on_root=frozenset({VGPU, CONTEXT})),
    replace(_STRICT, shared=True),
    "strict",
)
_STRICT_WITHOUT = replace(_STRICT, sets=False)
MORE = {
    "R4 mixed": Case(_FLAT, _NESTED),
    "R4 strict": Case(_NESTED, _STRICT, "strict"),
    "all at once": ALL_AT_ONCE,
    "R4 without sets": Case(replace(_FLAT, sets=False), _STRICT_WITHOUT, "strict"),
    "R2 strict": Case(_STRICT_WITHOUT, _STRICT, "strict"),
    "R2 and R4": Case(_STRICT_WITHOUT, _FLAT, "strict"),
}


def beside(case: Case) -> pytest.MarkDecorator:
    """Have tests with the same guests in one process, which makes them once."""
    return pytest.mark.xdist_group(f"reshapes of {case.guests} guests")


def ways(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """Parameters ``case`` and ``way``: each case both ways, where it has two."""
    found = [
        pytest.param(case, way, id=f"{name} {way}", marks=beside(case))
        for name, case in cases.items()
        for way in ("back", "there")
        if way == "there" or case.back
    ]
    return pytest.mark.parametrize(("case", "way"), found)


class States:
    """Hosts with guests, each made once: in the layout in which the guests came, and from there in
    any other.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self._kept: dict[tuple[Guests, Layout, int], Kept] = {}

    def host(
        self, guests: Guests, layout: Layout, count: int, placement: PlacementServer, folder: Path
    ) -> ReshapeHost:
        """A host with ``count`` consumers in ``layout``."""
        if (guests, layout, count) not in self._kept:
            self._make(guests, layout, count)
        return self._kept[guests, layout, count].back(placement, folder)

    def keep(self, guests: Guests, count: int, host: ReshapeHost) -> None:
        """Have a host that came to its layout undisturbed for the next who wants it so."""
        if (guests, host.layout, count) not in self._kept:
            self._kept[guests, host.layout, count] = Kept.of(
                host, self._folder / f"kept-{next(self._numbers)}"
            )

    def _make(self, guests: Guests, layout: Layout, count: int) -> None:
        placement, folder = PlacementServer(), self._folder / f"made-{next(self._numbers)}"
        if layout == BASES[guests]:
            made = populated(placement, folder, layout, FLAVORS[guests], count)
        else:
            made = self.host(guests, BASES[guests], count, placement, folder)
            report = made.start(layout).once()
            assert (report.errors, made.held()) == ((), made.wanted(layout))
        self.keep(guests, count, made)
        placement.close()
