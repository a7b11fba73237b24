"""The audits of the nodes' records: the step "usage" of a pass. Reads all, reconciles it purely, writes it at once, swaps it in."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from agent.desired.host_tree import choose_layout
from agent.desired.policy import Policy
from agent.desired.units import provider_of
from agent.errors import ConfigError, ConfigErrors, RecordConflict
from agent.model.assigned_unit import UnitRow
from agent.model.changes import Changes
from agent.model.facts import HostFacts
from agent.model.held_device import DeviceRow
from agent.model.names import ProviderUuid, child_uuid, printable
from agent.model.node_records import NodeRecords
from agent.model.provider_tree import ProviderTree
from agent.model.report import Drift
from agent.numa.present_guests import check_present_guests
from agent.pci.alias import Aliases
from agent.pci.provider_name import provider_name
from agent.tracker.domains import unknown_here
from agent.tracker.host_side import HostSide, host_side
from agent.tracker.node_record import Agent, Found, node_record
from agent.tracker.node_state import NodeState
from agent.tracker.node_view import NodeView
from agent.tracker.overcommit import overcommitted
from agent.tracker.reconcile import Rules, Shown, reconciled
from agent.tracker.record_store import Reading, RecordStore, Transaction
from agent.tracker.slot import Slot, locked
from agent.tracker.stats import stats
from agent.tracker.tracker import ATTEMPTS, Clock

LOG = logging.getLogger(__name__)

DAY = 86400.0

Devices = Callable[[ProviderUuid, HostFacts], tuple[DeviceRow, ...] | None]
"""The rows of the devices that are offered, and of those on the same cards; None if the host did not say."""
Misfits = Callable[[HostFacts], Iterable[ConfigError]]
"""Where the operator's options contradict the host."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator decided, and who we are."""

    agent: Agent
    policy: Policy
    rules: Rules
    devices: Devices
    misfits: Misfits = lambda _facts: ()
    aliases: Aliases = field(default_factory=dict)


class NodeAudits:
    """Keeps ``slots``, by node, in line with the store and the facts. Threads may share it."""

    def __init__(self, records: RecordStore, slots: dict[ProviderUuid, Slot], settings: Settings, clock: Clock) -> None:
        self._records, self._slots, self._settings, self._clock = records, slots, settings, clock
        self._adding = threading.Lock()
        self._tidied = self._kept = 0.0
        self._left = frozenset[ProviderUuid]()

    def audit(self, node: ProviderUuid, facts: HostFacts, present: ProviderTree, *, start: bool, dry_run: bool = False) -> NodeView:
        """Count what is promised on the node, on these facts; facts older than the last ones change nothing.

        ``present``: the node's tree as Placement was last seen to have it, to tell which provider counts which units.
        ``start``: what must not be wrong when an agent starts is an error.

        :raises NodeHeldElsewhere: another host manages the node.
        :raises ConfigErrors: the options contradict the host or what its guests have.
        :raises StoreError: the records cannot be read or written.
        """
        if start and (errors := [*self._contradictions(facts), *self._settings.misfits(facts)]):
            raise ConfigErrors(errors)
        with self._adding:
            slot = self._slots.setdefault(node, Slot(HostSide())) if not dry_run else self._slots.get(node, Slot(HostSide()))
        with locked({node: slot}, [node]):
            # Facts from before the last ones, unless it is the clock that went back.
            if slot.state is not None and facts.taken_at < slot.host.taken_at <= self._clock():
                LOG.debug("node %s: facts of %s are older than the last ones", printable(facts.name), facts.taken_at)
                return _view(slot.state, (), slot.created)
            policy = self._settings.policy
            host = host_side(facts, policy, self._settings.aliases, slot.host, nested=choose_layout(policy, present, node) == "nested")
            for _ in range(ATTEMPTS):
                try:
                    return self._audited(node, facts, host, slot, present, start=start, dry_run=dry_run)
                except RecordConflict as conflict:
                    LOG.debug("node %s: %s", printable(facts.name), conflict.message)
        raise RecordConflict(f"the records of node {printable(facts.name)} change all the time", "it is audited again in the next pass")

    def published(self, node: ProviderUuid, version: int) -> None:
        """What the node's records were at that version is in Placement now.

        :raises StoreError: that cannot be written down; the next audit does.
        """
        with locked(self._slots, [node]) as slots:
            state = slots[node].state if node in slots else None
            if state is None or not state.node.dirty or state.node.version != version:
                return
            done = Changes(nodes=(replace(state.node, dirty=False),))
            with self._records.transaction([node]) as transaction:
                if transaction.node_versions([node]).get(node) != version:
                    return
                transaction.write(done)
            slots[node].state = state.after(done)

    def unavailable(self, present: Collection[ProviderUuid]) -> None:
        """The driver offers only the nodes ``present`` now: nothing new is promised on the others."""
        for node, slot in list(self._slots.items()):
            if node not in present:
                with locked(self._slots, [node]):
                    slot.host = replace(slot.host, available=False)
                    slot.state = slot.state.on(slot.host) if slot.state is not None else None

    def waiting(self) -> frozenset[ProviderUuid]:
        """The nodes of which something is not published yet, or not known."""
        return frozenset(node for node, slot in list(self._slots.items()) if (state := slot.state) is None or state.node.dirty)

    def keep(self, present: Collection[ProviderUuid]) -> None:
        """Renew the leases on the nodes ``present``, all at once, because many of them are not audited every time; end those on nodes that left.

        :raises StoreError: the store cannot be written; the next audits renew them.
        """
        now, agent, here = self._clock(), self._settings.agent, frozenset(present)
        left = frozenset(self._slots) - here
        if 0 <= now - self._kept < agent.lease_seconds / 3 and left == self._left:
            return
        with self._records.transaction([]) as transaction:
            mine = transaction.leases(agent.host)
            due = [one for one in mine if one.node in here and one.expires_at - now <= agent.lease_seconds * 2 / 3]
            ended = [replace(one, expires_at=now) for one in mine if one.node in left and one.live(now)]
            if due or ended:
                transaction.write(Changes(leases=(*(replace(one, expires_at=now + agent.lease_seconds) for one in due), *ended)))
        self._kept, self._left = now, left

    def remove(self, node: ProviderUuid) -> None:
        """The node is no more, as its backend says: its record ends, and nobody holds it. That of another host is left alone."""
        host = self._settings.agent.host
        with self._adding, locked(self._slots, [node]):
            with self._records.transaction([node]) as transaction:
                found, lease, now = transaction.node(node), transaction.lease(node), self._clock()
                mine = found is not None and found.host == host and not found.deleted
                gone = Changes(nodes=(replace(found, deleted=True, updated_at=now),)) if found is not None and mine else Changes()
                if lease is not None and lease.host == host and lease.live(now):
                    gone += Changes(leases=(replace(lease, expires_at=now),))
                if gone:
                    transaction.write(gone)
            self._slots.pop(node, None)

    def tidy(self) -> None:
        """Once a day, remove the records of what has ended long ago.

        :raises StoreError: the store cannot be written.
        """
        now = self._clock()
        if now - self._tidied < DAY:
            return
        self._tidied = now
        if removed := self._records.remove_ended(now - self._settings.rules.keep_ended):
            LOG.info("%d records of what has ended long ago were removed", removed)

    def let_go(self) -> None:
        """End the leases of all nodes, so that another host can take them over at once."""
        nodes = list(self._slots)
        with self._records.transaction(nodes) as transaction:
            now, mine = self._clock(), [transaction.lease(node) for node in nodes]
            ended = tuple(replace(one, expires_at=now) for one in mine if one is not None and one.host == self._settings.agent.host)
            if ended:
                transaction.write(Changes(leases=ended))

    # --- parts -------------------------------------------------------------------------------------------------------

    def _contradictions(self, facts: HostFacts) -> Iterator[ConfigError]:
        """The options that name CPUs and cells which the host does not have. Later it may lose some: then they are not offered any more."""
        policy = self._settings.policy.host
        if facts.cpu is not None and facts.complete("cpu"):
            yield from policy.offline(facts.cpu.online)
            if facts.numa is not None and facts.complete("numa"):
                yield from policy.contradictions(facts.numa, facts.cpu.online)

    def _audited(self, node: ProviderUuid, facts: HostFacts, host: HostSide, slot: Slot, present: ProviderTree, *, start: bool, dry_run: bool) -> NodeView:
        """One attempt: all that was planned is written, or nothing."""
        with self._records.reading() if dry_run else self._records.transaction([node]) as reading:
            records, changes, created = self._recorded(reading, node, facts)
            now, shown = self._clock(), self._shown(node, facts, present)
            strangers = [one.uuid for one in unknown_here(records, shown.domains or ())]
            owners = reading.consumers(strangers).instances if strangers else {}
            found = reconciled(records, replace(shown, owners=owners), self._settings.rules, slot.told, now)
            changes += found.changes
            state = NodeState.of(records, host.with_orphans(found.orphans)).after(changes)
            state = state.counted_by(_device_providers(state, present))
            if start:
                self._check_start(state)
            if changes and not dry_run:
                cast(Transaction, reading).write(changes)
        if not dry_run:
            slot.agent, slot.host, slot.state, slot.told, slot.created = self._settings.agent.host, state.host, state, found.stranded, created
        for problem in state.problems:
            LOG.error("node %s: %s", printable(facts.name), problem)
        return _view(state, (*found.drift, *overcommitted(state.node, state.host.reserved, state.used)), created)

    def _recorded(self, reading: Reading, node: ProviderUuid, facts: HostFacts) -> tuple[NodeRecords, Changes, bool]:
        """The node's records as they will be with its own record brought up to date, and whether that is new."""
        settings = self._settings
        found = Found(reading.node(node), reading.node_named(settings.agent.host, facts.name), reading.lease(node))
        record, changes = node_record(found, node, facts, settings.agent, settings.policy, self._clock())
        records = reading.load(node) or NodeRecords(record)
        return replace(records, node=record), changes, found.node is None

    def _shown(self, node: ProviderUuid, facts: HostFacts, present: ProviderTree) -> Shown:
        units = None
        if facts.complete("units"):
            units = tuple(
                UnitRow(
                    node=node, provider=provider_of(one, facts.name, node, present), resource_class=one.resource_class,
                    identifier=one.identifier, metadata=one.metadata,
                ) for one in facts.units or ()
            )  # fmt: skip
        return Shown(facts.taken_at, self._settings.devices(node, facts), units, facts.domains if facts.complete("domains") else None)

    def _check_start(self, state: NodeState) -> None:
        """What an agent must not start on.

        :raises ConfigErrors: units that are assigned are gone; guests have CPUs that are not offered.
        """
        name = printable(state.node.name)
        errors = [
            ConfigError(
                f"unit {printable(one.identifier)} of class {one.resource_class} is gone from node {name}, and claim {one.holder} has it",
                "configure it again, or remove the guest first",
            ) for one in state.units.values() if not one.present and one.holder is not None
        ]  # fmt: skip
        try:
            check_present_guests(self._settings.policy.host, [(one.instance, one.cells) for one in state.claims.values() if one.purpose != "devices"])
        except ConfigErrors as several:
            errors += several.errors
        if errors:
            raise ConfigErrors(errors)


def _view(state: NodeState, drift: tuple[Drift, ...], created: bool) -> NodeView:
    node = state.node
    numbers = stats(state.instances.values(), {}, node.failed_builds)
    return NodeView(node.uuid, state.usage, state, created, state.problems, drift, numbers, node.version)


def _device_providers(state: NodeState, present: ProviderTree) -> dict[str, ProviderUuid]:
    """Which provider counts each device: the one that Placement has, or the one that this pass makes, because claims come before the next."""
    names = {address: provider_name(state.node.name, one) for address, one in state.devices.items()}
    return {address: present.provider(name).uuid if present.exists(name) else child_uuid(state.node.uuid, name) for address, name in names.items()}
