"""A change that comes while the agent runs moves nothing of what is held; the next start does."""

import pytest

from tests.functional.reshapes.cases import FEW, REQUIRED, Case, ways
from tests.functional.reshapes.reshape_host import Layout, ReshapeHost
from tests.support.agent import ROOT

pytestmark = pytest.mark.parametrize("count", [FEW])


@pytest.mark.long
@ways({name: case for name, case in REQUIRED.items() if name in ("R1", "R3", "R4")})
def test_another_layout_waits_for_the_next_start(host: ReshapeHost, goal: Layout) -> None:
    before = host.placement.dump()
    agent = host.start(goal)
    for _ in range(2):
        report = agent.cycle()
        assert (report.state, [error.code for error in report.errors]) == (
            "failed",
            ["reshape.needed"],
        )
    assert (host.placement.dump(), host.placement.writes()) == (before, [])


@pytest.mark.parametrize(("case", "way"), [(REQUIRED["R6"], "there")], ids=["R6"])
def test_storage_that_begins_to_be_shared_leaves_what_is_used_on_the_root_until_then(
    host: ReshapeHost, goal: Layout, case: Case
) -> None:
    agent = host.start(asking=True)
    assert agent.cycle(start=True).state == "in-sync"
    host.share(True)
    report = agent.cycle()
    disk = host.placement.other.inventory(ROOT)["DISK_GB"]
    assert (report.errors, disk["reserved"], host.held()) == (
        (),
        disk["total"],
        host.wanted(case.old),
    )
    assert {one.kind for one in report.drift} == {"held-device"}
    started = host.start(goal, asking=True)
    assert (started.cycle(start=True).errors, host.held()) == ((), host.wanted(goal))
    # What was held goes when it is seen that nobody uses it any more.
    assert started.cycle().errors == ()
    assert "DISK_GB" not in host.placement.other.inventory(ROOT)
