"""Mediated devices in Placement."""

from typing import Any

import pytest

from agent.tree.policy import MdevPolicy, MdevType, Policy
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, AgentUnderTest
from tests.support.mdev_host import (
    CHILD_06,
    CHILD_07,
    P06,
    P07,
    T1,
    T2,
    counted,
    host_of,
    names,
    parent,
)
from tests.support.placement import PlacementServer

CUSTOM = "CUSTOM_NOTVGPU"


@pytest.fixture
def made(host: Host) -> Any:
    """Makes the agent of a host flat as in the specification, with these types."""

    def agent(facts: Any, *types: MdevType, layout: Any = "flat", **options: Any) -> AgentUnderTest:
        agent = host(policy=Policy(mdev=MdevPolicy(types), layout=layout), **options)
        agent.driver.facts_of = facts
        return agent

    return agent


def places(placement: PlacementServer) -> dict[str, str]:
    """The parents of those that count mediated devices, by name."""
    rows = placement.dump()["providers"]
    return {
        one["name"]: rows[one["parent"]]["name"] for one in rows.values() if "_pci_" in one["name"]
    }


def test_devices_that_exist_and_those_that_can_be_made_count_together(
    made: Any, placement: PlacementServer
) -> None:
    agent = made(host_of(parent(P06, {T1: 14}, [None, None])), MdevType(T1))
    assert agent.once().state == "changed"
    assert counted(placement, "VGPU") == {CHILD_06: {"VGPU": (16, 0, 16)}}
    assert places(placement) == {CHILD_06: NAME}
    # One more is made for a guest: nothing changes.
    agent.driver.facts_of = host_of(parent(P06, {T1: 13}, [None, None, None]))
    assert agent.once().state == "in-sync"


def test_the_parent_in_which_the_most_instances_are_reached_has_the_remainder(
    made: Any, placement: PlacementServer
) -> None:
    parents = parent(P06, {T1: 16}), parent(P07, {T1: 16})
    agent = made(host_of(*parents), MdevType(T1, max_instances=20))
    agent.once()
    assert counted(placement, "VGPU") == {
        CHILD_06: {"VGPU": (16, 0, 16)},
        CHILD_07: {"VGPU": (4, 0, 4)},
    }
    made(host_of(*parents), MdevType(T1, max_instances=16)).once()
    assert names(placement) == {CHILD_06}


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_fewer_instances_are_taken_from_the_parents_of_which_nothing_is_allocated(
    layout: str, made: Any, placement: PlacementServer
) -> None:
    virtual, child = "0000:41:00.4", f"{NAME}_pci_0000_41_00_4"
    facts = host_of(
        parent(P06, {T1: 4}), parent(P07, {T1: 3}, [None]), parent(virtual, {T1: 4}, numa_node=1)
    )
    tree = made(facts, MdevType(T1, max_instances=12), layout=layout).once().tree
    consumers = [
        placement.other.claim({tree.data(name).uuid: {"VGPU": amount}})
        for name, amount in ((CHILD_07, 2), (child, 3))
    ]
    agent = made(facts, MdevType(T1, max_instances=6), layout=layout)
    agent.cycle(start=True)
    fewer = {
        CHILD_06: {"VGPU": (1, 0, 1)},
        CHILD_07: {"VGPU": (2, 0, 2)},
        child: {"VGPU": (3, 0, 3)},
    }
    assert counted(placement, "VGPU") == fewer
    # Who holds what is asked only where it may have changed.
    agent.cycle()
    placement.clear()
    assert (agent.cycle().state, counted(placement, "VGPU")) == ("in-sync", fewer)
    assert [one.path for one in placement.requests] == ["/resource_providers"]
    for consumer in consumers:
        placement.other.release(consumer)
    agent.cycle(reread=True)
    assert counted(placement, "VGPU") == {
        CHILD_06: {"VGPU": (4, 0, 4)},
        CHILD_07: {"VGPU": (2, 0, 2)},
    }


def test_a_parent_that_is_gone_goes_and_one_in_use_is_held(
    made: Any, placement: PlacementServer
) -> None:
    agent = made(host_of(parent(P06, {T1: 16}), parent(P07, {T1: 16})), MdevType(T1))
    used = agent.cycle(start=True).tree.data(CHILD_07).uuid
    consumer = placement.other.claim({used: {"VGPU": 3}})
    agent.driver.facts_of = host_of()
    report = agent.cycle()
    # Not a total of what is used, as it is written there: whatever is gone and in use keeps its
    # total, and all of it is reserved.
    assert counted(placement, "VGPU") == {CHILD_07: {"VGPU": (16, 16, 16)}}
    assert [(one.kind, one.provider) for one in report.drift] == [
        ("held-device", used),
        ("orphaned-allocation", None),
    ]
    assert names(placement) == {CHILD_07}
    assert agent.once().state == "in-sync"
    placement.other.release(consumer)
    agent.once()
    assert names(placement) == set()


def test_a_list_of_types_that_was_emptied_takes_the_providers_away(
    made: Any, placement: PlacementServer
) -> None:
    facts = host_of(parent(P06, {T1: 16}))
    made(facts, MdevType(T1)).once()
    made(facts).once()
    assert names(placement) == set()


def test_a_parent_hangs_from_its_cell_where_cells_have_providers(
    made: Any, placement: PlacementServer
) -> None:
    facts = host_of(parent(P06, {T1: 16}, numa_node=1), parent(P07, {T1: 16}))
    made(facts, MdevType(T1), layout="flat").once()
    assert places(placement) == {CHILD_06: NAME, CHILD_07: NAME}
    made(facts, MdevType(T1), layout="nested").once()
    assert places(placement) == {CHILD_06: f"{NAME}_NUMA1", CHILD_07: NAME}
    assert counted(placement, "VGPU") == {
        CHILD_06: {"VGPU": (16, 0, 16)},
        CHILD_07: {"VGPU": (16, 0, 16)},
    }


def test_a_parent_that_is_cut_into_another_class_while_it_is_used_holds_the_old_one(
    made: Any, placement: PlacementServer
) -> None:
    facts = host_of(parent(P06, {T1: 16, T2: 8}))
    agent = made(facts, MdevType(T1))
    child = agent.once().tree.data(CHILD_06).uuid
    placement.other.claim({child: {"VGPU": 1}})
    made(facts, MdevType(T2, resource_class=CUSTOM)).once()
    assert counted(placement, "VGPU", CUSTOM) == {
        CHILD_06: {"VGPU": (16, 16, 16), CUSTOM: (8, 0, 8)}
    }


def test_the_providers_that_nova_made_are_taken_over_by_their_names(
    made: Any, placement: PlacementServer
) -> None:
    agent = made(host_of(parent(P06, {T1: 12}, [None, None])), MdevType(T1))
    root = placement.other.create_provider(NAME, next(iter(agent.driver.nodes())))
    child = placement.other.create_provider(CHILD_06, parent=root)
    placement.other.set_inventory(child, {"VGPU": {"total": 16, "max_unit": 16}})
    placement.other.claim({child: {"VGPU": 2}})
    report = agent.once()
    assert (report.errors, report.drift) == ((), ())
    assert report.tree.data(CHILD_06).uuid == child
    assert counted(placement, "VGPU") == {CHILD_06: {"VGPU": (14, 0, 14)}}


@pytest.mark.parametrize("used", [0, 3])
def test_what_nova_left_of_a_parent_that_is_gone_goes_once_the_tree_is_taken_over(
    used: int, made: Any, placement: PlacementServer
) -> None:
    agent = made(host_of(parent(P07, {T1: 16})), MdevType(T1))
    root = placement.other.create_provider(NAME, next(iter(agent.driver.nodes())))
    children = [
        placement.other.create_provider(name, parent=root)
        for name in (CHILD_06, f"{NAME}_amd_sev", f"{NAME}_pci_of_somebody_else")
    ]
    for child, resource_class in zip(
        children, ("VGPU", "MEM_ENCRYPTION_CONTEXT", "VGPU"), strict=True
    ):
        placement.other.set_inventory(child, {resource_class: 16})
    if used:
        placement.other.claim({children[0]: {"VGPU": used}})
    agent.once()
    assert {one.kind for one in agent.once().drift} == {"adoption-needed", "foreign-provider"}
    agent.once(adopt=True)
    report = agent.once()
    assert names(placement) == {
        CHILD_07,
        f"{NAME}_pci_of_somebody_else",
        *([CHILD_06] if used else []),
    }
    assert ("held-device" in {one.kind for one in report.drift}) == bool(used)
