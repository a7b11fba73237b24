"""An existing tree and an empty journal: what is taken over at once, what only
by ``--adopt``, what never.
"""

import shutil
from typing import Any

import pytest

from agent.model.provider_tree import ProviderTree
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, new_uuid, shaped, total
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer
from tests.support.settled import Want, node, settled

N0, PF9, BW, AGGREGATE = new_uuid(), new_uuid(), new_uuid(), new_uuid()
C = "c0000000-0000-4000-8000-000000000001"
WANTED = {"VCPU": total(18), "MEMORY_MB": total(16384)}
CELL = {"PCPU": total(4)}
LICENCES = {"CUSTOM_LICENCE": total(3)}
DISK = {"DISK_GB": total(100)}

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture
def laid_by_nova(placement: PlacementServer) -> dict[str, Any]:
    """A host's tree as nova, neutron and an operator left it; its dump."""
    other = placement.other
    other.create_provider(NAME, ROOT)
    other.set_inventory(ROOT, {"VCPU": total(16), "MEMORY_MB": total(16384), **DISK, **LICENCES})
    other.set_traits(ROOT, ["COMPUTE_NODE", "COMPUTE_DEVICE_TAGGING", "CUSTOM_RACK7"])
    other.set_aggregates(ROOT, [AGGREGATE])
    for uuid, name in ((N0, "N0"), (PF9, "PF9"), (BW, "BW")):
        other.create_provider(name, uuid, ROOT)
    other.set_inventory(N0, {**CELL, **LICENCES})
    other.set_traits(N0, ["HW_NUMA_ROOT", "CUSTOM_LEFT"])
    other.set_inventory(PF9, {"CUSTOM_PCI": 1})
    other.set_inventory(BW, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000})
    other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}, N0: {"PCPU": 1}}, C)
    return placement.dump()


def root_with(inventory: dict[str, Any], *traits: str) -> Want:
    return node(
        inventory, "COMPUTE_DEVICE_TAGGING", "CUSTOM_RACK7", *traits, aggregates={AGGREGATE}
    )


CELL_AS_FOUND = Want({**CELL, **LICENCES}, NAME, {"HW_NUMA_ROOT", "CUSTOM_LEFT"})


def drifts(report: Any, kind: str = "adoption-needed") -> list[str]:
    return sorted(one.detail for one in report.drift if one.kind == kind)


def test_a_first_run_takes_the_root_and_the_children_it_names_and_takes_nothing_away(
    host: Host,
    placement: PlacementServer,
    laid_by_nova: dict[str, Any],
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent = host(shaped(WANTED, {"N0": (NAME, CELL)}))
    report = agent.once()
    assert report.state == "changed"
    assert report.owned == {ROOT, N0}
    assert drifts(report) == [
        f"{NAME}: the node does not have its DISK_GB, but the tree is not adopted"
    ]
    assert [one.remedy for one in report.drift if one.kind == "adoption-needed"] == [
        "take the tree over: agent --once --adopt"
    ]
    assert sorted(
        str(one.provider) for one in report.drift if one.kind == "foreign-provider"
    ) == sorted([PF9, BW])
    assert placement.count("DELETE") == 0
    want = {NAME: root_with({**WANTED, **DISK, **LICENCES}), "N0": CELL_AS_FOUND}
    settled(agent, placement, agent_log, want, before=laid_by_nova)


@pytest.mark.parametrize("merging", [True, False])
def test_foreign_classes_traits_and_aggregates_stay_run_after_run_and_after_the_adoption(
    merging: bool,
    host: Host,
    placement: PlacementServer,
    laid_by_nova: dict[str, Any],
    agent_log: pytest.LogCaptureFixture,
) -> None:
    """Whether a driver replaces what it finds or, as the core does, adds to it."""

    def adding(tree: ProviderTree) -> None:
        tree.update_inventory(ROOT, {**tree.data(ROOT).inventory, **WANTED})
        if not tree.exists("N0"):
            tree.new_child("N0", NAME)
        tree.update_inventory("N0", {**tree.data("N0").inventory, **CELL})

    agent = host(adding if merging else shaped(WANTED, {"N0": (NAME, CELL)}))
    for mode in ({}, {}, {"adopt": True}, {}):
        agent.once(**mode)
    want = {NAME: root_with({**WANTED, **LICENCES}), "N0": CELL_AS_FOUND}
    settled(agent, placement, agent_log, want, before=laid_by_nova)


def test_a_child_of_ours_that_is_gone_stays_until_the_tree_is_adopted(
    host: Host,
    placement: PlacementServer,
    laid_by_nova: dict[str, Any],
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent = host(shaped(WANTED, {"N0": (NAME, CELL)}))
    agent.once()
    placement.other.claim({ROOT: {"VCPU": 2}}, C)
    before = placement.dump()
    agent.driver.script = shaped(WANTED)
    for following in (agent.once, agent.cycle):
        placement.clear()
        report = following()
        assert report.state == "in-sync"
        assert drifts(report) == [
            "N0: it is no part of the node's tree any more, but the tree is not adopted",
            f"{NAME}: the node does not have its DISK_GB, but the tree is not adopted",
        ]
        assert placement.writes() == []
    assert placement.dump() == before
    agent.stop()

    report = agent.once(adopt=True)
    assert report.state == "changed"
    assert drifts(report) == []
    assert [str(one) for one in placement.writes()] == [
        f"DELETE /resource_providers/{N0} -> 204",
        f"PUT /resource_providers/{ROOT}/inventories -> 200",
    ]
    # From now on without being told: PF9, which no pass ever named, stays for ever.
    settled(
        agent,
        placement,
        agent_log,
        {NAME: root_with({**WANTED, **LICENCES})},
        before=before,
        gone={"N0"},
    )


def test_an_adoption_that_has_nothing_to_write_is_remembered(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(WANTED, {"N0": (NAME, CELL)}))
    agent.once()
    agent.stop()
    shutil.rmtree(agent.folder)
    placement.clear()
    assert agent.once(adopt=True).state == "in-sync"
    assert placement.writes() == []
    before = placement.dump()
    agent.driver.script = shaped(WANTED)
    assert agent.once().state == "changed"
    settled(agent, placement, agent_log, {}, before=before, gone={"N0"})


def test_a_lost_journal_deletes_nothing_and_finds_everything_again_by_name(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    both = {"N0": (NAME, CELL), "N1": (NAME, CELL)}
    agent = host(shaped(WANTED, both, traits={"N0": ["HW_NUMA_ROOT"]}))
    agent.once()
    before = placement.dump()
    agent.stop()
    shutil.rmtree(agent.folder)
    agent.driver.script = shaped(WANTED, {"N0": both["N0"]}, traits={"N0": ["HW_NUMA_ROOT"]})
    report = agent.once()
    # N1, too: nobody but the agent makes a uuid of the root's and the name.
    assert (report.state, report.owned) == ("in-sync", set(before["providers"]))
    assert [one.detail for one in report.drift] == [
        "N1: it is no part of the node's tree any more, but the tree is not adopted"
    ]
    settled(agent, placement, agent_log, {}, before=before)


def test_a_foreign_provider_that_a_later_pass_names_is_taken_over_only_by_adopting(
    host: Host,
    placement: PlacementServer,
    laid_by_nova: dict[str, Any],
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent = host(shaped(WANTED, {"N0": (NAME, CELL)}))
    agent.once(adopt=True)
    agent.driver.script = shaped(
        WANTED, {"N0": (NAME, CELL), "PF9": (NAME, {"CUSTOM_PCI": total(2)})}
    )
    before = placement.dump()
    report = agent.once()
    assert PF9 not in report.owned
    (drift,) = [one for one in report.drift if one.provider == PF9]
    assert (drift.severity, drift.remedy) == ("warning", "take the tree over: agent --once --adopt")
    assert placement.dump() == before
    assert PF9 in agent.once(adopt=True).owned
    settled(
        agent, placement, agent_log, {"PF9": Want({"CUSTOM_PCI": total(2)}, NAME)}, before=before
    )


def test_a_standard_trait_that_the_driver_denies_is_taken_off_and_others_of_novas_stay(
    host: Host,
    placement: PlacementServer,
    laid_by_nova: dict[str, Any],
    agent_log: pytest.LogCaptureFixture,
) -> None:
    placement.other.set_traits(
        ROOT,
        [
            "COMPUTE_NODE",
            "COMPUTE_DEVICE_TAGGING",
            "COMPUTE_RESCUE_BFV",
            "CUSTOM_RACK7",
            "COMPUTE_STATUS_DISABLED",
        ],
    )
    driver = ScriptedDriver(shaped(WANTED, {"N0": (NAME, CELL)}))
    driver.capabilities = {"COMPUTE_DEVICE_TAGGING": False, "COMPUTE_VOLUME_EXTEND": True}
    agent = host(driver=driver)
    agent.once()
    traits = [
        "COMPUTE_RESCUE_BFV",
        "CUSTOM_RACK7",
        "COMPUTE_STATUS_DISABLED",
        "COMPUTE_VOLUME_EXTEND",
    ]
    want = {
        NAME: node({**WANTED, **DISK, **LICENCES}, *traits, aggregates={AGGREGATE}),
        "N0": CELL_AS_FOUND,
    }
    settled(agent, placement, agent_log, want, before=laid_by_nova)


# --- what would move ------------------------------------------------------------------------------


@pytest.fixture
def unsplit(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A tree of nova's with VCPU on its root, used by c, and a driver that wants it in
    two cells.
    """
    other = placement.other
    other.create_provider(NAME, ROOT)
    other.set_inventory(ROOT, {"VCPU": total(16), "MEMORY_MB": total(16384)})
    driver = NovaStyleDriver()
    driver.split = True
    return host(driver=driver)


@pytest.mark.parametrize("used", [True, False])
def test_no_reshape_before_the_tree_is_adopted(
    used: bool,
    unsplit: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    if used:
        placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}}, C)
    before = placement.dump()
    for following in (
        unsplit.once,
        unsplit.cycle,
        unsplit.cycle,
        lambda: unsplit.once(dry_run=True),
    ):
        report = following()
        (error,) = report.errors
        assert (report.state, error.code, error.remedy) == (
            "degraded",
            "tree.not-adopted",
            "take the tree over: agent --once --adopt",
        )
        assert drifts(report) == [
            f"{NAME}: inventory and its allocations would move, but the tree is not adopted"
        ]
        assert placement.writes() == []
        assert placement.dump() == before
        # What was not written is nobody's yet.
        assert report.owned == frozenset()

    report = unsplit.once(adopt=True)
    assert (report.state, drifts(report)) == ("changed", [])
    cells = [
        uuid
        for uuid, one in placement.dump()["providers"].items()
        if one["name"] == f"{NAME}_CELL0"
    ]
    moved = (
        {
            C: {
                **before["consumers"][C],
                "generation": 2,
                "allocations": {cells[0]: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}},
            }
        }
        if used
        else {}
    )
    cell = Want({"VCPU": total(8)}, NAME, {"HW_NUMA_ROOT"})
    want = {NAME: node({"MEMORY_MB": total(16384)}), f"{NAME}_CELL0": cell, f"{NAME}_CELL1": cell}
    settled(unsplit, placement, agent_log, want, consumers=moved)


def test_a_class_that_moves_without_a_reshape_is_not_counted_twice_before_the_tree_is_adopted(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    """What leaves the root stays there until the adoption: in a child as well, it would be promised
    twice.
    """
    placement.other.create_provider(NAME, ROOT)
    placement.other.set_inventory(ROOT, {"VCPU": total(8), "PCPU": total(8)})
    before = placement.dump()
    agent = host(
        shaped(
            {"VCPU": total(8)},
            {
                "N0": (NAME, {"PCPU": total(4)}),
                "N1": (NAME, {"PCPU": total(4), "SRIOV_NET_VF": total(2)}),
            },
        )
    )
    report = agent.once()
    assert drifts(report) == [
        "N0: PCPU would move here, but the tree is not adopted",
        "N1: PCPU would move here, but the tree is not adopted",
        f"{NAME}: the node does not have its PCPU, but the tree is not adopted",
    ]
    inventories = {
        one["name"]: set(one["inventories"]) for one in placement.dump()["providers"].values()
    }
    assert inventories == {NAME: {"VCPU", "PCPU"}, "N0": set(), "N1": {"SRIOV_NET_VF"}}
    assert agent.once().state == "in-sync"
    agent.once(adopt=True)
    want = {
        NAME: node({"VCPU": total(8)}),
        "N0": Want({"PCPU": total(4)}, NAME),
        "N1": Want({"PCPU": total(4), "SRIOV_NET_VF": total(2)}, NAME),
    }
    settled(agent, placement, agent_log, want, before=before)
