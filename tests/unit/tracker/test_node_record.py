"""The record of a node and its lease, as an audit writes them."""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.facts import CpuFacts, HostFacts
from agent.model.names import ProviderUuid
from agent.model.node_records import ComputeNode, Lease, RecordChanges
from agent.tracker.node_record import Agent, FoundNode, node_record
from agent.tree.policy import Policy

NOW, LEASE = 1_000_000.0, 300.0
UUID, OTHER = (
    ProviderUuid("11111111-0000-4000-8000-000000000001"),
    ProviderUuid("11111111-0000-4000-8000-000000000002"),
)
US = Agent("HA", "192.0.2.1", LEASE)
FACTS = HostFacts(
    "node-a",
    NOW,
    "QEMU",
    8000,
    CpuFacts(frozenset(range(4)), "x86_64", "Nehalem", "Intel"),
    8192,
    100,
)
MINE = Lease(node=UUID, host="HA", expires_at=NOW + LEASE, version=1)
KNOWN = ComputeNode(
    uuid=UUID,
    host="HA",
    name="node-a",
    host_ip="192.0.2.1",
    vcpus=4,
    memory_mb=8192,
    local_gb=100,
    hypervisor_type="QEMU",
    hypervisor_version=8000,
    cpu_info="x86_64 Intel Nehalem",
    cpu_allocation_ratio=4.0,
    created_at=1.0,
    updated_at=2.0,
    version=7,
)


def recorded(
    node: ComputeNode | None = KNOWN,
    lease: Lease | None = MINE,
    *,
    facts: HostFacts = FACTS,
    namesake: ComputeNode | None = None,
    us: Agent = US,
    **policy: Any,
) -> tuple[ComputeNode, RecordChanges]:
    return node_record(FoundNode(node, namesake, lease), UUID, facts, us, Policy(**policy), NOW)


# --- the record -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        ({"memory_mib": 4096}, {"memory_mb": 4096}),
        ({"memory_mib": 0, "disk_gib": 0}, {"memory_mb": 0, "local_gb": 0}),
        ({"cpu": CpuFacts(frozenset({0, 1}), "aarch64")}, {"vcpus": 2, "cpu_info": "aarch64"}),
        ({"name": "node-b"}, {"name": "node-b"}),
        (
            {"hypervisor_type": "KVM", "hypervisor_version": 9},
            {"hypervisor_type": "KVM", "hypervisor_version": 9},
        ),
        # What the driver does not tell now stays.
        ({"cpu": None, "memory_mib": None, "disk_gib": None}, {}),
    ],
)
def test_what_the_driver_says_is_written_down(
    said: dict[str, Any], becomes: dict[str, Any]
) -> None:
    node, changes = recorded(facts=replace(FACTS, **said))
    assert node == replace(KNOWN, **becomes, updated_at=NOW if becomes else KNOWN.updated_at)
    assert changes == (RecordChanges(nodes=(node,)) if becomes else RecordChanges())


def test_an_agent_without_an_address_keeps_the_one_that_was_known() -> None:
    assert recorded(us=replace(US, address=None)) == (KNOWN, RecordChanges())
    assert recorded(us=replace(US, address="192.0.2.9"))[0].host_ip == "192.0.2.9"


def test_a_name_that_only_a_deleted_node_had_is_free() -> None:
    assert recorded(None, None, namesake=replace(KNOWN, uuid=OTHER, deleted=True))[0].uuid == UUID


# --- the lease ------------------------------------------------------------------------------------
