"""The record of a node as an audit writes it (created, updated, revived or taken over from another
host), and the capacity of the node's host before any guest. Pure.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import os_resource_classes as orc

from agent.errors import ConfigError
from agent.model.devices import MdevSource
from agent.model.facts import CpuFacts, Domain, HostFacts
from agent.model.instance import NOTHING, Amounts
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import ComputeNode, Lease, RecordChanges
from agent.numa.host import HostCell, Strategy
from agent.pci.device_request import Aliases
from agent.tracker.errors import NodeHeldElsewhere
from agent.tracker.stored_state import BuildResult
from agent.tree.host_tree import offered_cpus
from agent.tree.policy import Policy

LOG = logging.getLogger(__name__)

RENEWED_AT = 2 / 3
"""A lease is renewed once less than this share of its time is left."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The identity of this agent."""

    host: str
    """``[DEFAULT] host``."""
    address: str | None
    """The IP address of the host; None if not configured."""
    lease_seconds: float
    """How long no other host can take over this host's nodes after a renewal, in seconds."""
    identity: ProviderUuid | None = None
    """The uuid of the host's own node; None if its nodes are those of a backend."""


def node_record(
    before: ComputeNode | None,
    namesake: ComputeNode | None,
    uuid: ProviderUuid,
    facts: HostFacts,
    agent: Agent,
    policy: Policy,
    now: float,
) -> tuple[ComputeNode, RecordChanges]:
    """Return the record of the node with these facts, and the change that writes it, if it differs.
    ``before``: the record with the node's uuid; ``namesake``: that of another node with the same
    name on this host.

    :raises ConfigError: the host has another node of that name.
    """
    name = printable(facts.name)
    if before is None and namesake is not None and not namesake.deleted:
        what = (
            f"node {name} of host {printable(agent.host)} has uuid {namesake.uuid} in the store, "
            f"the driver says {uuid}"
        )
        raise ConfigError(
            what,
            "give the node its old uuid back; or remove the old one: agent decommission "
            f"{namesake.uuid}",
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
        return described, RecordChanges()
    written = replace(described, updated_at=now)
    return written, RecordChanges(nodes=(written,))


def is_ours(lease: Lease | None, host: str, now: float) -> bool:
    """Return whether no other host can have managed the node since ``host`` took or renewed the
    lease.
    """
    return lease is not None and lease.host == host and lease.live(now)


def lease_changes(
    lease: Lease | None, owner: str | None, uuid: ProviderUuid, agent: Agent, now: float
) -> RecordChanges:
    """Return the change that takes the lease, or renews a lease of which a third has passed.
    ``owner``: the host whose record of the node is in the store.

    :raises NodeHeldElsewhere: another host manages the node and its lease has not ended.
    """
    if lease is not None and lease.host != agent.host and lease.live(now):
        raise NodeHeldElsewhere(
            (
                # Without the time that is left: it would be another line in each pass.
                f"node {uuid} is managed by host {printable(lease.host)}, whose lease has not "
                f"ended, and not by {printable(agent.host)}"
            ),
            (
                "stop that agent; or, if compute_id was copied from there, give this host an "
                "identity of its own: agent identity set $(cat /proc/sys/kernel/random/uuid)"
            ),
            holder=lease.host,
        )
    if lease is None and owner is not None and owner != agent.host:
        LOG.info("host %s has let go of node %s", printable(owner), uuid)
    if (
        lease is not None
        and lease.host == agent.host
        and lease.expires_at - now > agent.lease_seconds * RENEWED_AT
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


def count_build(node: ComputeNode, result: BuildResult, now: float) -> RecordChanges:
    """Return the change that counts one more failed build in a row, or resets the count."""
    failed = node.failed_builds + 1 if result == "failed" else 0
    if failed == node.failed_builds:
        return RecordChanges()
    return RecordChanges(nodes=(replace(node, failed_builds=failed, updated_at=now),))


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What a claim needs to know of the host, beside the records."""

    reserved: Amounts = NOTHING
    """What the operator keeps for the host, with the amounts of ``orphans``."""
    cells: tuple[HostCell, ...] = ()
    """The NUMA cells; empty where there is nothing to fit."""
    strategy: Strategy = "spread"
    """Which cells are taken first."""
    taken_at: float = 0.0
    """When the facts were taken, in seconds since the epoch."""
    cells_known: bool = False
    """Whether the driver has reported CPUs and cells completely since the agent started."""
    shares_cpus: bool = True
    """Whether the node offers shared CPUs, or it is not known yet."""
    strict: bool = False
    """Whether every guest has to have a topology."""
    available: bool = True
    """Whether the driver offers the node."""
    device_providers: Mapping[str, ProviderUuid] = field(default_factory=dict)
    """Device address to the provider that counts the device, if any does."""
    cell_providers: Mapping[ProviderUuid, int] = field(default_factory=dict)
    """Provider to the id of the cell that it counts."""
    aliases: Aliases = field(default_factory=dict)
    """The aliases by which flavors request devices."""
    moved_devices: Mapping[str, str] = field(default_factory=dict)
    """Devices that guests on record have, at other addresses than recorded: present to recorded
    address.
    """
    orphans: Mapping[ConsumerUuid, Amounts] = field(default_factory=dict)
    """The guests without records, with the amounts that are counted for them."""
    mdevs: tuple[MdevSource, ...] | None = None
    """The parents of mediated devices as the providers count them; None before they are known."""
    mediated: frozenset[str] = frozenset()
    """The devices of which mediated devices exist, of any type."""
    cpu: CpuFacts | None = None
    """The CPUs as the hypervisor last showed them."""
    guests: tuple[Domain, ...] | None = None
    """All guests that the hypervisor shows, None if its driver does not report guests."""
    guests_incomplete: str = ""
    """Why the driver could not report all guests; else empty."""

    def without_orphans(self, claimed: Collection[ConsumerUuid]) -> Self:
        """Return the capacity without those orphans that have claims now, because the claims are
        counted.
        """
        found = self.orphans.keys() & set(claimed) if self.orphans else ()
        if not found:
            return self
        left = {uuid: amounts for uuid, amounts in self.orphans.items() if uuid not in found}
        return replace(
            self,
            reserved=self.reserved - sum((self.orphans[uuid] for uuid in found), NOTHING),
            orphans=left,
        )


def host_capacity(
    facts: HostFacts, policy: Policy, aliases: Aliases, last: HostCapacity, *, nested: bool
) -> HostCapacity:
    """Return the capacity by these facts; what they do not report completely is taken from
    ``last``. ``nested``: the cells have providers.
    """
    has_cpus = facts.cpu is not None or not facts.complete("cpu")
    reserved = (
        Amounts(
            policy.reserved_memory_mib,
            policy.reserved_cpus,
            policy.reserved_disk_mib + facts.image_cache_gib * 1024,
        )
        if has_cpus
        else NOTHING
    )
    cells: tuple[HostCell, ...] = ()
    cpu = facts.cpu if facts.complete("cpu") else last.cpu
    cells_known = facts.complete("cpu") and facts.complete("numa")
    if not cells_known:
        cells, cells_known = last.cells, last.cells_known
    elif facts.numa is not None and facts.cpu is not None:
        cells = policy.host.cells(facts.numa, facts.cpu.online, facts.cpu.sleeping)
    return HostCapacity(
        reserved,
        cells,
        policy.host.strategy,
        facts.taken_at,
        cells_known=cells_known,
        shares_cpus=cpu is None or bool(offered_cpus(cpu, policy).shared),
        strict=policy.strict and nested and (bool(cells) or not cells_known),
        aliases=aliases,
        mdevs=last.mdevs,
        mediated=frozenset(parent.name for parent in facts.mdev or () if parent.mdevs)
        if facts.complete("mdev")
        else last.mediated,
        cpu=cpu,
        guests=facts.domains,
        guests_incomplete=facts.incomplete.get("domains", ""),
    )
