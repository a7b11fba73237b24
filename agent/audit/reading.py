"""The reads of an audit of one node: what each attempt begins with, and what its plan needs beside.

Nothing else in an audit reads from the driver, the records or Placement.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import os_resource_classes as orc
import os_traits

from agent.audit import observation as needs
from agent.audit.allocations import NOT_REPORTED_BY_NOVA, reported_by_nova, root_and_cells
from agent.audit.context import AuditContext, AuditedNode, AuditOptions
from agent.audit.observation import (
    LastOutcome,
    Observation,
    PlanOutcome,
    TreeObservation,
)
from agent.audit.remembered import AskedNova, GuestAllocationsRead, Surpluses
from agent.audit.run import AuditRun
from agent.driver.answers import node_capabilities, node_facts
from agent.driver.interface import (
    Allocations,
    ReportsCapabilities,
    ShapesTree,
    UpdatesProviderTree,
)
from agent.errors import (
    AgentError,
    DriverError,
    PlacementRefused,
    ProviderIdentityConflict,
    ProviderNameConflict,
    ReshapeNeeded,
)
from agent.model.facts import HostFacts
from agent.model.inventory import Allocation, capacity
from agent.model.mirror import REPARENT
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.operation import ProviderRef
from agent.model.provider_tree import BaseTree, DesiredTree, Provider, ProviderExists, ProviderTree
from agent.placement import clock
from agent.placement.answers import Row
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.exchange import MirrorInsufficient
from agent.placement.node_state import NodePlacementState
from agent.placement.sending import name_conflict
from agent.placement.server import learn_traits
from agent.tracker.allocations import is_used_elsewhere
from agent.tracker.claim_usage import device_uses, with_promised
from agent.tracker.domains import guest_places, with_observed_guests
from agent.tracker.errors import NodeHeldElsewhere
from agent.tracker.node_drift import lost_devices, nothing_left, unreservable_pages
from agent.tracker.node_state import NodeState, NodeView
from agent.tree.children import lessened_mdevs, with_allocated
from agent.tree.desired_tree import other_marks
from agent.tree.device_providers import reserved_of_cards
from agent.tree.reported_cards import DeviceUses
from agent.tree.reshape.allocation_editor import Sharing
from agent.tree.reshape.moving import sharing_providers

LOG = logging.getLogger(__name__)


class Reader:
    """Reads what the audits of one node need. Kept for the life of the process."""

    def __init__(
        self,
        node: AuditedNode,
        context: AuditContext,
        placement_state: NodePlacementState,
        surpluses: Surpluses,
    ) -> None:
        self.node, self.context, self.placement_state = node, context, placement_state
        driver = context.driver
        # Checked once, because isinstance() on a Protocol takes as long as some audits.
        self._reports_capabilities = driver if isinstance(driver, ReportsCapabilities) else None
        self._shapes_all = driver if isinstance(driver, UpdatesProviderTree) else None
        self._shapes_part = driver if isinstance(driver, ShapesTree) else None
        self._driver_shapes: needs.DriverShapes = (
            "all" if self._shapes_all else "part" if self._shapes_part else "nothing"
        )
        # ``_counted``: an audit has counted the node. ``_uncertain``: the last count failed, so the
        # lease may have been lost.
        self._counted = self._uncertain = False
        self._surpluses = surpluses
        self._uses: tuple[NodeState, DeviceUses] | None = None
        """The records that the last audit saw, and the uses that they show."""
        self._records = context.tracking.consumer_records
        self._guest_allocations = GuestAllocationsRead(placement_state, context.freshness.consumers)
        self._nova = AskedNova(context.nova, context.agent, context.freshness.consumers)

    # --- the driver -------------------------------------------------------------------------------

    def facts(self) -> tuple[HostFacts, Mapping[str, bool]]:
        """Return the facts of the node, and by trait which capabilities it has.

        :raises DriverError: the driver failed, or its answer is not usable.
        """
        context, node = self.context, self.node
        asked = context.worker, node.driver, node.name, context.facts_deadline
        facts = node_facts(context.driver, *asked)
        # Drivers use the wall clock; the facts are compared with each other and with records.
        taken_at = clock.of_wall_clock(facts.taken_at)
        if taken_at != facts.taken_at:
            facts = replace(facts, taken_at=taken_at)
        capabilities: Mapping[str, bool] = {}
        if self._reports_capabilities is not None:
            capabilities = node_capabilities(self._reports_capabilities, *asked)
        if context.gives_back:
            facts = replace(facts, traits=facts.traits and reported_by_nova(facts.traits))
            capabilities = reported_by_nova(capabilities)
        return facts, capabilities

    # --- the records ------------------------------------------------------------------------------

    def count(self, run: AuditRun, *, first: bool) -> bool:
        """Count what is used and claimed on the node: ``run`` has then what the records show.
        Return whether another agent may have had the node since the last audit: then what was
        remembered of Placement is forgotten.

        :raises NodeHeldElsewhere: another host manages the node.
        :raises ConfigErrors: the options contradict the host.
        :raises StoreError: the records cannot be read or written.
        """
        uncertain, self._uncertain = self._uncertain, True
        records = self._counted_records(run, first=first)
        # Also after a first count that failed: what was read for its report may be older than
        # changes by another agent.
        taken_over = uncertain or (self._counted and records.taken)
        if taken_over:
            self.placement_state.forget()
            records = self._counted_records(run, first=first)
        run.records = records
        self._counted, self._uncertain = True, False
        return taken_over

    def _counted_records(self, run: AuditRun, *, first: bool) -> NodeView:
        facts, policy = run.facts, self.context.policy
        assert facts is not None
        view = self.context.tracking.usage_step.audit(
            self.node.uuid,
            facts,
            self.placement_state.named_view.tree,
            start=first,
            dry_run=run.options.dry_run,
        )
        view = with_observed_guests(view, clock.now()) if self.context.observes else view
        state, drift = view.state, [*view.drift]
        if facts.complete("pci"):
            drift += lost_devices(
                state.devices,
                state.claims,
                state.host.moved_devices.values(),
                facts.pci or (),
                facts.name,
                reported=self.context.pci.report,
            )
        if facts.numa is not None and facts.complete("numa"):
            drift += unreservable_pages(facts.numa, policy.host)
        reserved = policy.reserved_memory_mib
        if facts.complete("memory") and facts.memory_mib and facts.memory_mib == reserved:
            drift.append(nothing_left(facts.name, reserved))
        return replace(view, drift=tuple(drift)) if len(drift) > len(view.drift) else view

    def note_reserved(self, records: NodeView, *, dry_run: bool) -> NodeView:
        """Write to the records what Placement has as reserved of the PCI providers, because
        operators and device cleaners set it there. Return what the records show then.
        """
        if not self.context.pci.report:
            return records
        state = self.placement_state
        seen = reserved_of_cards(state.named_view.tree, self.node.uuid, state.journal)
        return self.context.tracking.usage_step.note_reserved(records, seen, dry_run=dry_run)

    # --- Placement --------------------------------------------------------------------------------

    def refresh(
        self, client: PlacementClient, options: AuditOptions, rows: Sequence[Row] | None
    ) -> None:
        """Bring the mirror up to date, unless it is to suffice.

        ``options``: ``reread`` in the first attempt only. ``rows``: the node's structure in
        Placement, if it was read already.

        :raises ProviderIdentityConflict: the root has another name.
        :raises ProviderNameConflict: in a dry run, another provider has the node's name.
        :raises NodeHeldElsewhere: the root carries another agent's mark.
        :raises MirrorInsufficient: the mirror is to suffice, and does not.
        """
        state, server = self.placement_state, self.context.server
        server.connect(client)
        try:
            if not options.on_mirror:
                freshness = replace(self.context.freshness, everything=options.reread)
                state.refresh(client, freshness, rows)
            elif not state.mirrored:
                raise MirrorInsufficient(f"node {printable(self.node.name)} is not mirrored")
        except PlacementRefused as error:
            if error.status in (404, 406):
                # A missing provider would give an empty list, so the call or its microversion is
                # missing: check whether the server is too old.
                server.connect(client, ask=True)
            raise
        self._check_identity(client, options)
        if options.adopt:
            state.adopt()

    def _check_identity(self, client: PlacementClient, options: AuditOptions) -> None:
        """Check that the root provider is this node: it is renamed only on request, and no other
        agent may have it.
        """
        tree, node = self.placement_state.view.tree, self.node
        if tree.exists(node.uuid):
            name = tree.name_of(node.uuid)
            if name != node.name and (above := self.placement_state.view.above) is not None:
                # A child that became the host would be offered beside the host that it is part of.
                rows = client.tree(node.uuid)
                host = next((row.uuid for row in rows if row.parent_uuid is None), above)
                raise ProviderIdentityConflict(
                    (
                        f"provider {node.uuid}, {printable(name)!r} in Placement, is no host: it "
                        f"hangs under provider {above}"
                    ),
                    f"if this host is the one above it: agent identity set {host}; if somebody "
                    f"put it there: make it a root again: PUT /resource_providers/{node.uuid} "
                    f"with its name and parent_provider_uuid null, at microversion {REPARENT}",
                )
            if name != node.name and not options.rename:
                raise ProviderIdentityConflict(
                    (
                        f"provider {node.uuid} is called {printable(name)!r} in Placement, the "
                        f"node {printable(node.name)!r}"
                    ),
                    _names_again(self.context, node.uuid),
                )
            if not (options.adopt or options.rename):
                self._check_mark(tree.provider(node.uuid))
        elif options.dry_run and (holder := client.provider_named(node.name)) is not None:
            raise name_conflict(ProviderRef(node.uuid, node.name), holder)

    def _check_mark(self, root: Provider) -> None:
        """Check that the root carries no other agent's mark, except one that the journal records:
        agents that share a store share the journal, and the lease decides between them.
        """
        own = self.placement_state.journal.of(root.uuid).traits
        marks = other_marks(root.traits, self.context.agent) - own
        if not marks:
            return
        self.context.tracking.usage_step.stop_claims(self.node.uuid)
        whose = (
            f"the mark of another agent, which has a store of its own: {name_first(sorted(marks))}"
        )
        raise NodeHeldElsewhere(
            f"the root provider of node {printable(self.node.name)} carries {whose}",
            "stop one of the two; if this one stays, wait until that trait is gone, or at once: "
            f"agent --once --adopt --node {self.node.uuid}",
        )

    # --- observations -----------------------------------------------------------------------------

    def observe(
        self,
        run: AuditRun,
        compute_capabilities: Mapping[str, bool],
        rows: Sequence[Row] | None,
        *,
        first: bool,
        reshapes: bool,
        last: LastOutcome | None,
    ) -> Observation:
        """Bring the mirror up to date, and return what an attempt begins with.

        ``compute_capabilities``: what the driver reported. ``rows``: see :meth:`refresh`.
        ``first``: the agent starts with this audit. ``reshapes``: reshapes are allowed that only
        an agent that starts may do. ``last``: what followed from the last observation.
        """
        self.refresh(run.client, run.reading_options, rows)
        assert run.facts is not None
        assert run.records is not None
        run.records = self.note_reserved(run.records, dry_run=run.options.dry_run)
        facts, records, policy = run.facts, run.records, self.context.policy
        state = records.state
        asks = self._asks(exclusive=facts.exclusive)
        # Not looked at again as long as no record changes: a node may have thousands of claims.
        if self._uses is None or self._uses[0] is not state:
            found = device_uses(state.devices, state.claims, state.instances, state.migrations)
            self._uses = state, found
        if policy.mdev.types:
            mdev = with_promised(policy.mdev, state.claims.values(), facts.mdev or ())
            placement = self.placement_state
            # If a parent is to lose some to others, what is allocated of them decides.
            shared = lessened_mdevs(mdev, facts, placement.named_view.tree, self.node.name)
            if shared:
                mdev = with_allocated(mdev, shared, placement.consumers(run.client, shared))
            policy = replace(policy, mdev=mdev)
        return Observation(
            **self._of_tree(run.client, asks=asks),
            context=self.context,
            options=run.options,
            facts=facts,
            compute_capabilities=compute_capabilities,
            records=records,
            uses=self._uses[1],
            places=guest_places(state.claims.values(), facts.domains or ()),
            policy=policy,
            last=last,
            asks=asks,
            has_surpluses=self._surpluses.remembered,
            now=clock.now(),
            first=first,
            reshapes=reshapes,
            driver_shapes=self._driver_shapes,
            unrepaired=run.unrepaired,
            tried=frozenset(run.tried),
        )

    def _asks(self, *, exclusive: bool) -> bool:
        """Return whether who holds what of the node is to be asked about. ``exclusive``: see
        :class:`HostFacts`.
        """
        if self.context.observes:
            return True
        try:
            purges = self.context.policy.purge_after is not None
            on_record = self._records.is_needed(purging=purges)
        except AgentError:
            # Whoever asks is told.
            return True
        # Without records nobody asks who has a whole machine, or a node of many: nova says so.
        return on_record or not (exclusive or self.placement_state.listed)

    def deleted(self, run: AuditRun) -> TreeObservation:
        """Return what an attempt for a deleted node begins with, as :meth:`observe`."""
        return TreeObservation(**self._of_tree(run.client, asks=False))

    def _of_tree(self, client: PlacementClient, *, asks: bool) -> dict[str, Any]:
        usages = self.placement_state.held_usages(client)
        return {"node": self.node, "usages": usages, **self._known(asks=asks)}

    def _known(self, *, asks: bool = True) -> dict[str, Any]:
        """Return the fields of an observation that are Placement as the mirror has it now."""
        state = self.placement_state
        return {
            "view": state.view,
            "named": state.named_view,
            "journal": state.journal,
            "capabilities": state.capabilities,
            "doubted": state.doubted if asks else frozenset(),
            "remembered": state.reported if asks else frozenset(),
        }

    def read(self, client: PlacementClient, seen: Observation, outcome: PlanOutcome) -> Observation:
        """Return ``seen`` with what ``outcome`` needs.

        :raises AgentError: it cannot be read, and the audit cannot go on without it.
        """
        need = outcome.needs
        assert need is not None
        shaped, usages = outcome.shaped, seen.usages
        try:
            answer = self._answer(client, seen, need)
        except AgentError as error:
            if not outcome.judges:
                raise
            return replace(seen, unjudged=error, shaped=shaped, **self._known())
        if isinstance(need, needs.Hold):
            shaped, usages = None, answer
        answers = {**seen.answers, need: answer}
        return replace(seen, answers=answers, shaped=shaped, usages=usages, **self._known())

    def _answer(  # noqa: C901, PLR0911, PLR0912 - a line or two for each need
        self, client: PlacementClient, seen: Observation, need: needs.Need
    ) -> Any:
        """Read what is needed. What the mirror keeps is in the mirror afterwards."""
        state = self.placement_state
        match need:
            case needs.DriverTree():
                return self._driver_tree(seen, need)
            case needs.ReshapeReads():
                LOG.info("node %s: %s", printable(self.node.name), need.why)
                before = state.holders(client)
                return before, _sharing(client, state.named_view.tree, before)
            case needs.Holders():
                found = client.exchange.each(client.consumers, need.providers)
                return dict(zip(need.providers, found, strict=True))
            case needs.Names():
                if not seen.capabilities.has_confirmed(need.traits, need.classes):
                    self.context.order.wait_for_earlier(self.node.uuid)
                known = learn_traits(client, state.capabilities, need.traits, clock.now())
                return self.context.server.learn(known)
            case needs.NewerServer():
                return self.context.server.offers_more(client)
            case needs.Hold():
                state.hold(need.what)
                return state.held_usages(client)
            case needs.KnownHolders():
                return state.consumers(client, need.providers)
            case needs.HoldersInTurn():
                refresh = 0 if seen.options.on_mirror else self.context.freshness.consumers
                return state.consumers_in_turn(client, need.providers, need.in_turn, refresh)
            case needs.Reread():
                return state.reread_allocations(client, need.consumers, need.about)
            case needs.WholeAllocations():
                typed = need.typed and state.capabilities.offers(CONSUMER_TYPES)
                version = CONSUMER_TYPES if typed else ALLOCATIONS
                return state.allocations(client, need.consumers, version)
            case needs.HeldElsewhere():
                elsewhere = partial(is_used_elsewhere, own=need.own)
                return state.held_elsewhere(client, need.consumers, elsewhere)
            case needs.LastingSurpluses():
                return self._surpluses.lasting(need.seen)
            case needs.Holdings():
                return self._holdings(client, seen, need)
            case needs.TreeOf():
                return tuple(client.tree(need.member))
            case needs.GuestAllocations():
                return self._guest_allocations.read(client, need.held)
            case needs.NovasWord():
                return self._nova.explained(need.drift, need.share)
        raise AssertionError(need)

    def _holdings(
        self, client: PlacementClient, seen: Observation, need: needs.Holdings
    ) -> needs.HeldHere:
        state, context = self.placement_state, self.context
        tree, root = seen.named.tree, seen.root
        own = tree.get_provider_uuids(root) if tree.exists(root) else []
        mine = need.providers
        providers = [uuid for uuid in own if uuid in mine and tree.provider(uuid).inventory]
        offering, turns = tuple(providers), root_and_cells(tree, root) if own else frozenset()
        # An audit on the mirror reads nobody's turn.
        refresh = 0 if seen.options.on_mirror else context.freshness.consumers
        purges = context.policy.purge_after is not None
        on_record = self._records.is_needed(purging=purges)
        if seen.options.adopt:
            # All at once, so that no turn is due because of it.
            state.read_holders(client, providers)
        elif not on_record:
            providers = state.perhaps_held(providers, turns, refresh)
            turns = frozenset(providers)
        consumers = state.consumers_in_turn(client, providers, turns, refresh) if providers else {}
        found = {consumer for held in consumers.values() for consumer in held}
        records = self._records.read(seen.records, found) if providers else None
        return needs.HeldHere(on_record, frozenset(own), offering, tuple(providers), records)

    def _driver_tree(
        self, seen: Observation, need: needs.DriverTree
    ) -> tuple[BaseTree, DesiredTree, Allocations | None] | ReshapeNeeded:
        """Have the driver shape its part of the tree, or all of it."""
        context, node = self.context, self.node
        base, tree, allocations = need.base, need.tree, need.allocations
        assert base is not None
        assert tree is not None
        call = partial(context.worker.call, deadline=context.facts_deadline, node=node.name)
        before = tree.provider(node.uuid).traits if tree.exists(node.uuid) else frozenset[str]()
        try:
            if self._shapes_all is not None:
                call(self._shapes_all.update_provider_tree, tree, node.name, allocations)
            elif self._shapes_part is not None:
                call(self._shapes_part.shape, tree, seen.facts, allocations)
        except ReshapeNeeded as needed:
            return needed
        except DriverError as error:
            raise _explained(error, node, self.placement_state) from error
        if context.gives_back and tree.exists(node.uuid):
            added = tree.provider(node.uuid).traits - before
            tree.remove_traits(node.uuid, *(added & NOT_REPORTED_BY_NOVA))
        return base, tree, allocations


def _names_again(context: AuditContext, node: ProviderUuid) -> str:
    """Return the remedy for a root that has another name than its node."""
    rename = "give it to the provider and its children while no daemon runs: agent identity rename"
    if context.observes:
        return "set [DEFAULT] host back to its name"
    if context.identity is None or context.identity.uuid != node:
        # A node of a backend has its uuid from there.
        return f"if the node's name is right, {rename}; else rename the node in its backend"
    return (
        f"if the host got this name, {rename}; if compute_id was copied from another host, give "
        "this one an identity of its own: agent identity set $(cat /proc/sys/kernel/random/uuid); "
        "else set [DEFAULT] host back to the provider's name"
    )


def _sharing(
    client: PlacementClient, tree: ProviderTree, consumers: Mapping[ConsumerUuid, Allocation]
) -> Sharing:
    """Return the free DISK_GB of each sharing provider of the tree, and which providers outside the
    tree that ``consumers`` have DISK_GB of are shared too.
    """
    places = sharing_providers(tree)
    used = dict(zip(places, client.exchange.each(client.usages, places), strict=True))
    free = {
        uuid: capacity(tree.provider(uuid).inventory[orc.DISK_GB]) - used[uuid].get(orc.DISK_GB, 0)
        for uuid in places
    }
    elsewhere = sorted(
        {
            uuid
            for allocation in consumers.values()
            for uuid, held in allocation.resources.items()
            if orc.DISK_GB in held and not tree.exists(uuid)
        }
    )
    traits = dict(zip(elsewhere, client.exchange.each(client.traits, elsewhere), strict=True))
    return Sharing(
        free,
        frozenset(
            uuid
            for uuid, (_, found) in traits.items()
            if os_traits.MISC_SHARES_VIA_AGGREGATE in found
        ),
    )


def _explained(
    error: DriverError, node: AuditedNode, placement_state: NodePlacementState
) -> AgentError:
    """Return a clearer error for a driver that failed to shape its tree, if the cause is known."""
    cause = error.__cause__
    if not isinstance(cause, ProviderExists):
        return error
    name, there = printable(cause.name), cause.there
    theirs = (
        there is not None
        and placement_state.view.tree.exists(there.uuid)
        and not placement_state.journal.owns(there.uuid)
    )
    if there is not None and there.name == cause.name and theirs:
        return ProviderNameConflict(
            (
                f"{node.driver} makes provider {name!r}, but provider {there.uuid}, which is "
                "somebody else's, has that name in the tree"
            ),
            (
                "delete or rename that provider; a driver that is to share it has to ask exists() "
                "before it calls new_child()"
            ),
            holder=there.uuid,
            uuid=cause.uuid,
        )
    what = (
        f"driver error: {node.driver} calls new_child() for {name!r}, {cause.uuid}, but the tree "
        "has a provider of that name or uuid already"
    )
    return DriverError(what, "the driver has to ask exists() before it calls new_child()")
