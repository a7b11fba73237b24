"""From any layout to any other, with trouble on the way: what everybody holds follows from where he
is now, not from how he came there.
"""

import random
from pathlib import Path

import pytest

from tests.functional.reshapes.cases import BASES, FEW, States
from tests.functional.reshapes.reshape_host import CONTEXT, VGPU, Layout
from tests.support import faults
from tests.support.crashes import Crash, crash
from tests.support.placement import PlacementServer

pytestmark = pytest.mark.long

STEPS = 8
TROUBLE = [
    None,
    None,
    faults.answer(409, "placement.concurrent_update"),
    faults.cut(applied=True),
    faults.before(crash),
    faults.after(crash),
]


def any_layout(dice: random.Random) -> Layout:
    return Layout(
        nested=dice.random() < 0.6,
        strict=dice.random() < 0.6,
        pages=True,
        sets=dice.random() < 0.6,
        shared=dice.random() < 0.4,
        on_root=frozenset(name for name in (VGPU, CONTEXT) if dice.random() < 0.4),
    )


@pytest.mark.xdist_group("reshapes of strict guests")
@pytest.mark.parametrize("seed", [1, 2])
def test_where_everybody_is_does_not_depend_on_the_way(
    seed: int, states: States, placement: PlacementServer, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    host = states.host("strict", BASES["strict"], FEW, placement, tmp_path / "state")
    for _ in range(STEPS):
        layout, trouble = any_layout(dice), dice.choice(TROUBLE)
        if trouble is not None:
            placement.faults.add(trouble, method="POST", path="^/reshaper")
        try:
            report = host.start(layout, asking=True).once()
        except Crash:
            report = host.start(layout, asking=True).once()
        placement.faults.clear()
        assert (report.errors, host.held()) == ((), host.wanted(layout)), layout
        placement.clear()
        report = host.start().once()
        assert (report.state, report.drift, placement.writes()) == ("in-sync", (), []), layout
    host.stop()
