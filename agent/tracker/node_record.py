"""The record of a node as an audit writes it: made, brought up to date, revived or taken over from
another host. Pure.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import os_resource_classes as orc

from agent.errors import ConfigError
from agent.model.compute_node import ComputeNode, Lease
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.node_records import RecordChanges
from agent.tracker.errors import NodeHeldElsewhere
from agent.tree.policy import Policy

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Agent:
    """Who we are: ``[DEFAULT] host`` and its address; and how long nobody else takes our nodes
    over, in seconds.
    """

    host: str
    address: str | None
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class FoundNode:
    """What the store knows: the node by its uuid, another one by its name on our host, and who
    holds it.
    """

    node: ComputeNode | None
    namesake: ComputeNode | None
    lease: Lease | None


def node_record(
    found: FoundNode, uuid: ProviderUuid, facts: HostFacts, agent: Agent, policy: Policy, now: float
) -> tuple[ComputeNode, RecordChanges]:
    """The record of the node with these facts, and what has to be written so that it is so.

    :raises NodeHeldElsewhere: another host manages it and has not let go.
    :raises ConfigError: the host has another node of that name.
    """
    changes = _leased(found, uuid, agent, now)
    name, before = printable(facts.name), found.node
    if before is None and found.namesake is not None and not found.namesake.deleted:
        what = (
            f"node {name} of host {printable(agent.host)} has uuid {found.namesake.uuid} in the "
            f"store, the driver says {uuid}"
        )
        raise ConfigError(
            what, "give the node its old uuid back, or remove the old one with agent decommission"
        )
    if before is not None and before.host != agent.host:
        LOG.warning("node %s (%s) moved here from host %s", name, uuid, printable(before.host))
    if before is not None and before.deleted:
        LOG.warning("node %s (%s) was deleted and is back", name, uuid)
    described = _described(
        before or ComputeNode(uuid=uuid, host=agent.host, name=facts.name, created_at=now),
        facts,
        agent,
        policy,
    )
    if described == before:
        return described, changes
    written = replace(described, updated_at=now)
    return written, changes + RecordChanges(nodes=(written,))


def is_ours(lease: Lease | None, host: str, now: float) -> bool:
    """Whether nobody else can have managed the node since ``host`` took or renewed the lease."""
    return lease is not None and lease.host == host and lease.live(now)


def _leased(found: FoundNode, uuid: ProviderUuid, agent: Agent, now: float) -> RecordChanges:
    """The lease, renewed when a third of it is over."""
    lease = found.lease
    if lease is not None and lease.host != agent.host and lease.live(now):
        raise NodeHeldElsewhere(
            (
                f"node {uuid} is managed by host {printable(lease.host)} for "
                f"{lease.expires_at - now:.0f} s more, and not by {printable(agent.host)}"
            ),
            (
                "stop that agent, or give this host an identity of its own: a compute_id file may "
                "have been copied"
            ),
            holder=lease.host,
        )
    if lease is None and found.node is not None and found.node.host != agent.host:
        LOG.info("host %s has let go of node %s", printable(found.node.host), uuid)
    if (
        lease is not None
        and lease.host == agent.host
        and lease.expires_at - now > agent.lease_seconds * 2 / 3
    ):
        return RecordChanges()
    renewed = replace(
        lease or Lease(node=uuid, host="", expires_at=0.0),
        host=agent.host,
        expires_at=now + agent.lease_seconds,
    )
    return RecordChanges(leases=(renewed,))


def _described(node: ComputeNode, facts: HostFacts, agent: Agent, policy: Policy) -> ComputeNode:
    """The node with what the driver says. What it does not say now stays as it was."""
    cpu = facts.cpu
    stored: Mapping[str, float | None] = (
        {
            orc.VCPU: node.cpu_allocation_ratio,
            orc.MEMORY_MB: node.ram_allocation_ratio,
            orc.DISK_GB: node.disk_allocation_ratio,
        }
        if node.version
        else {}
    )
    return replace(
        node,
        host=agent.host,
        name=facts.name,
        host_ip=agent.address or node.host_ip,
        vcpus=len(cpu.pinnable) if cpu is not None else node.vcpus,
        memory_mb=facts.memory_mib if facts.memory_mib is not None else node.memory_mb,
        local_gb=facts.disk_gib_after(node.local_gb)
        if facts.disk_gib is not None
        else node.local_gb,
        hypervisor_type=facts.hypervisor_type,
        hypervisor_version=facts.hypervisor_version,
        cpu_info=" ".join(filter(None, (cpu.architecture, cpu.vendor, cpu.model)))
        if cpu is not None
        else node.cpu_info,
        cpu_allocation_ratio=policy.cpu_ratio.of(stored.get(orc.VCPU)),
        ram_allocation_ratio=policy.memory_ratio.of(stored.get(orc.MEMORY_MB)),
        disk_allocation_ratio=policy.disk_ratio.of(stored.get(orc.DISK_GB)),
        deleted=False,
    )
