"""A child that cannot be made, moved or renamed keeps nothing back but what depends on it; and one
that somebody moved comes back.
"""

from typing import Any

import pytest

from agent.model.finding import CHANGED, PARTLY
from agent.model.names import ProviderUuid, child_uuid
from agent.model.provider_tree import ProviderTree
from agent.model.report import exit_code
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import NAME, ROOT, new_uuid, shaped, total
from tests.support.placement import PlacementServer
from tests.support.settled import Want, node, settled

VCPU = {"VCPU": total(16)}
GPU = {"VGPU": total(2)}
VF = {"SRIOV_NET_VF": total(4)}
N0, N1, PF0 = (child_uuid(ROOT, name) for name in ("N0", "N1", "PF0"))
CHILDREN = {"N0": (NAME, GPU), "N1": (NAME, GPU), "PF0": ("N0", VF)}

pytestmark = pytest.mark.usefixtures("short_waits")


def has(placement: PlacementServer, name: str) -> dict[str, Any]:
    found = [one for one in placement.dump()["providers"].values() if one["name"] == name]
    assert len(found) == 1
    return found[0]["inventories"]


def statuses(report: Any) -> dict[tuple[str, str], str]:
    return {
        (one.operation.op, one.operation.provider.name): one.status
        for one in report.outcomes
        if one.operation.provider
    }


@pytest.mark.parametrize("dry_run_first", [False, True])
def test_a_child_whose_name_is_taken_does_not_stop_the_others(
    dry_run_first: bool, host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU))
    agent.once()
    holder = placement.other.create_provider("N0")
    agent.driver.script = shaped({"VCPU": total(18)}, CHILDREN, traits={"N1": ["HW_NUMA_ROOT"]})
    if dry_run_first:
        placement.clear()
        planned = agent.once(dry_run=True)
        assert placement.writes() == []
    report = agent.once()
    assert (report.state, report.attempts, exit_code([report])) == ("degraded", 1, PARTLY)
    assert [one.code for one in report.errors] == ["placement.name-conflict"]
    assert holder in report.errors[0].message
    assert [(one.kind, one.provider) for one in report.drift if one.kind == "name-conflict"] == [
        ("name-conflict", N0)
    ]
    assert statuses(report) == {
        ("create-provider", "N0"): "failed",
        ("create-provider", "PF0"): "skipped",
        ("create-provider", "N1"): "done",
        ("set-inventory", "N0"): "skipped",
        ("set-inventory", "PF0"): "skipped",
        ("set-inventory", "N1"): "done",
        ("set-inventory", NAME): "done",
        ("set-traits", "N1"): "done",
    }
    assert (has(placement, NAME), has(placement, "N1"), has(placement, "N0")) == (
        {"VCPU": total(18)},
        GPU,
        {},
    )
    if dry_run_first:
        # It prints what the run did.
        assert planned.errors == report.errors
        assert planned.state == "degraded"
        assert {
            key: "done" if status == "planned" else status
            for key, status in statuses(planned).items()
        } == statuses(report)
    # The same in every pass, until the name is free.
    again = agent.once()
    assert (again.state, exit_code([again]), [one.code for one in again.errors]) == (
        "degraded",
        PARTLY,
        ["placement.name-conflict"],
    )
    placement.other.delete_provider(holder)
    assert agent.once().state == "changed"
    assert (has(placement, "N0"), has(placement, "PF0")) == (GPU, VF)


def test_a_child_that_placement_refuses_does_not_stop_the_others_in_any_pass(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU))
    agent.cycle(start=True)
    refusing = placement.faults.add(faults.before(lambda _: None), method="POST", path="^/nowhere")
    assert refusing.hits == 0
    # The first of the two is refused for what it is.
    placement.faults.add(faults.answer(400), method="POST", path="^/resource_providers$")
    agent.driver.script = shaped({"VCPU": total(18)}, CHILDREN)
    first = agent.cycle()
    assert (first.state, first.attempts) == ("degraded", 1)
    assert statuses(first)["set-inventory", NAME] == "done"
    stopped = {
        name
        for (op, name), status in statuses(first).items()
        if op == "create-provider" and status == "failed"
    }
    agent.driver.script = shaped({"VCPU": total(20)}, CHILDREN)
    second = agent.cycle()
    assert [one for one in second.errors if one.code == "agent.bug"] == []
    assert (has(placement, NAME), second.state) == ({"VCPU": total(20)}, "degraded")
    assert len(stopped) == 1


def test_a_name_that_placement_refuses_stops_only_what_has_it(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU))
    agent.once()
    placement.faults.add(faults.answer(400), method="PUT", path="^/traits/CUSTOM_ODD", times=None)
    agent.driver.script = shaped(
        {"VCPU": total(18)}, CHILDREN, traits={"N1": ["CUSTOM_ODD"], "N0": ["CUSTOM_EVEN"]}
    )
    report = agent.once()
    assert (report.state, exit_code([report])) == ("degraded", PARTLY)
    done = statuses(report)
    assert {key for key, status in done.items() if status == "skipped"} == {("set-traits", "N1")}
    assert {"CUSTOM_EVEN"} <= placement.other.traits(N0)


def test_a_child_that_cannot_be_renamed_back_does_not_stop_the_others(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU, CHILDREN))
    agent.once()
    placement.other.rename(N1, "N1-renamed")
    holder = placement.other.create_provider("N1")
    grown = {**CHILDREN, "N0": (NAME, {"VGPU": total(3)})}
    agent.driver.script = shaped(VCPU, grown)
    report = agent.once()
    assert (report.state, report.attempts, [one.code for one in report.errors]) == (
        "degraded",
        1,
        ["placement.name-conflict"],
    )
    assert holder in report.errors[0].message
    assert report.errors[0].remedy
    assert exit_code([report]) == PARTLY
    assert has(placement, "N0") == {"VGPU": total(3)}
    planned = agent.once(dry_run=True)
    assert [one.code for one in planned.errors] == ["placement.name-conflict"]
    placement.other.delete_provider(holder)
    assert agent.once().state == "changed"
    assert has(placement, "N1") == GPU


def test_a_child_that_cannot_be_moved_does_not_stop_the_others(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU, CHILDREN))
    agent.once()
    before = placement.dump()
    # PF0 belongs under N1 from now on, and N0 is to go.
    placement.faults.add(
        faults.answer(400), method="PUT", path=f"^/resource_providers/{PF0}$", times=None
    )
    agent.driver.script = shaped({"VCPU": total(18)}, {"N1": (NAME, GPU), "PF0": ("N1", VF)})
    report = agent.once()
    assert (report.state, report.attempts) == ("degraded", 1)
    assert has(placement, NAME) == {"VCPU": total(18)}
    left = placement.dump()["providers"]
    assert left[PF0]["parent"] == before["providers"][PF0]["parent"] == N0
    placement.faults.clear()
    assert agent.once().state == "changed"
    assert placement.dump()["providers"][PF0]["parent"] == N1
    assert N0 not in placement.dump()["providers"]


@pytest.mark.long
@pytest.mark.parametrize("elsewhere", ["nowhere", "another tree", "another tree, renamed"])
@pytest.mark.parametrize("dry_run_first", [False, True])
def test_a_child_of_ours_that_somebody_took_out_of_the_tree_is_put_back(
    dry_run_first: bool,
    elsewhere: str,
    host: Host,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent = host(shaped(VCPU, CHILDREN))
    agent.once()
    consumer = placement.other.claim({PF0: {"SRIOV_NET_VF": 1}, N0: {"VGPU": 1}})
    before = placement.dump()
    other_root = placement.other.create_provider("other-host") if "another" in elsewhere else None
    placement.other.reparent(N0, other_root)
    if "renamed" in elsewhere:
        placement.other.rename(N0, "N0-renamed")
    if dry_run_first:
        planned = agent.once(dry_run=True)
        assert ("reparent-provider", "N0") in statuses(planned)
        assert ("create-provider", "N0") not in statuses(planned)
    report = agent.once()
    assert (report.state, report.errors) == ("changed", ())
    assert statuses(report)["reparent-provider", "N0"] == "done"
    if other_root:
        placement.other.delete_provider(other_root)
    assert placement.dump()["consumers"][consumer] == before["consumers"][consumer]
    want = {NAME: node(VCPU), "N0": Want(GPU, NAME), "N1": Want(GPU, NAME), "PF0": Want(VF, "N0")}
    settled(agent, placement, agent_log, want, before=before)


def test_a_foreign_provider_with_the_uuid_of_a_childs_own_is_not_moved(
    host: Host, placement: PlacementServer
) -> None:
    uuid = new_uuid()

    def shape(tree: ProviderTree) -> None:
        tree.update_inventory(tree.roots[0].uuid, VCPU)
        tree.new_child("card", tree.roots[0].uuid, uuid=uuid)
        tree.update_inventory("card", GPU)

    theirs = placement.other.create_provider("theirs", uuid)
    agent = host(shape)
    report = agent.once()
    assert (report.state, [one.code for one in report.errors]) == (
        "degraded",
        ["placement.identity-conflict"],
    )
    assert agent.once(dry_run=True).errors == report.errors
    assert placement.dump()["providers"][theirs]["parent"] is None
    assert has(placement, NAME) == VCPU


# --- a child of ours whose name somebody else's has by now ----------------------------------------


def with_uuid(tree: ProviderTree) -> None:
    """As a driver does that gives its children uuids of its own."""
    if not tree.exists("N0"):
        tree.new_child("N0", tree.roots[0].uuid, uuid=OWN)
    shaped(VCPU, {"N0": (NAME, GPU)})(tree)


OWN = ProviderUuid("0a0a0a0a-7d1e-4a8b-9c46-000000000001")
SHAPES = {N0: shaped(VCPU, {"N0": (NAME, GPU)}), OWN: with_uuid}


@pytest.mark.long
@pytest.mark.parametrize(
    ("ours", "way_out"),
    [(N0, "delete"), (N0, "rename"), (N0, "adopt"), (OWN, "delete"), (OWN, "rename")],
)
def test_a_child_of_ours_that_somebody_replaced_is_not_told_to_be_in_sync(
    way_out: str, ours: ProviderUuid, host: Host, placement: PlacementServer
) -> None:
    agent = host(SHAPES[ours])
    agent.once()
    placement.other.delete_provider(ours)
    theirs = placement.other.create_provider("N0", parent=ROOT)
    # In every pass, of this process and of the next.
    for following in (agent.cycle, agent.cycle, agent.once, lambda: agent.once(dry_run=True)):
        report = following()
        assert (report.state, [one.code for one in report.errors]) == (
            "degraded",
            ["placement.name-conflict"],
        )
        assert theirs in report.errors[0].message
        assert [(one.kind, one.provider) for one in report.drift] == [("name-conflict", ours)]
        assert ("--adopt" in report.errors[0].remedy) == (ours == N0)
        assert exit_code([report]) == PARTLY
    assert has(placement, "N0") == {}
    if way_out == "delete":
        placement.other.delete_provider(theirs)
    elif way_out == "rename":
        placement.other.rename(theirs, "theirs")
    report = agent.once(adopt=way_out == "adopt")
    assert (report.state, report.errors) == ("changed", ())
    assert has(placement, "N0") == GPU
    assert (agent.once().state, theirs in agent.once().owned) == ("in-sync", way_out == "adopt")


def made_anew(tree: ProviderTree) -> None:
    """As a driver does that never asks."""
    root = tree.roots[0].uuid
    tree.update_inventory(root, VCPU)
    tree.new_child("N0", root)
    tree.update_inventory("N0", GPU)


def test_a_driver_that_makes_a_child_that_is_there_is_told_which_and_whose(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(made_anew)
    assert (agent.once().state, agent.once().state) == ("changed", "in-sync")
    placement.other.delete_provider(N0)
    theirs = placement.other.create_provider("N0", parent=ROOT)
    report = agent.once()
    assert (report.state, [one.code for one in report.errors]) == (
        "failed",
        ["placement.name-conflict"],
    )
    assert theirs in report.errors[0].message
    assert "ValueError" not in report.errors[0].message
    assert "delete or rename" in report.errors[0].remedy
    assert [one.kind for one in report.drift] == ["name-conflict"]
    placement.other.rename(theirs, "theirs")
    assert agent.once().state == "changed"


def test_a_driver_that_makes_a_child_twice_is_told_so(host: Host) -> None:
    def twice(tree: ProviderTree) -> None:
        made_anew(tree)
        made_anew(tree)

    report = host(twice).once()
    assert (report.state, [one.code for one in report.errors]) == ("failed", ["driver.failed"])
    assert "calls new_child() for 'N0'" in report.errors[0].message
    assert "exists()" in report.errors[0].remedy


# --- whose a provider is, is a matter of values ---------------------------------------------------


def written_back(tree: ProviderTree) -> None:
    """As a driver does that goes over all that it finds."""
    shaped(VCPU)(tree)
    for uuid in tree.get_provider_uuids(ROOT):
        found = tree.data(uuid)
        tree.update_inventory(uuid, found.inventory)
        tree.update_traits(uuid, found.traits)
        tree.update_aggregates(uuid, found.aggregates)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_foreign_provider_that_a_driver_writes_back_unchanged_is_neither_told_nor_taken_over(
    adopt: bool, host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU))
    agent.once()
    theirs = placement.other.create_provider("BW", parent=ROOT)
    placement.other.set_inventory(theirs, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000})
    placement.other.set_traits(theirs, ["CUSTOM_PHYSNET_A"])
    agent.driver.script = written_back
    report = agent.once(adopt=adopt)
    assert [(one.kind, one.severity) for one in report.drift] == [("foreign-provider", "info")]
    assert report.owned == {ROOT}
    agent.driver.script = shaped(VCPU)
    assert agent.once().state == "in-sync"
    assert theirs in placement.dump()["providers"]


# --- a root that is none any more -----------------------------------------------------------------


def test_a_root_that_somebody_put_below_another_provider_is_told_in_every_pass(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped(VCPU, CHILDREN))
    agent.once()
    rack = placement.other.create_provider("rack")
    placement.other.reparent(ROOT, rack)
    for following in (agent.cycle, agent.cycle, agent.once, lambda: agent.once(dry_run=True)):
        placement.clear()
        report = following()
        (drift,) = report.drift
        assert (report.state, drift.kind, drift.severity, drift.provider) == (
            "in-sync",
            "identity",
            "warning",
            ROOT,
        )
        assert rack in drift.detail
        assert "parent_provider_uuid null" in drift.remedy
        assert exit_code([report], detailed=True) == CHANGED
        assert placement.count() == 1
    # What the node has goes on being told.
    agent.driver.script = shaped({"VCPU": total(18)}, CHILDREN)
    assert agent.once().state == "changed"
    placement.other.reparent(ROOT, None)
    assert (agent.once().drift, agent.once().state) == ((), "in-sync")
