"""Usage step of a pass: the audit of a node's records. Reads the records, reconciles them by pure
functions, writes all changes in one transaction, and applies them to the state in memory.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent.errors import AgentError, ConfigError, ConfigErrors, RecordConflict, StoreError
from agent.model.devices import DeviceRecord, PciDevice, UnitRecord
from agent.model.facts import HostFacts
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.node_records import ComputeNode, Lease, NodeRecords, RecordChanges
from agent.model.provider_tree import ProviderTree
from agent.pci.device_request import Aliases
from agent.store.reading import RecordReader
from agent.store.records import Records, Transaction
from agent.tracker.claim_usage import Seen, note_reserved_amounts, with_counting_providers
from agent.tracker.domains import known_guests
from agent.tracker.node_drift import drift_of_records, moved_devices, option_errors
from agent.tracker.node_entry import IdleCount, ListedNodes, NodeEntry, lock_nodes
from agent.tracker.node_record import (
    Agent,
    HostCapacity,
    host_capacity,
    is_ours,
    lease_changes,
    node_record,
)
from agent.tracker.node_state import NodeState, NodeView
from agent.tracker.reconcile import (
    ObservedHost,
    ReconcileRules,
    reconcile,
)
from agent.tracker.stored_state import (
    ATTEMPTS,
    Clock,
)
from agent.tree.children import unit_provider
from agent.tree.host_tree import choose_layout
from agent.tree.policy import Policy

LOG = logging.getLogger(__name__)

DAY = 86400.0

KnownDevices = Sequence[PciDevice] | None
Devices = Callable[[ProviderUuid, KnownDevices], tuple[DeviceRecord, ...] | None]
"""Function from a node and its devices to the records of those that are offered and of those on the
same cards; None if the host did not report its devices.
"""
Misfits = Callable[[KnownDevices], Iterable[ConfigError]]
"""Function from devices to the errors of options that contradict the host."""


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """The operator's options for the usage step, and the identity of the agent."""

    agent: Agent
    policy: Policy
    rules: ReconcileRules
    devices: Devices
    misfits: Misfits = lambda _devices: ()
    aliases: Aliases = field(default_factory=dict)
    observes: bool = False
    """Another program manages the nodes: the store is not asked, whoever has them on record."""


class UsageStep:
    """The usage step of all nodes. Threads may share it.

    Keeps ``entries``, by node, in line with the store and the facts, and ``listed`` with the nodes
    that the driver lists.
    """

    def __init__(
        self,
        records: Records,
        entries: dict[ProviderUuid, NodeEntry],
        listed: ListedNodes,
        settings: UsageSettings,
        clock: Clock,
    ) -> None:
        self._records, self._entries, self._listed, self._settings, self._clock = (
            records,
            entries,
            listed,
            settings,
            clock,
        )
        self._adding = threading.Lock()
        # The versions in the store of the records of idle nodes, each for one audit.
        self._versions: dict[ProviderUuid, int] = {}
        # The nodes of which the store has nothing, each for one audit: they need not be read.
        self._unknown = set[ProviderUuid]()
        self._tidied = 0.0

    def audit(
        self,
        node: ProviderUuid,
        facts: HostFacts,
        present: ProviderTree,
        *,
        start: bool,
        dry_run: bool = False,
    ) -> NodeView:
        """Reconcile the node's records with the facts, and return its usage. Facts older than the
        last ones change nothing.

        ``present``: the node's tree as Placement was last seen to have it, to find the provider
        that counts each unit. ``start``: whether contradictions that must not exist when an agent
        starts raise an error.

        :raises NodeHeldElsewhere: another host manages the node.
        :raises ConfigErrors: the options contradict the host.
        :raises StoreError: the records cannot be read or written.
        """
        policy = self._settings.policy
        if start:
            ConfigErrors.raise_if_any(
                [*option_errors(facts, policy.host), *self._settings.misfits(facts.known_devices)]
            )
        with self._adding:
            entry = self._entries.get(node) or NodeEntry(HostCapacity())
            if not dry_run:
                self._entries[node] = entry
        with lock_nodes({node: entry}, [node]):
            # Older facts, unless the clock was set back.
            if entry.state is not None and facts.taken_at < entry.host.taken_at <= self._clock():
                LOG.debug(
                    "node %s: facts of %s are older than the last ones",
                    printable(facts.name),
                    facts.taken_at,
                )
                return NodeView(
                    entry.state.usage,
                    entry.state,
                    entry.created,
                    version=entry.state.node.version,
                )
            if not (start or dry_run):
                if (again := self._repeated(node, facts, entry, present)) is not None:
                    return again
                # Unknown until this count has ended well.
                entry.idle = None
            host = host_capacity(
                facts,
                policy,
                self._settings.aliases,
                entry.host,
                nested=choose_layout(policy, present, node) == "nested",
            )
            for _ in range(ATTEMPTS):
                try:
                    return self._attempt(node, facts, host, entry, present, dry_run=dry_run)
                except RecordConflict as conflict:
                    LOG.debug("node %s: %s", printable(facts.name), conflict.message)
        raise RecordConflict(
            f"the records of node {printable(facts.name)} change all the time",
            "it is audited again in the next pass",
        )

    def _repeated(
        self,
        node: ProviderUuid,
        facts: HostFacts,
        entry: NodeEntry,
        present: ProviderTree,
    ) -> NodeView | None:
        """Return the result of the last count, if another one would come to the same."""
        idle, version = entry.idle, self._versions.pop(node, None)
        if idle is None or not idle.repeats(entry.state, facts, present, version, self._clock()):
            return None
        entry.host = replace(entry.host, taken_at=facts.taken_at)
        return idle.view

    def read_versions(self, nodes: Collection[ProviderUuid]) -> Collection[ProviderUuid]:
        """Read the versions of the nodes' records, so that the next audits of those that nobody
        changed need not read all their records. Return the nodes of which the store has nothing.
        """
        self._versions, self._unknown = {}, set()
        known = [node for node in nodes if (entry := self._entries.get(node)) and entry.idle]
        others = self._entries.keys() | {self._settings.agent.identity}
        new = [] if self._settings.observes else [node for node in nodes if node not in others]
        if not (known or new):
            return ()
        # If the records cannot be read, the audits themselves meet the error and report it.
        with suppress(StoreError), self._records.reading() as reading:
            self._versions = dict(reading.quiet_versions(known))
            self._unknown = reading.unknown(new)
        return frozenset(self._unknown)

    def add_new_node(self, node: ProviderUuid) -> None:
        """Write the record and the lease of a node that is new to the store; from then on it can be
        claimed on. To be called after its audit, before anything of it is written to Placement.

        :raises RecordConflict: another agent wrote them first.
        :raises StoreError: the store cannot be written.
        """
        # Without the lock, because only the node's own audit writes the field.
        if (known := self._entries.get(node)) is None or known.unwritten is None:
            return
        with lock_nodes(self._entries, [node]) as entries:
            entry = entries.get(node)
            if entry is None or entry.unwritten is None:
                return
            changes, entry.unwritten = entry.unwritten, None
            try:
                self._records.add_new_node(changes)
            except AgentError:
                self._entries.pop(node)
                raise
            entry.agent = self._settings.agent.host

    def forget(self, node: ProviderUuid) -> None:
        """Forget a node whose record could not be written."""
        with lock_nodes(self._entries, [node]):
            self._entries.pop(node, None)

    def note_reserved(self, view: NodeView, seen: Seen, *, dry_run: bool = False) -> NodeView:
        """Record what Placement has reserved of the node's cards. Returns ``view`` with these
        changes.

        :raises RecordConflict: another process changed the node at the same time.
        :raises StoreError: the records cannot be written.
        """
        if not (changes := note_reserved_amounts(view.state.devices, seen)):
            return view
        if dry_run:
            return replace(view, state=view.state.after(changes))
        node = view.state.node.uuid
        with lock_nodes(self._entries, [node]) as entries:
            # Claims that were made since the records were counted must not be lost. A node that has
            # no state in memory is left to another audit.
            state = entries[node].state if node in entries else None
            if state is None or not (changes := note_reserved_amounts(state.devices, seen)):
                return view
            with self._records.transaction([node]) as transaction:
                transaction.write(changes)
            version, entries[node].state = state.node.version, state.after(changes)
            return replace(
                view,
                state=state.after(changes),
                version=version + 1 if version == view.version else view.version,
            )

    def mark_published(self, node: ProviderUuid, version: int) -> None:
        """Record that the node's records of that version are in Placement now.

        :raises StoreError: the store cannot be written; the next audit repeats it.
        """
        with lock_nodes(self._entries, [node]) as entries:
            state = entries[node].state if node in entries else None
            if state is None or not state.node.dirty or state.node.version != version:
                return
            done = RecordChanges(nodes=(replace(state.node, dirty=False),))
            with self._records.transaction([node]) as transaction:
                if transaction.node_versions([node]).get(node) != version:
                    return
                transaction.write(done)
            entries[node].state = state.after(done)

    def set_listed_nodes(self, present: Collection[ProviderUuid]) -> None:
        """Stop new claims on all nodes but those of ``present``, because the driver offers only
        these.
        """
        # A driver that lists no node, or an agent that stands by, does not mean that no nodes
        # exist.
        self._listed.nodes = frozenset(present) or None
        for node in list(self._entries):
            if node not in present:
                self.stop_claims(node)

    def stop_claims(self, node: ProviderUuid) -> None:
        """Stop new claims on the node until its next audit."""
        with lock_nodes(self._entries, [node]) as entries:
            if (entry := entries.get(node)) is not None:
                entry.host = replace(entry.host, available=False)
                entry.state = entry.state.on(entry.host) if entry.state is not None else None

    def unpublished_nodes(self) -> frozenset[ProviderUuid]:
        """Return the nodes with changes that are not published yet, or with an unknown state."""
        return frozenset(
            node
            for node, entry in list(self._entries.items())
            if (state := entry.state) is None or state.node.dirty
        )

    def mark_deleted(self, node: ProviderUuid) -> None:
        """Mark the node deleted and end its lease, because the backend says that the node does not
        exist any more. Records and leases of another host are left alone.
        """
        host = self._settings.agent.host
        with self._adding, lock_nodes(self._entries, [node]):
            with self._records.transaction([node]) as transaction:
                found, lease, now = transaction.node(node), transaction.lease(node), self._clock()
                mine = found is not None and found.host == host and not found.deleted
                gone = (
                    RecordChanges(nodes=(replace(found, deleted=True, updated_at=now),))
                    if found is not None and mine
                    else RecordChanges()
                )
                if lease is not None and lease.host == host and lease.live(now):
                    gone += RecordChanges(leases=(replace(lease, expires_at=now),))
                if gone:
                    transaction.write(gone)
            self._entries.pop(node, None)

    def remove_ended_records(self) -> None:
        """Once a day, remove the records of what has ended long ago.

        :raises StoreError: the store cannot be written.
        """
        now = self._clock()
        if now - self._tidied < DAY:
            return
        removed = self._records.remove_ended(now - self._settings.rules.keep_ended)
        self._tidied = now
        if removed:
            LOG.info("%d records of what has ended long ago were removed", removed)

    # --- parts ------------------------------------------------------------------------------------

    def _attempt(
        self,
        node: ProviderUuid,
        facts: HostFacts,
        host: HostCapacity,
        entry: NodeEntry,
        present: ProviderTree,
        *,
        dry_run: bool,
    ) -> NodeView:
        """Make one attempt at the audit: either all changes are written, or none. Those of a node
        that is new to the store wait for :meth:`enter`.
        """
        agent, observes = self._settings.agent, self._settings.observes
        new = node in self._unknown
        self._unknown.discard(node)
        only_reads = new or dry_run
        with (
            self._records.reading() if only_reads else self._records.transaction([node]) as reading
        ):
            now, lease = self._clock(), None if observes or new else reading.lease(node)
            stored, changes = self._read_records(
                reading, node, facts, lease, entry.state, unread=observes or new
            )
            shown = self._observe(node, facts, present, reading, stored)
            found = reconcile(stored, shown, self._settings.rules, now)
            reserved = sum(found.orphans.values(), host.reserved)
            counted = NodeState.of(stored, replace(host, reserved=reserved, orphans=found.orphans))
            state, changes = _with_moved_devices(counted, changes + found.changes, facts)
            state = with_counting_providers(state, facts, present, self._settings.policy)
            if changes and isinstance(reading, Transaction):
                reading.write(changes)
        for problem in state.problems:
            LOG.error("node %s: %s", printable(facts.name), problem)
        view = NodeView(
            state.usage,
            state,
            stored.node.version == 0,
            (*found.drift, *drift_of_records(state, self._settings.policy.host)),
            state.node.version,
            taken=not observes and not is_ours(lease, agent.host, now),
        )
        if not dry_run:
            entry.agent = None if new else agent.host
            entry.unwritten = changes if new else None
            entry.host, entry.state, entry.created = state.host, state, view.created
            overdue = self._settings.rules.stranded_after
            entry.idle = (
                None if changes else IdleCount.of(view, facts, present, lease, agent, overdue, now)
            )
        return view

    def _former_records(
        self,
        reading: RecordReader,
        node: ProviderUuid,
        name: str,
        running: Collection[ConsumerUuid],
    ) -> ComputeNode | None:
        """Give the records that the host's own node, called ``name``, has under another uuid,
        because the identity of the host was set, or nova's is read since, the present one. A dry
        run returns the record that would get it. ``running``: the guests that the hypervisor shows.
        """
        agent = self._settings.agent
        if self._settings.observes or node != agent.identity:
            return None
        former = reading.node_named(agent.host, name)
        if former is None or former.deleted or former.uuid == node:
            return None
        if not isinstance(reading, Transaction):
            return former if reading.node(node) is None else None
        for guest in reading.change_uuid(former.uuid, node, running):
            LOG.warning(
                "node %s: instance %s has a claim under either uuid of the host, or one of what "
                "another one has: the claim of the two that runs, or is later, stays",
                printable(name),
                guest,
            )
        return None

    def _read_records(
        self,
        reading: RecordReader,
        node: ProviderUuid,
        facts: HostFacts,
        lease: Lease | None,
        known: NodeState | None,
        *,
        unread: bool,
    ) -> tuple[NodeRecords, RecordChanges]:
        """Return the node's records with its own record brought up to date, and the changes for
        that. ``known``: the node's state in memory.
        """
        agent, policy, now = self._settings.agent, self._settings.policy, self._clock()
        shown = facts.domains if facts.complete("domains") else None
        former = self._former_records(
            reading, node, facts.name, [guest.uuid for guest in shown or ()]
        )
        before = namesake = None
        if not unread:
            before = reading.node(node) if former is None else replace(former, uuid=node)
            if node != agent.identity:
                namesake = reading.node_named(agent.host, facts.name)
        leased = lease_changes(lease, before.host if before else None, node, agent, now)
        record, changes = node_record(before, namesake, node, facts, agent, policy, now)
        records = None
        if former is not None:
            found = reading.load(former.uuid)
            records = None if found is None else found.with_uuid(node)
        elif before is not None:
            records = _records_in_memory(reading, known) or reading.load(node)
        return replace(records or NodeRecords(record), node=record), leased + changes

    def _observe(
        self,
        node: ProviderUuid,
        facts: HostFacts,
        present: ProviderTree,
        reading: RecordReader,
        records: NodeRecords,
    ) -> ObservedHost:
        """Return what the facts show, as the reconciliation of ``records`` needs it."""
        units = None
        if facts.complete("units"):
            units = tuple(
                UnitRecord(
                    node=node,
                    provider=unit_provider(unit, facts.name, node, present),
                    resource_class=unit.resource_class,
                    identifier=unit.identifier,
                    metadata=unit.metadata,
                )
                for unit in facts.units or ()
            )
        guests = facts.domains if facts.complete("domains") else None
        known = known_guests(records.claims, records.instances, records.migrations)
        asked = [guest.uuid for guest in guests or () if guest.uuid not in known]
        asked += [migration.instance for migration in records.migrations]
        return ObservedHost(
            facts.taken_at,
            self._settings.devices(node, facts.known_devices),
            units,
            guests,
            reading.consumers(asked).instances if asked else {},
            facts.numa,
        )


def _records_in_memory(reading: RecordReader, known: NodeState | None) -> NodeRecords | None:
    """Return the records of the state in memory if the store has the same: reading thousands of
    them would keep the node's claims waiting. None if they have to be read.
    """
    if known is None or known.damaged or known.migrations:
        return None
    node = known.node
    if reading.quiet_versions([node.uuid]).get(node.uuid) != node.version:
        return None
    return known.records


def _with_moved_devices(
    counted: NodeState, changes: RecordChanges, facts: HostFacts
) -> tuple[NodeState, RecordChanges]:
    """Return the state after ``changes``, and these, with the devices that most likely are a
    guest's at another address: recorded as not present, so that the addresses are known as new
    until it is settled whose devices they are.
    """
    state = counted.after(changes)
    if facts.pci is None or not facts.complete("pci"):
        return state, changes
    here = {str(device.address): device for device in facts.pci}
    there = {row.address for row in counted.devices.values() if row.present}
    moved = moved_devices(state.devices, state.claims, here, facts.domains or (), there)
    if moved:
        rows = [
            replace(row, present=False) if row.address in moved else row for row in changes.devices
        ]
        new = tuple(row for row in rows if row != counted.devices.get(row.address))
        changes = replace(changes, devices=new)
        state = counted.after(changes)
    return replace(state, host=replace(state.host, moved_devices=moved)), changes
