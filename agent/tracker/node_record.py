"""The record of a node as an audit writes it: created, updated, revived or taken over from another
host. Pure.
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
    """The identity of this agent."""

    host: str
    """``[DEFAULT] host``."""
    address: str | None
    """The IP address of the host; None if not configured."""
    lease_seconds: float
    """How long no other host can take over this host's nodes after a renewal, in seconds."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """What the store has on a node."""

    node: ComputeNode | None
    """The record with the node's uuid."""
    namesake: ComputeNode | None
    """The record of another node with the same name on this host."""
    lease: Lease | None
    """The lease on the node."""


def node_record(
    found: FoundNode, uuid: ProviderUuid, facts: HostFacts, agent: Agent, policy: Policy, now: float
) -> tuple[ComputeNode, RecordChanges]:
    """Return the record of the node with these facts, and the changes that have to be written for
    it.

    :raises NodeHeldElsewhere: another host manages the node and its lease has not ended.
    :raises ConfigError: the host has another node of that name.
    """
    changes = _lease_changes(found, uuid, agent, now)
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
    described = _describe(
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
    """Return whether no other host can have managed the node since ``host`` took or renewed the
    lease.
    """
    return lease is not None and lease.host == host and lease.live(now)


def _lease_changes(found: FoundNode, uuid: ProviderUuid, agent: Agent, now: float) -> RecordChanges:
    """Return the change that takes the lease, or renews a lease of which a third has passed."""
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


def _describe(node: ComputeNode, facts: HostFacts, agent: Agent, policy: Policy) -> ComputeNode:
    """Return the node's record with the driver's facts. What the driver does not report now keeps
    its stored value.
    """
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
