"""What older layouts count on the root moves to children."""

from typing import Any

import pytest

from agent.tree.policy import MdevPolicy, MdevType, Policy
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, shaped, total
from tests.support.mdev_host import CHILD_06, CHILD_07, P06, P07, T1, counted, host_of, parent
from tests.support.placement import PlacementServer

A, B = "a0000000-0000-4000-8000-000000000001", "b0000000-0000-4000-8000-000000000002"
CONTEXT, SEV, TRAIT = "MEM_ENCRYPTION_CONTEXT", f"{NAME}_amd_sev", "HW_CPU_X86_AMD_SEV"

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def grown(host: Host, placement: PlacementServer) -> Any:
    """A host that had ``inventory`` on its root, used by ``consumers``, and is now known better."""

    def agent(inventory: Any, consumers: Any, facts: Any, traits: Any = ()) -> AgentUnderTest:
        agent = host(
            shaped(inventory, traits={NAME: traits}),
            policy=Policy(mdev=MdevPolicy((MdevType(T1),)), layout="flat"),
        )
        agent.once()
        for consumer, resources in consumers.items():
            placement.other.claim({ROOT: resources}, consumer)
        agent.driver.script = lambda _tree: None
        agent.driver.facts_of = facts
        return agent

    return agent


def holdings(placement: PlacementServer) -> dict[str, dict[str, dict[str, int]]]:
    """What each consumer has, by the names of the providers."""
    dump = placement.dump()
    return {
        consumer: {
            dump["providers"][uuid]["name"]: resources
            for uuid, resources in one["allocations"].items()
        }
        for consumer, one in dump["consumers"].items()
    }


VGPUS = {"VGPU": total(8)}
USERS = {A: {"VGPU": 1}, B: {"VGPU": 2}}


@pytest.mark.parametrize(
    "devices",
    [
        host_of(parent(P06, {T1: 8}, [A, None])),
        host_of(parent(P06, {T1: 8}, [A, B])),
        host_of(parent(P06, {T1: 8}, [A]), parent(P07, {T1: 0}, [B, B], "other")),
    ],
    ids=["no guest of that name", "fewer devices than it has", "devices of another type"],
)
def test_a_consumer_whose_devices_are_not_found_refuses_the_start(
    devices: Any, grown: Any, placement: PlacementServer
) -> None:
    agent = grown(VGPUS, USERS, devices)
    before = placement.dump()
    report = agent.once()
    assert (report.state, [error.code for error in report.errors]) == (
        "refused",
        ["reshape.failed"],
    )
    assert B in report.errors[0].message
    assert placement.dump() == before


def test_of_more_devices_than_are_allocated_those_of_the_first_parents_count(
    grown: Any, placement: PlacementServer
) -> None:
    grown(
        VGPUS, {B: {"VGPU": 2}}, host_of(parent(P06, {T1: 6}, [B]), parent(P07, {T1: 7}, [B, B]))
    ).once()
    assert holdings(placement) == {B: {CHILD_06: {"VGPU": 1}, CHILD_07: {"VGPU": 1}}}


def test_parents_that_could_not_be_listed_leave_the_root_as_it_is(
    grown: Any, placement: PlacementServer
) -> None:
    agent = grown(VGPUS, USERS, host_of(incomplete=["mdev"]))
    before = placement.dump()
    agent.once()
    assert counted(placement, "VGPU") == {NAME: {"VGPU": (8, 0, 8)}}
    assert placement.dump()["consumers"] == before["consumers"]


@pytest.mark.parametrize(
    ("contexts", "amount", "told"),
    [
        ({"sev_es": 16}, 1, "does not offer any"),
        ({"sev": 16}, 2, "gives a consumer 1 to 1 in steps of 1"),
    ],
    ids=["SEV is off", "more than one for a guest"],
)
def test_contexts_that_have_nowhere_to_go_refuse_the_start(
    contexts: Any, amount: int, told: str, grown: Any, placement: PlacementServer
) -> None:
    report = grown({CONTEXT: total(16)}, {A: {CONTEXT: amount}}, host_of(contexts=contexts)).once()
    assert (report.state, [error.code for error in report.errors]) == (
        "refused",
        ["reshape.failed"],
    )
    assert A in report.errors[0].message and told in report.errors[0].message
    assert holdings(placement) == {A: {NAME: {CONTEXT: amount}}}
