"""Providers of somebody else below the node, and those that share with it
from outside.
"""

import uuid
from collections.abc import Callable
from urllib.parse import parse_qs

import pytest

from agent.model.names import child_uuid
from agent.model.provider_tree import ProviderTree
from agent.placement.mirror import Freshness
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, shaped, total
from tests.support.exchange import traffic
from tests.support.placement import OtherClient, PlacementServer
from tests.support.settled import Want, node, settled

INVENTORY = {"VCPU": total(16), "MEMORY_MB": total(16384)}
DISK = {"DISK_GB": total(50)}
SHARING = "MISC_SHARES_VIA_AGGREGATE"
N0, BW, SS = child_uuid(ROOT, "N0"), new_uuid(), new_uuid()
AGGREGATE = new_uuid()
NAMES = {ROOT: "R", N0: "N0", BW: "BW", SS: "SS", AGGREGATE: "A"}
ASK_SHARING = f"GET member_of=in:A required={SHARING} -> 200"
EACH_TIME = Freshness(sharing=1e-6)
"""Sharing providers are asked for in every cycle."""

pytestmark = pytest.mark.usefixtures("short_waits")


def seen(placement: PlacementServer) -> list[str]:
    return traffic(placement.requests, NAMES)


def read(name: str) -> list[str]:
    return [f"GET inv {name} -> 200", f"GET ag {name} -> 200", f"GET tr {name} -> 200"]


def bandwidth(placement: PlacementServer, parent: str = ROOT) -> None:
    """What a network agent puts below a compute node."""
    placement.other.create_provider("BW", BW, parent)
    placement.other.set_inventory(BW, {"NET_BW_EGR_KILOBIT_PER_SEC": 10_000_000})
    placement.other.set_traits(BW, ["CUSTOM_PHYSNET_0"])
    placement.other.set_aggregates(BW, [AGGREGATE])


def storage(placement: PlacementServer, *aggregates: str, parent: str | None = None) -> None:
    """A shared disk store."""
    placement.other.create_provider("SS", SS, parent)
    placement.other.set_inventory(SS, {"DISK_GB": 1000})
    placement.other.set_traits(SS, [SHARING])
    placement.other.set_aggregates(SS, aggregates or [AGGREGATE])


def disk_unless_shared(tree: ProviderTree) -> None:
    """A driver that leaves its local disk out beside a shared one."""
    shaped(INVENTORY if tree.has_sharing_provider("DISK_GB") else {**INVENTORY, **DISK})(tree)


# --- somebody else's children ---------------------------------------------------------------------


def test_a_foreign_child_is_shown_to_the_driver_and_never_written_to(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    bandwidth(placement)
    before = placement.dump()
    shown = []

    def removing(tree: ProviderTree) -> None:
        shown.append(tree.data("BW"))
        tree.remove("BW")
        shaped(INVENTORY)(tree)

    report = node_a.cycle()
    assert [(one.kind, one.severity, one.detail) for one in report.drift] == [
        ("foreign-provider", "info", "BW was put there by somebody else")
    ]
    node_a.driver.script = removing
    report = node_a.cycle()
    assert (report.state, report.owned) == ("in-sync", {ROOT})
    assert [(one.kind, one.provider) for one in report.drift] == [("foreign-provider", BW)]
    assert "wanted to remove BW" in report.drift[0].detail
    (one,) = shown
    assert (one.parent_uuid, one.traits, one.aggregates) == (
        ROOT,
        {"CUSTOM_PHYSNET_0"},
        {AGGREGATE},
    )
    assert one.inventory["NET_BW_EGR_KILOBIT_PER_SEC"]["total"] == 10_000_000
    assert placement.writes() == []
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY)}, before=before)


@pytest.mark.parametrize("edit", ["inventory", "traits", "rename", "parent"])
def test_what_a_driver_does_to_a_foreign_provider_is_undone_and_told(
    edit: str,
    node_a: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    """The journal is not empty, so that a name alone does not make a provider ours."""
    bandwidth(placement)
    before = placement.dump()

    def meddling(tree: ProviderTree) -> None:
        shaped(INVENTORY, {"N0": (NAME, {})})(tree)
        if edit == "inventory":
            tree.update_inventory("BW", {"VCPU": total(1)})
        elif edit == "traits":
            tree.update_traits("BW", ["CUSTOM_MINE"])
        elif edit == "rename":
            tree.rename("BW", "BW2")
        else:
            tree.reparent("BW", "N0")

    node_a.driver.script = meddling
    report = node_a.cycle()
    assert [str(one) for one in placement.writes() if BW in one.path] == []
    assert "wanted to change BW" in report.drift[0].detail
    # A trait that is never made is asked for each time.
    settled(
        node_a,
        placement,
        agent_log,
        {NAME: node(INVENTORY), "N0": Want({}, NAME)},
        before=before,
        reads=1 + (edit == "traits"),
    )


def test_a_child_of_ours_with_a_foreign_one_below_stays_without_inventory(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(
        INVENTORY, {"N0": (NAME, {"PCPU": total(4)})}, traits={"N0": ["HW_NUMA_ROOT"]}
    )
    node_a.cycle()
    bandwidth(placement, N0)
    before = placement.dump()
    node_a.driver.script = shaped(INVENTORY)
    generation = placement.other.generation(N0)
    placement.clear()
    report = node_a.cycle()
    # Recognised before, so that there is no DELETE for the server to refuse.
    assert [str(one) for one in placement.writes()] == [
        f"PUT /resource_providers/{N0}/inventories -> 200",
        f"PUT /resource_providers/{N0}/traits -> 200",
    ]
    assert placement.writes()[0].body == {
        "resource_provider_generation": generation,
        "inventories": {},
    }
    assert [(one.kind, one.provider) for one in report.drift] == [("foreign-provider", BW)]
    settled(
        node_a, placement, agent_log, {NAME: node(INVENTORY), "N0": Want({}, NAME)}, before=before
    )


def test_a_foreign_child_that_comes_between_reading_and_deleting(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(INVENTORY, {"N0": (NAME, {"PCPU": total(4)})})
    node_a.cycle()
    node_a.driver.script = shaped(INVENTORY)
    placement.clear()
    came = placement.faults.add(
        faults.before(lambda _: placement.other.create_provider("BW", BW, N0)), method="DELETE"
    )
    report = node_a.cycle()
    assert came.hits == 1
    assert (report.state, report.attempts) == ("changed", 2)
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "DELETE RP N0 -> 409",
        "GET in_tree=R -> 200",
        *read("BW"),
        "PUT inv N0 g1 -> 200",
    ]
    settled(
        node_a,
        placement,
        agent_log,
        {NAME: node(INVENTORY), "N0": Want({}, NAME), "BW": Want({}, "N0")},
    )


def test_our_child_goes_as_soon_as_the_foreign_one_is_gone(
    node_a: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    node_a.driver.script = shaped(INVENTORY, {"N0": (NAME, {})})
    node_a.cycle()
    bandwidth(placement, N0)
    node_a.driver.script = shaped(INVENTORY)
    node_a.cycle()
    placement.other.delete_provider(BW)
    placement.clear()
    assert node_a.cycle().state == "changed"
    assert [str(one) for one in placement.writes()] == [f"DELETE /resource_providers/{N0} -> 204"]
    settled(node_a, placement, agent_log, {NAME: node(INVENTORY)})


# --- sharing providers ----------------------------------------------------------------------------


@pytest.fixture
def sharing(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A node with a local disk, in aggregate A of the operator; a shared store is not in it yet."""
    agent = host(disk_unless_shared, freshness=EACH_TIME)
    agent.cycle(start=True)
    placement.other.set_aggregates(ROOT, [AGGREGATE])
    agent.cycle()
    placement.clear()
    return agent


def test_a_shared_disk_takes_the_place_of_the_local_one(
    sharing: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    storage(placement)
    before = placement.dump()
    assert sharing.cycle().state == "changed"
    generation = before["providers"][ROOT]["generation"]
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        ASK_SHARING,
        *read("SS"),
        f"PUT inv R g{generation} -> 200",
    ]
    placement.clear()
    assert sharing.cycle().state == "in-sync"
    assert seen(placement) == ["GET in_tree=R -> 200", ASK_SHARING], (
        "an unchanged sharing provider is read again"
    )
    settled(
        sharing,
        placement,
        agent_log,
        {NAME: node(INVENTORY, aggregates={AGGREGATE})},
        before=before,
        reads=2,
    )


@pytest.mark.parametrize(
    ("change", "more_reads"),
    [
        (lambda other: other.set_aggregates(SS, []), []),
        (lambda other: other.set_inventory(SS, {"CUSTOM_TAPE": 3}), read("SS")),
    ],
    ids=["leaves the aggregate", "has no disk any more"],
)
def test_the_local_disk_comes_back_when_the_shared_one_leaves(
    sharing: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    change: Callable[[OtherClient], object],
    more_reads: list[str],
) -> None:
    storage(placement)
    sharing.cycle()
    change(placement.other)
    before = placement.dump()
    placement.clear()
    assert sharing.cycle().state == "changed"
    generation = before["providers"][ROOT]["generation"]
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        ASK_SHARING,
        *more_reads,
        f"PUT inv R g{generation} -> 200",
    ]
    settled(
        sharing,
        placement,
        agent_log,
        {NAME: node({**INVENTORY, **DISK}, aggregates={AGGREGATE})},
        before=before,
        reads=2,
    )


def test_a_driver_cannot_write_to_a_sharing_provider(
    sharing: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    storage(placement)

    def meddling(tree: ProviderTree) -> None:
        tree.update_inventory("SS", {"DISK_GB": total(1)})

    sharing.driver.script = meddling
    before = placement.dump()
    report = sharing.cycle()
    assert report.state == "failed"
    assert "cannot be edited here" in report.errors[0].message
    assert placement.dump() == before


@pytest.mark.parametrize(("interval", "asked"), [(0, 0), (300, 0), (1e-6, 1)])
def test_how_often_sharing_providers_are_asked_for_follows_the_option(
    interval: float,
    asked: int,
    host: Host,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    """0 asks once; else the age of the last answer decides, also over a restart."""
    agent = host(disk_unless_shared, freshness=Freshness(sharing=interval))
    placement.other.create_provider(NAME, ROOT)
    placement.other.set_aggregates(ROOT, [AGGREGATE])
    storage(placement)
    agent.once()
    assert seen(placement).count(ASK_SHARING) == 1
    for following in (agent.cycle, agent.cycle, agent.once):
        placement.clear()
        assert following().state == "in-sync"
        assert seen(placement).count(ASK_SHARING) == asked
    settled(
        agent,
        placement,
        agent_log,
        {NAME: node(INVENTORY, aggregates={AGGREGATE})},
        before=placement.dump(),
        reads=1 + asked,
    )


def test_a_new_aggregate_is_asked_for_at_once_whatever_the_interval(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(disk_unless_shared, freshness=Freshness(sharing=0))
    agent.cycle(start=True)
    storage(placement)
    placement.other.set_aggregates(ROOT, [AGGREGATE])
    before = placement.dump()
    assert agent.cycle().state == "changed"
    settled(
        agent, placement, agent_log, {NAME: node(INVENTORY, aggregates={AGGREGATE})}, before=before
    )


def test_a_reread_asks_for_sharing_providers_too(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(disk_unless_shared, freshness=Freshness(sharing=0))
    agent.once()
    placement.other.set_aggregates(ROOT, [AGGREGATE])
    agent.once()
    storage(placement)
    before = placement.dump()
    assert agent.once().state == "in-sync"
    assert agent.once(reread=True).state == "changed"
    settled(
        agent, placement, agent_log, {NAME: node(INVENTORY, aggregates={AGGREGATE})}, before=before
    )


def test_many_aggregates_are_asked_for_in_short_queries(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    aggregates = sorted(str(uuid.uuid4()) for _ in range(450))
    agent = host(disk_unless_shared)
    agent.cycle(start=True)
    placement.other.set_aggregates(ROOT, aggregates)
    storage(placement, aggregates[0], aggregates[-1])
    before = placement.dump()
    placement.clear()
    assert agent.cycle().state == "changed"
    asked = [one for one in placement.requests if "member_of" in one.query]
    assert len(asked) >= 5
    assert max(len(placement.url) + len(one.target) for one in asked) < 4096
    assert sorted(part for one in asked for part in uuid_list(one.query)) == aggregates
    assert seen(placement).count("GET inv SS -> 200") == 1
    settled(
        agent, placement, agent_log, {NAME: node(INVENTORY, aggregates=aggregates)}, before=before
    )


def uuid_list(query: str) -> list[str]:
    return parse_qs(query)["member_of"][0].removeprefix("in:").split(",")


def test_a_nested_sharing_provider_is_a_root_in_the_view_and_its_tree_is_left_alone(
    sharing: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    above = placement.other.create_provider("storage-tower")
    placement.other.create_provider("sibling", parent=above)
    storage(placement, parent=above)
    before = placement.dump()
    shown = []

    def looking(tree: ProviderTree) -> None:
        shown.append([(one.name, one.parent_uuid) for one in tree.roots])
        disk_unless_shared(tree)

    sharing.driver.script = looking
    assert sharing.cycle().state == "changed"
    assert shown == [[(NAME, None), ("SS", None)]]
    assert [one for one in seen(placement) if one.startswith("GET")] == [
        "GET in_tree=R -> 200",
        ASK_SHARING,
        *read("SS"),
    ]
    settled(
        sharing,
        placement,
        agent_log,
        {NAME: node(INVENTORY, aggregates={AGGREGATE})},
        before=before,
        reads=2,
    )


def test_a_child_that_is_called_by_the_uuid_of_another_provider_is_named_with_its_remedy(
    node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    child = placement.other.create_provider(ROOT, parent=ROOT)
    report = node_a.cycle()
    (error,) = report.errors
    assert (report.state, error.code, error.remedy) == ("failed", "tree.invalid", "rename it")
    assert child in error.message
    placement.other.rename(child, "CHILD")
    assert node_a.cycle().state == "in-sync"


@pytest.mark.parametrize("name", ["FPGA", "IPV4_ADDRESS", "CUSTOM_LICENCE"])
def test_a_class_that_another_service_put_on_our_root_stays(
    name: str, node_a: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.other.set_inventory(ROOT, {**placement.other.inventory(ROOT), name: 4})
    for following in (node_a.cycle, node_a.once, lambda: node_a.once(adopt=True), node_a.once):
        assert following().state == "in-sync"
    node_a.driver.script = shaped({**INVENTORY, "VCPU": total(18)})
    assert node_a.once().state == "changed"
    assert placement.other.inventory(ROOT)[name]["total"] == 4
    # One that only a node makes is no other service's.
    placement.other.set_inventory(ROOT, {**placement.other.inventory(ROOT), "DISK_GB": 4})
    assert node_a.once().state == "changed"
    assert set(placement.other.inventory(ROOT)) == {*INVENTORY, name}
