"""Providers that the node no longer has, and those that vanish by
themselves.
"""

import logging

import pytest

from agent.model.finding import CHANGED, DONE
from agent.model.provider_tree import ProviderTree
from agent.model.report import exit_code
from tests.functional.placement.conftest import N0, PF0, Host, seen
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, shaped, total
from tests.support.placement import PlacementServer
from tests.support.settled import Want, node, settled

ROOT_INVENTORY = {"VCPU": total(16)}
NAMES = {ROOT: "R", N0: "N0", PF0: "PF0"}
VF = {"SRIOV_NET_VF": total(4)}
CHILDREN = {"N0": (NAME, {}), "PF0": ("N0", VF)}
PF_TRAITS = {"PF0": ["HW_NIC_OFFLOAD_GRO", "CUSTOM_PHYSNET_A"]}
WITH_CHILDREN = {
    NAME: node(ROOT_INVENTORY),
    "N0": Want({}, NAME),
    "PF0": Want(VF, "N0", PF_TRAITS["PF0"]),
}
DELETED = "somebody deleted providers of the agent's ({}); those that the node has are made again"

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def nested(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """R -> N0 -> PF0, just synchronised."""
    agent = host(shaped(ROOT_INVENTORY, CHILDREN, traits=PF_TRAITS))
    agent.cycle(start=True)
    placement.clear()
    return agent


def read(*names: str) -> list[str]:
    return [f"GET {what} {name} -> 200" for name in names for what in ("inv", "ag", "tr")]


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in log.records if one.levelno == logging.WARNING]


def test_children_are_deleted_before_their_parents(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    before = placement.dump()
    nested.driver.script = shaped(ROOT_INVENTORY)
    assert nested.cycle().state == "changed"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "DELETE RP PF0 -> 204",
        "DELETE RP N0 -> 204",
    ]
    assert [
        one.getMessage()
        for one in agent_log.records
        if one.levelno == logging.INFO and "deleted" in one.getMessage()
    ] == [
        f"deleted provider PF0 ({PF0})",
        f"deleted provider N0 ({N0})",
    ]
    settled(nested, placement, agent_log, {}, before=before, gone={"N0", "PF0"})


def test_a_provider_in_use_is_held_and_everything_else_goes_on(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    consumer = placement.other.claim({PF0: {"SRIOV_NET_VF": 1}, ROOT: {"VCPU": 2}})
    before = placement.dump()
    g = {name: before["providers"][uuid]["generation"] for uuid, name in NAMES.items()}
    grown = {"VCPU": total(18)}
    nested.driver.script = shaped(grown)
    report = nested.cycle()
    # One pass, two plans: the second, on a fresh structure, holds what the first could not delete.
    # N0 is not even tried.
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        *read("R", "PF0"),
        "GET al R -> 200",
        "GET al PF0 -> 200",
        "DELETE RP PF0 -> 409",
        f"PUT inv R g{g['R']} -> 200",
        "GET in_tree=R -> 200",
        "GET al PF0 -> 200",
        f"PUT inv PF0 g{g['PF0']} -> 200",
    ]
    assert placement.requests[-1].body["inventories"] == {"SRIOV_NET_VF": total(4, reserved=4)}
    # Held is how it has to be: so it is told in this pass and in every other.
    assert (report.state, report.errors, {one.status for one in report.outcomes}) == (
        "changed",
        (),
        {"done"},
    )
    assert [(one.kind, one.provider) for one in report.drift] == [
        ("held-device", PF0),
        ("orphaned-allocation", None),
    ]
    assert placement.dump()["consumers"] == before["consumers"]

    placement.clear()
    report = nested.cycle()
    assert report.state == "in-sync"
    assert [one.kind for one in report.drift] == ["held-device", "orphaned-allocation"]
    assert seen(placement) == ["GET in_tree=R -> 200", "GET al PF0 -> 200"]

    placement.other.release(consumer)
    before = placement.dump()
    placement.clear()
    assert nested.cycle().state == "changed"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "GET al PF0 -> 200",
        # The consumer may have given back more than that.
        "GET al R -> 200",
        "DELETE RP PF0 -> 204",
        "DELETE RP N0 -> 204",
    ]
    settled(
        nested,
        placement,
        agent_log,
        {NAME: node(grown)},
        before=before,
        gone={"N0", "PF0"},
        consumers={},
    )


def test_what_is_held_is_held_over_a_restart(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    consumer = placement.other.claim({PF0: {"SRIOV_NET_VF": 1}})
    nested.driver.script = shaped(ROOT_INVENTORY)
    nested.once()
    placement.clear()
    assert nested.once().state == "in-sync"
    assert seen(placement) == ["GET in_tree=R -> 200", "GET al PF0 -> 200"]
    placement.other.release(consumer)
    before = placement.dump()
    assert nested.once().state == "changed"
    settled(nested, placement, agent_log, {}, before=before, gone={"N0", "PF0"}, consumers={})


def test_a_held_provider_that_comes_back_is_given_free_again(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.other.claim({PF0: {"SRIOV_NET_VF": 1}})
    script = nested.driver.script
    nested.driver.script = shaped(ROOT_INVENTORY)
    nested.cycle()
    nested.driver.script = script
    before = placement.dump()
    report = nested.cycle()
    assert (report.state, [one.kind for one in report.drift]) == (
        "changed",
        ["orphaned-allocation"],
    )
    placement.clear()
    settled(nested, placement, agent_log, WITH_CHILDREN, before=before)


def test_a_delete_whose_answer_was_lost_is_no_error_in_the_next_cycle(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    before = placement.dump()
    nested.driver.script = shaped(ROOT_INVENTORY)
    lost = placement.faults.add(faults.read_timeout(applied=True), method="DELETE", path=PF0)
    assert nested.cycle().state == "degraded"
    assert lost.hits == 1
    placement.clear()
    agent_log.clear()
    report = nested.cycle()
    assert (report.state, report.errors) == ("changed", ())
    assert seen(placement) == ["GET in_tree=R -> 200", "DELETE RP N0 -> 204"]
    assert warnings(agent_log) == [], "our own delete is taken for somebody else's"
    settled(nested, placement, agent_log, {}, before=before, gone={"N0", "PF0"})


def test_a_delete_whose_answer_was_lost_before_a_restart(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    before = placement.dump()
    nested.driver.script = shaped(ROOT_INVENTORY)
    placement.faults.add(faults.read_timeout(applied=True), method="DELETE", path=PF0)
    assert nested.once().state == "degraded"
    agent_log.clear()
    assert nested.once().state == "changed"
    assert warnings(agent_log) == []
    settled(nested, placement, agent_log, {}, before=before, gone={"N0", "PF0"})


def test_a_delete_that_was_not_applied_is_sent_again(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    before = placement.dump()
    nested.driver.script = shaped(ROOT_INVENTORY)
    placement.faults.add(faults.read_timeout(), method="DELETE", path=PF0)
    assert nested.cycle().state == "degraded"
    placement.clear()
    assert nested.cycle().state == "changed"
    assert [line for line in seen(placement) if line.startswith("DELETE")] == [
        "DELETE RP PF0 -> 204",
        "DELETE RP N0 -> 204",
    ]
    settled(nested, placement, agent_log, {}, before=before, gone={"N0", "PF0"})


def test_a_delete_of_what_is_gone_already_is_a_success(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    before = placement.dump()
    nested.driver.script = shaped(ROOT_INVENTORY)
    placement.faults.add(
        faults.before(lambda _: placement.other.delete_provider(PF0)), method="DELETE", path=PF0
    )
    report = nested.cycle()
    assert (report.state, report.attempts) == ("changed", 1)
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "DELETE RP PF0 -> 404",
        "DELETE RP N0 -> 204",
    ]
    settled(nested, placement, agent_log, {}, before=before, gone={"N0", "PF0"})


def test_a_child_deleted_behind_our_back_is_made_again_with_its_uuid_and_contents(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.other.delete_provider(PF0)
    before = placement.dump()
    report = nested.cycle()
    assert (report.state, report.attempts) == ("changed", 1)
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "POST RP PF0 under N0 -> 200",
        "PUT inv PF0 g0 -> 200",
        "PUT tr PF0 g1 -> 200",
    ]
    assert warnings(agent_log) == [DELETED.format("PF0")]
    settled(nested, placement, agent_log, {"PF0": WITH_CHILDREN["PF0"]}, before=before)


def test_a_child_with_a_uuid_of_the_drivers_own_gets_it_back(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    chosen = new_uuid()

    def shape(tree: ProviderTree) -> None:
        shaped(ROOT_INVENTORY)(tree)
        tree.new_child("PF0", NAME, chosen)

    agent = host(shape)
    agent.cycle(start=True)
    placement.other.delete_provider(chosen)
    agent.cycle()
    assert placement.other.provider(chosen)["name"] == "PF0"
    settled(agent, placement, agent_log, {NAME: node(ROOT_INVENTORY), "PF0": Want({}, NAME)})


def test_a_child_deleted_between_reading_and_writing_is_made_again_in_the_same_cycle(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    more = {"SRIOV_NET_VF": total(8)}
    nested.driver.script = shaped(
        ROOT_INVENTORY, {**CHILDREN, "PF0": ("N0", more)}, traits=PF_TRAITS
    )
    placement.faults.add(
        faults.before(lambda _: placement.other.delete_provider(PF0)), method="PUT", path=PF0
    )
    before = placement.dump()
    report = nested.cycle()
    assert (report.state, report.attempts) == ("changed", 2)
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "PUT inv PF0 g2 -> 404",
        "GET in_tree=R -> 200",
        "POST RP PF0 under N0 -> 200",
        "PUT inv PF0 g0 -> 200",
        "PUT tr PF0 g1 -> 200",
    ]
    settled(
        nested, placement, agent_log, {"PF0": Want(more, "N0", PF_TRAITS["PF0"])}, before=before
    )


def test_a_whole_tree_deleted_behind_our_back_is_made_again_and_told(
    nested: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    other = placement.other
    other.set_traits(ROOT, other.traits(ROOT) | {"CUSTOM_RACK7"})
    aggregate = new_uuid()
    other.set_aggregates(ROOT, [aggregate])
    nested.cycle()
    for uuid in (PF0, N0, ROOT):
        other.delete_provider(uuid)
    before = placement.dump()
    placement.clear()
    agent_log.clear()
    report = nested.cycle()
    assert (report.state, report.attempts) == ("changed", 1)
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "POST RP R -> 200",
        "POST RP N0 under R -> 200",
        "POST RP PF0 under N0 -> 200",
        "PUT inv PF0 g0 -> 200",
        "PUT tr PF0 g1 -> 200",
        "PUT inv R g0 -> 200",
        "PUT tr R g1 -> 200",
    ]
    # What others had put there is lost with the provider: nobody but the warning remembers it.
    deleted, lost = warnings(agent_log)
    assert deleted == DELETED.format("N0, PF0, node-a")
    assert lost == (
        "the root node-a was deleted, and with it what somebody else had put on it: traits "
        f"CUSTOM_RACK7; aggregates {aggregate}; it has to be put on the new one"
    )
    settled(nested, placement, agent_log, WITH_CHILDREN, before=before)


def test_a_held_class_gives_the_same_exit_code_in_every_pass(
    node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    node_a.driver.script = shaped(ROOT_INVENTORY, {"PF0": (NAME, VF)})
    node_a.cycle()
    placement.other.claim({PF0: {"SRIOV_NET_VF": 1}})
    node_a.driver.script = shaped(ROOT_INVENTORY, {"PF0": (NAME, {})})
    codes = []
    for following in (node_a.cycle, node_a.cycle, node_a.once):
        report = following()
        assert [one.kind for one in report.drift] == ["held-device", "orphaned-allocation"]
        codes.append((exit_code([report]), exit_code([report], detailed=True)))
    assert codes == [(DONE, CHANGED)] * 3
