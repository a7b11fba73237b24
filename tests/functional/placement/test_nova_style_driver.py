"""A driver written for nova, unchanged: a reshape of many consumers, sparse records, what it may
and may not do.
"""

import copy
from typing import Any

import pytest

from agent.model.names import child_uuid
from agent.tree.policy import Policy, Ratio
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, total
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer
from tests.support.settled import node, settled

CELL0, CELL1 = f"{NAME}_CELL0", f"{NAME}_CELL1"
N0, N1 = child_uuid(ROOT, "_CELL0"), child_uuid(ROOT, "_CELL1")

pytestmark = pytest.mark.usefixtures("short_waits")


def test_the_driver_is_given_every_consumer_of_its_tree_with_its_whole_record(
    host: Host, placement: PlacementServer
) -> None:
    given: list[dict[str, Any]] = []

    class Looking(NovaStyleDriver):
        def move(self, provider_tree: Any, nodename: str, allocations: dict[str, Any]) -> None:
            given.append(copy.deepcopy(allocations))
            super().move(provider_tree, nodename, allocations)

    driver = Looking()
    agent = host(driver=driver)
    agent.once()
    elsewhere = placement.other.create_provider("other-host")
    placement.other.set_inventory(elsewhere, {"VCPU": 8})
    consumer = placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}, elsewhere: {"VCPU": 2}})
    placement.other.claim({elsewhere: {"VCPU": 1}})
    expected = placement.other.allocations(consumer)
    driver.split = True
    agent.once()
    assert given == [
        {
            consumer: {
                name: expected[name]
                for name in ("allocations", "project_id", "user_id", "consumer_generation")
            }
        }
    ]
    (reshape,) = [one for one in placement.requests if one.path == "/reshaper"]
    assert {
        tuple(entry) for entry in reshape.body["allocations"][consumer]["allocations"].values()
    } == {("resources",)}


def test_the_driver_sees_the_tree_as_placement_has_it(
    host: Host, placement: PlacementServer
) -> None:
    seen_by_driver: list[tuple[str, bool, list[str]]] = []

    class Looking(NovaStyleDriver):
        def update_provider_tree(
            self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
        ) -> None:
            super().update_provider_tree(provider_tree, nodename, allocations)
            root = provider_tree.data(nodename)
            seen_by_driver.append(
                (
                    root.uuid,
                    provider_tree.has_traits(nodename, ["CUSTOM_RACK7"]),
                    provider_tree.get_provider_uuids_in_tree(nodename),
                )
            )

    agent = host(driver=Looking())
    agent.cycle(start=True)
    placement.other.set_traits(ROOT, placement.other.traits(ROOT) | {"CUSTOM_RACK7"})
    child = placement.other.create_provider("BW", parent=ROOT)
    agent.cycle()
    assert seen_by_driver == [(ROOT, False, [ROOT]), (ROOT, True, [ROOT, child])]


# --- completion of sparse records -----------------------------------------------------------------


class Sparse(NovaStyleDriver):
    """Gives nothing but totals, and takes off and gives what a test says."""

    def __init__(self, **totals: int) -> None:
        super().__init__()
        self.totals = totals

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
    ) -> None:
        provider_tree.update_inventory(
            nodename, {name: {"total": amount} for name, amount in self.totals.items()}
        )


UNLIMITED = 2147483647


def test_a_sparse_record_of_a_new_class_gets_placements_defaults(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(driver=Sparse(VCPU=16))
    agent.cycle(start=True)
    (sent,) = [one.body for one in placement.requests if one.path.endswith("/inventories")]
    # All six fields are sent, so that what is printed is what will be there.
    assert sent["inventories"] == {"VCPU": total(16, max_unit=UNLIMITED)}
    settled(agent, placement, agent_log, {NAME: node({"VCPU": total(16, max_unit=UNLIMITED)})})


def test_a_sparse_record_keeps_what_placement_has_in_the_fields_it_lacks(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    driver = Sparse(VCPU=16)
    agent = host(driver=driver)
    agent.cycle(start=True)
    edited = total(16, reserved=1, max_unit=8, allocation_ratio=4.0)
    placement.other.set_inventory(ROOT, {"VCPU": edited})
    placement.clear()
    assert agent.cycle().state == "in-sync"
    assert placement.writes() == []
    driver.totals = {"VCPU": 17}
    assert agent.cycle().state == "changed"
    settled(agent, placement, agent_log, {NAME: node({"VCPU": {**edited, "total": 17}})})


def test_a_configured_ratio_completes_a_sparse_record_before_placements_own(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    policy = Policy(
        cpu_ratio=Ratio(configured=8.0),
        memory_ratio=Ratio(configured=1.5),
        disk_ratio=Ratio(initial=9.0),
    )
    driver = Sparse(VCPU=16, MEMORY_MB=1024, DISK_GB=10, PCPU=4)
    agent = host(driver=driver, policy=policy)
    agent.cycle(start=True)
    want = {
        "VCPU": total(16, max_unit=UNLIMITED, allocation_ratio=8.0),
        "MEMORY_MB": total(1024, max_unit=UNLIMITED, allocation_ratio=1.5),
        "DISK_GB": total(10, max_unit=UNLIMITED),
        "PCPU": total(4, max_unit=UNLIMITED),
    }
    assert placement.other.inventory(ROOT) == want
    placement.other.set_inventory(ROOT, {**want, "VCPU": {**want["VCPU"], "allocation_ratio": 2.0}})
    driver.totals = {**driver.totals, "VCPU": 17}
    agent.cycle()
    settled(
        agent, placement, agent_log, {NAME: node({**want, "VCPU": {**want["VCPU"], "total": 17}})}
    )


def test_none_as_an_inventory_means_empty(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    class Empty(NovaStyleDriver):
        def update_provider_tree(
            self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
        ) -> None:
            provider_tree.update_inventory(nodename, None)

    driver = Sparse(VCPU=16)
    agent = host(driver=driver)
    agent.once()
    agent.driver = Empty()
    assert agent.once().state == "changed"
    settled(agent, placement, agent_log, {NAME: node({})})


def test_numbers_compare_by_value(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    class Whole(NovaStyleDriver):
        def record(self, total: int) -> dict[str, Any]:
            return {**super().record(total), "allocation_ratio": 1}

    agent = host(driver=NovaStyleDriver())
    agent.once()
    agent.driver = Whole()
    placement.clear()
    assert agent.once().state == "in-sync"
    assert placement.writes() == []
    settled(
        agent, placement, agent_log, {NAME: node({"VCPU": total(16), "MEMORY_MB": total(16384)})}
    )
