"""What the operator's files add, and what comes of it in Placement."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.model.facts import Cell, CpuFacts, HostFacts, Topology
from agent.model.names import child_uuid
from agent.model.report import NodeReport
from agent.numa.host_policy import HostPolicy
from agent.tree.policy import Policy
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, shaped, total
from tests.support.placement import PlacementServer
from tests.support.provider_files import ProviderFiles, by_name, by_uuid, default
from tests.support.settled import Want, node, settled

HAS = {"VCPU": total(16), "MEMORY_MB": total(16384), "DISK_GB": total(100)}
DEVICE = f"{NAME}_0000:81:00.0"
DEVICE_UUID = child_uuid(ROOT, "_0000:81:00.0")
PCI = {"CUSTOM_PCI_8086_1533": total(1)}
HOST = shaped(HAS, {DEVICE: (NAME, PCI)})
OTHER = "5f9c2a34-7d1e-4a8b-9c46-000000000002"
MAX = 2147483647
BOTH = {NAME: node(HAS), DEVICE: Want(PCI, NAME)}


def licence(amount: int, **fields: Any) -> dict[str, Any]:
    """The complete record of what a file says so: Placement's defaults for the rest."""
    return total(amount, max_unit=MAX, **fields)


def wanted(*traits: str, device: Want = BOTH[DEVICE], **records: Any) -> Mapping[str, Want]:
    """Both providers, with the operator's part on the root."""
    return {NAME: node({**HAS, **records}, *traits), DEVICE: device}


@pytest.fixture
def files(tmp_path: Path) -> ProviderFiles:
    return ProviderFiles(tmp_path / "provider_config")


@pytest.fixture
def agent(host: Host, files: ProviderFiles) -> AgentUnderTest:
    """A host with one PCI device, not yet in Placement."""
    return host(HOST, provider_files=files.folder)


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage()
        for one in log.records
        if one.levelname == "WARNING" and one.name.startswith("agent")
    ]


def errors(report: NodeReport) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in report.errors]


@pytest.mark.parametrize(
    "entry", [by_name(NAME, "CUSTOM_B"), by_uuid(ROOT, "CUSTOM_B")], ids=["s_04", "s_105"]
)
def test_of_two_nodes_the_one_without_an_entry_gets_the_default(
    host: Host,
    files: ProviderFiles,
    placement: PlacementServer,
    agent_log,
    entry: Mapping[str, Any],
) -> None:
    files.write("10.yaml", default("CUSTOM_A"))
    files.write("20.yaml", entry)
    agent = host(
        driver=ScriptedDriver(shaped(HAS), {ROOT: NAME, OTHER: "node-b"}),
        provider_files=files.folder,
    )
    agent.report()
    settled(
        agent, placement, agent_log, {NAME: node(HAS, "CUSTOM_B"), "node-b": node(HAS, "CUSTOM_A")}
    )


def test_a_provider_by_name_and_by_uuid_gets_neither_and_the_node_is_degraded(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    first, second = (
        files.write("a.yaml", by_name(NAME, "CUSTOM_A")),
        files.write("b.yaml", by_uuid(ROOT, "CUSTOM_B")),
    )
    report = agent.once()
    ((code, message),) = errors(report)
    assert (report.state, code) == ("degraded", "provider-config.conflict")
    for named in (str(first), str(second), f"name {NAME}", f"uuid {ROOT}", f"provider {NAME} "):
        assert named in message
    settled(agent, placement, agent_log, BOTH, state="degraded")


def test_an_absent_provider_is_told_once_and_again_after_it_was_there(
    agent: AgentUnderTest, files: ProviderFiles, agent_log
) -> None:
    file = files.write("a.yaml", by_name("gpu-0", "CUSTOM_A"))
    for _ in range(10):
        assert agent.cycle(start=True).errors == ()
    (line,) = warnings(agent_log)
    assert f"name gpu-0 ({file}:" in line
    assert line.endswith(f"Known here: {NAME}, {DEVICE}")
    agent.driver.script = shaped(HAS, {"gpu-0": (NAME, {})})
    assert "CUSTOM_A" in agent.cycle().tree.provider("gpu-0").traits
    agent.driver.script = HOST
    for _ in range(3):
        agent.cycle()
    assert len(warnings(agent_log)) == 2


def test_an_absence_is_not_told_while_a_node_was_never_seen(
    host: Host, files: ProviderFiles, agent_log
) -> None:
    files.write("a.yaml", by_name("node-b", "CUSTOM_A"))
    agent = host(
        driver=ScriptedDriver(shaped(HAS), {ROOT: NAME, OTHER: "node-b" * 50}),
        provider_files=files.folder,
    )
    agent.report()
    assert warnings(agent_log) == []


def test_a_child_gets_its_entry_and_the_owner_s_trait(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    files.write("a.yaml", by_uuid(DEVICE_UUID, "CUSTOM_FAST", CUSTOM_LANES={"total": 8}))
    agent.once()
    settled(
        agent,
        placement,
        agent_log,
        wanted(
            device=Want({**PCI, "CUSTOM_LANES": licence(8)}, NAME, {"CUSTOM_FAST", "OWNER_NOVA"})
        ),
    )
    files.remove("a.yaml")
    agent.once()
    settled(agent, placement, agent_log, BOTH)


def test_a_class_that_the_driver_gives_is_an_error_and_the_driver_s_stays(
    host: Host, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    gpu = {**HAS, "CUSTOM_GPU": total(4)}
    agent = host(shaped(gpu), provider_files=files.folder)
    file = files.write("a.yaml", default("CUSTOM_A", CUSTOM_GPU={"total": 9}))
    for run in (agent.once, agent.once):
        ((code, message),) = errors(run())
        assert code == "provider-config.conflict"
        assert str(file) in message
        assert f"CUSTOM_GPU of provider {NAME}" in message
    settled(agent, placement, agent_log, {NAME: node(gpu)}, state="degraded")


def test_what_an_earlier_configuration_gave_stays_when_the_new_one_does_not_fit(
    host: Host, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    gpu = {**HAS, "CUSTOM_GPU": total(4)}
    agent = host(shaped(gpu), provider_files=files.folder)
    files.write("a.yaml", default("CUSTOM_A", CUSTOM_L={"total": 20}))
    agent.once()
    files.write("a.yaml", default("CUSTOM_B", CUSTOM_GPU={"total": 9}))
    assert agent.once().state == "degraded"
    want = {NAME: node({**gpu, "CUSTOM_L": licence(20)}, "CUSTOM_A")}
    settled(agent, placement, agent_log, want, state="degraded")
    files.write("a.yaml", default("CUSTOM_B"))
    agent.once()
    settled(agent, placement, agent_log, {NAME: node(gpu, "CUSTOM_B")})


def test_a_class_that_the_driver_comes_to_give_is_the_driver_s_and_the_rest_stays(
    host: Host, files: ProviderFiles, placement, agent_log
) -> None:
    agent = host(shaped(HAS), provider_files=files.folder)
    files.write("a.yaml", default("CUSTOM_A", CUSTOM_GPU={"total": 9}))
    agent.once()
    gpu = {**HAS, "CUSTOM_GPU": total(4)}
    agent.driver.script = shaped(gpu)
    assert agent.once().state == "degraded"
    settled(agent, placement, agent_log, {NAME: node(gpu, "CUSTOM_A")}, state="degraded")


def test_a_trait_that_left_the_file_is_removed_and_another_s_stays(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    files.write("a.yaml", default("CUSTOM_A", "CUSTOM_B"))
    agent.once()
    placement.other.set_traits(ROOT, {*placement.other.traits(ROOT), "CUSTOM_Z"})
    # A trait that was there before the file named it is left when the file goes.
    files.write("a.yaml", default("CUSTOM_A", "CUSTOM_Z"))
    assert agent.once().state == "changed"
    settled(agent, placement, agent_log, wanted("CUSTOM_A", "CUSTOM_Z"))
    files.remove("a.yaml")
    agent.once()
    settled(agent, placement, agent_log, wanted("CUSTOM_Z"))


def test_a_class_that_left_the_file_stays_while_it_is_used(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    files.write("a.yaml", default(CUSTOM_L={"total": 20, "reserved": 2}))
    agent.once()
    consumers = [
        placement.other.claim({ROOT: {"CUSTOM_L": 3}}),
        placement.other.claim({ROOT: {"CUSTOM_L": 1}}),
    ]
    files.remove("a.yaml")
    report = agent.once()
    drift, *orphans = report.drift
    assert [one.kind for one in orphans] == ["orphaned-allocation"] * 2
    assert drift.kind == "held-device"
    assert (
        drift.detail == f"{NAME}: no file gives it CUSTOM_L any more but 4 of it are allocated to "
        f"{', '.join(sorted(consumers))}"
    )
    assert agent.once().state == "in-sync"
    assert placement.other.inventory(ROOT) == {**HAS, "CUSTOM_L": licence(20, reserved=20)}
    for one in consumers:
        placement.other.release(one)
    agent.once()
    settled(agent, placement, agent_log, BOTH)


def test_after_a_conflict_the_entries_are_applied_anew(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    agent.once()
    files.write("a.yaml", default("CUSTOM_A", CUSTOM_L={"total": 20}))
    agent.stop()
    fleet_run = agent.driver.script

    def disturbed(tree: Any) -> None:
        if agent.driver.calls == before + 1:
            placement.other.set_traits(ROOT, {*placement.other.traits(ROOT), "CUSTOM_Z"})
        fleet_run(tree)

    before, agent.driver.script = agent.driver.calls, disturbed
    report = agent.once()
    assert (report.state, report.attempts) == ("changed", 2)
    agent.driver.script = fleet_run
    settled(agent, placement, agent_log, wanted("CUSTOM_A", "CUSTOM_Z", CUSTOM_L=licence(20)))


def test_a_provider_of_somebody_else_gets_nothing_and_stays_theirs(
    agent: AgentUnderTest, files: ProviderFiles, placement, agent_log
) -> None:
    agent.once()
    theirs = placement.other.create_provider("their-nic", parent=ROOT)
    placement.other.set_inventory(theirs, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000})
    before = placement.dump()
    files.write("a.yaml", by_name("their-nic", "CUSTOM_A"), default("CUSTOM_B"))
    report = agent.once()
    ((code, message),) = errors(report)
    assert code == "provider-config.conflict"
    assert "provider their-nic was put there by somebody else" in message
    settled(
        agent, placement, agent_log, {NAME: node(HAS, "CUSTOM_B")}, before=before, state="degraded"
    )


@pytest.mark.parametrize("incomplete", ["numa", "cpu", "units", "mdev", "pci"])
def test_what_a_file_gave_a_cell_is_not_taken_for_the_nodes_own_while_facts_are_incomplete(
    host: Host, files: ProviderFiles, placement: PlacementServer, incomplete: Any
) -> None:
    cells = Topology((Cell(0, frozenset({0, 1}), 4096), Cell(1, frozenset({2, 3}), 4096)))
    agent = host(
        policy=Policy(HostPolicy(dedicated=frozenset(range(4))), layout="nested"),
        provider_files=files.folder,
    )
    facts = HostFacts(
        NAME,
        time.time(),
        "QEMU",
        cpu=CpuFacts(frozenset(range(4))),
        memory_mib=8192,
        disk_gib=10,
        numa=cells,
    )
    agent.driver.facts_of = lambda _name: replace(facts, taken_at=time.time())
    given = {"total": 4, "max_unit": 4}
    files.write(
        "cell.yaml",
        by_name(f"{NAME}_NUMA0", "CUSTOM_FAST", CUSTOM_L=given),
        by_uuid(ROOT, CUSTOM_L=given),
    )
    agent.once()
    before = placement.dump()
    agent.driver.facts_of = lambda _name: replace(
        facts, taken_at=time.time(), incomplete={incomplete: "nobody answers"}, **{incomplete: None}
    )
    report = agent.once()
    assert [one.code for one in report.errors] == ["agent.error"]
    assert placement.dump() == before
    files.remove("cell.yaml")
    agent.once()
    left = {
        one["name"]: one["inventories"].keys() for one in placement.dump()["providers"].values()
    }
    assert not any("CUSTOM_L" in names for names in left.values())
