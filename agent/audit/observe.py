"""The reads of one attempt of an audit: the mirror, the tree of the driver, and what the first
shape asks for.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.audit.context import AuditContext, AuditedNode, AuditOptions
from agent.audit.devices import (
    DriverTree,
    ObservedDevices,
    observe_devices,
    provider_place,
)
from agent.audit.idle import IdleAttempt
from agent.audit.reshapes import ReshapeReads
from agent.audit.run import AuditRun
from agent.audit.shape import DesiredNode, Observed, desired_node, hints
from agent.driver.interface import Allocations
from agent.errors import (
    DRIVER_FAULT,
    AdoptionNeeded,
    ConfigErrors,
    PlacementRefused,
    ProviderIdentityConflict,
    ReshapeFailed,
    ReshapeNeeded,
)
from agent.model.mirror import REPARENT, ServerCapabilities
from agent.model.names import ProviderUuid, printable
from agent.model.operation import ProviderRef
from agent.model.provider import Provider
from agent.model.provider_tree import BaseTree, DesiredTree
from agent.placement import clock
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.merge import ADOPT, Usages, foreign_share
from agent.placement.node_state import NodePlacementState
from agent.placement.reshaping import AllocationMove, allocation_move
from agent.placement.sending import name_conflict
from agent.placement.server import added_names, learn_traits
from agent.placement.tombstones import without_reappeared
from agent.placement.transport import MirrorInsufficient
from agent.provider_config.applying import Key
from agent.tracker.domains import guest_places
from agent.tracker.errors import NodeHeldElsewhere
from agent.tracker.node_state import NodeView
from agent.tracker.reservations import device_uses
from agent.tree.desired_tree import (
    DriverReport,
    desired_tree,
    other_marks,
    with_remote_managed_ports,
)
from agent.tree.device_providers import DeviceProviders, reserved_of_cards
from agent.tree.reported_cards import DeviceUses
from agent.tree.reshape.allocation_editor import GuestPlaces, ReshapeContext

LOG = logging.getLogger(__name__)


def _names_again(context: AuditContext, node: ProviderUuid) -> str:
    """Return the remedy for a root that has another name than its node."""
    rename = "agent identity rename gives it to the provider and its children, while no daemon runs"
    if context.observes:
        return "set [DEFAULT] host back to its name"
    if context.identity is None or context.identity.uuid != node:
        # A node of a backend has its uuid from there.
        return f"if the node's name is right, {rename}; else rename the node in its backend"
    return (
        f"if the host got this name, {rename}; if compute_id was copied from another host, give "
        "this one an identity of its own: agent identity set $(uuidgen); else set [DEFAULT] host "
        "back to the provider's name"
    )


class Observer:
    """Reads what an attempt needs to know of one node."""

    def __init__(
        self, node: AuditedNode, context: AuditContext, placement_state: NodePlacementState
    ) -> None:
        self.node, self.context, self.placement_state = node, context, placement_state
        # The entries of the operator's files that match a provider here; None until a tree was
        # seen.
        self.sighted: frozenset[Key] | None = None

    # --- the mirror -------------------------------------------------------------------------------

    def read_mirror(self, run: AuditRun, rows: Sequence[Row] | None) -> Usages:
        """Bring the mirror up to date, unless it is to suffice; return the usages of everything
        that is held until it is free.

        ``rows``: the node's structure in Placement, if it was read already.

        :raises ProviderIdentityConflict: the root has another name.
        :raises ProviderNameConflict: in a dry run, another provider has the node's name.
        :raises NodeHeldElsewhere: the root carries another agent's mark.
        :raises MirrorInsufficient: the mirror is to suffice, and does not.
        """
        first, placement_state, server = (
            run.attempts == 1,
            self.placement_state,
            self.context.server,
        )
        server.connect(run.client)
        freshness = replace(self.context.freshness, everything=run.options.reread and first)
        try:
            if not run.options.on_mirror:
                placement_state.refresh(run.client, freshness, rows)
            elif not placement_state.mirrored:
                raise MirrorInsufficient(f"node {printable(self.node.name)} is not mirrored")
        except PlacementRefused as error:
            if error.status in (404, 406):
                # A missing provider would give an empty list, so the call or its microversion is
                # missing: check whether the server is too old.
                server.connect(run.client, ask=True)
            raise
        self._check_identity(run.client, run.options)
        if run.options.adopt:
            placement_state.adopt()
        return placement_state.held_usages(run.client)

    def _check_identity(self, client: PlacementClient, options: AuditOptions) -> None:
        """Check that the root provider is this node: it is renamed only on request, and no other
        agent may have it.
        """
        tree, node = self.placement_state.view.tree, self.node
        if tree.exists(node.uuid):
            name = tree.name_of(node.uuid)
            if name != node.name and (above := self.placement_state.view.above) is not None:
                # A child that became the host would be offered beside the host that it is part of.
                raise ProviderIdentityConflict(
                    (
                        f"provider {node.uuid}, {printable(name)!r} in Placement, is no host: it "
                        f"hangs under provider {above}"
                    ),
                    f"if this host is the one above it: agent identity set {above}; if somebody "
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
        self.context.records.usage_step.stop_claims(self.node.uuid)
        whose = (
            f"the mark of another agent, which has a store of its own: {', '.join(sorted(marks))}"
        )
        raise NodeHeldElsewhere(
            f"the root provider of node {printable(self.node.name)} carries {whose}",
            (
                "stop one of the two; this one takes the node over by agent --once --adopt --node "
                f"{self.node.uuid}, or once that trait is gone"
            ),
        )

    def note_reserved(self, records: NodeView, *, dry_run: bool) -> NodeView:
        """Write to the records what Placement has as reserved of the PCI providers, because
        operators and device cleaners set it there. Return what the records show then.
        """
        if not self.context.pci.report:
            return records
        state = self.placement_state
        seen = reserved_of_cards(state.named_view.tree, self.node.uuid, state.journal)
        return self.context.records.usage_step.note_reserved(records, seen, dry_run=dry_run)

    # --- the trees --------------------------------------------------------------------------------

    def observe(
        self,
        run: AuditRun,
        report: DriverReport,
        records: NodeView,
        usages: Usages,
        *,
        start: bool,
        reshapes: bool,
        idle: IdleAttempt | None,
    ) -> Observed:
        """Have the driver shape its tree, and read what the first shape depends on and asks for.

        ``start``: the agent starts with this audit, so that devices must be as the options say.
        ``reshapes``: reshapes are allowed that only an agent that starts may do. ``idle``: the
        last attempt, if the same inputs would lead to its result again.

        :raises AdoptionNeeded: inventories would move in a tree that is not adopted.
        :raises ReshapeNeeded: inventories would move, and ``reshapes`` is not set.
        :raises ConfigErrors: at the start, devices cannot be reported as the options say.
        """
        context, state, root = self.context, self.placement_state, self.node.uuid
        view, journal = state.named_view, state.journal
        # The view itself, because an idle attempt saw it with the names by role.
        known = idle if idle is not None and idle.has_state(state.view, journal) else None
        uses = device_uses(records.state)
        places = guest_places(records.state, report.facts.domains or ())
        same = (
            known
            if known is not None
            and known.has_inputs(report, uses, places, usages, state.capabilities, clock.now())
            else None
        )
        if same is not None and not report.shape_all:
            return same.repeated(report, records, view)
        base = known.driver_tree.base if known is not None else self._base(report)
        driver_tree, move = self._driver_tree(run.client, base, report, places, reshapes=reshapes)
        if same is not None and move is None and same.has_tree(driver_tree.desired):
            return same.repeated(report, records, view)
        devices = self._devices(run, report, driver_tree, uses, start=start)
        desired = desired_node(
            view,
            journal,
            report,
            driver_tree,
            devices,
            context.policy,
            context.provider_config,
            adopt=run.options.adopt,
            gives_back=context.gives_back,
        )
        self.sighted = desired.files.found
        capabilities = self._learn_names(run.client, desired)
        return Observed(
            report,
            records,
            view,
            journal,
            usages,
            uses,
            driver_tree,
            move,
            devices,
            desired,
            capabilities,
            hints(view, report, root, context.policy, context.pci),
        )

    def _devices(
        self,
        run: AuditRun,
        report: DriverReport,
        driver_tree: DriverTree,
        uses: DeviceUses,
        *,
        start: bool,
    ) -> ObservedDevices:
        """Return the PCI providers of the node, and the tree that they are put into.

        :raises ConfigErrors: at the start, devices cannot be reported as the options say.
        """
        context, state, root = self.context, self.placement_state, self.node.uuid
        name = driver_tree.desired.name_of(root)
        place = provider_place(
            state.named_view,
            state.journal,
            root,
            name,
            context.policy,
            context.pci,
            state.capabilities,
            uses,
            adopt=run.options.adopt,
        )
        devices = (
            ObservedDevices(DeviceProviders(), place)
            if context.gives_back and not context.pci.report
            else observe_devices(
                run.client,
                context.pci,
                context.policy.mdev,
                report.facts,
                uses,
                driver_tree,
                place,
            )
        )
        if start:
            # Later these errors are reported and the providers stay as they are.
            ConfigErrors.raise_if_any(devices.providers.errors)
        return devices

    def _base(self, report: DriverReport) -> BaseTree:
        """Return the tree from which the driver starts."""
        state, root = self.placement_state, self.node.uuid
        view, journal = state.named_view, state.journal
        if report.shape_all and view.tree.exists(root):
            return BaseTree(without_reappeared(view.tree.scoped(root), journal))
        return foreign_share(view, journal, root, self.node.name)

    def hold(
        self, run: AuditRun, observed: Observed, stranded: Mapping[ProviderUuid, frozenset[str]]
    ) -> Observed:
        """Hold inventories that consumers go on using although the node no longer has them. Return
        what was observed with their usages, and with the shape that follows.
        """
        self.placement_state.hold(stranded)
        journal = self.placement_state.journal
        usages = self.placement_state.held_usages(run.client)
        devices = replace(observed.devices, place=replace(observed.devices.place, journal=journal))
        desired = desired_node(
            observed.view,
            journal,
            observed.report,
            observed.driver_tree,
            devices,
            self.context.policy,
            self.context.provider_config,
            adopt=run.options.adopt,
            gives_back=self.context.gives_back,
        )
        return replace(observed, journal=journal, usages=usages, devices=devices, desired=desired)

    def _learn_names(self, client: PlacementClient, desired: DesiredNode) -> ServerCapabilities:
        """Return the server's capabilities, with the traits that the desired tree adds looked up
        before planning, so that the plan is exact.
        """
        state, context = self.placement_state, self.context
        traits, classes = added_names(state.view.tree, desired.files.tree)
        if not state.capabilities.has_confirmed(traits, classes):
            context.order.wait_for_earlier(self.node.uuid)
        return context.server.learn(learn_traits(client, state.capabilities, traits, clock.now()))

    def _driver_tree(
        self,
        client: PlacementClient,
        base: BaseTree,
        report: DriverReport,
        places: GuestPlaces,
        *,
        reshapes: bool,
    ) -> tuple[DriverTree, AllocationMove | None]:
        """Return the tree that facts, policy and driver make of ``base``, and the move of
        allocations that it needs.
        """
        view, journal = self.placement_state.named_view, self.placement_state.journal
        reshape_context = ReshapeContext(report.facts, self.context.policy, places, start=reshapes)
        try:
            return DriverTree(base, self._shape(base, report, reshape_context, None)), None
        except ReshapeNeeded as needed:
            if view.tree.exists(self.node.uuid) and not journal.adopted:
                what = (
                    f"{printable(self.node.name)}: inventory and its allocations would move, but "
                    "the tree is not adopted"
                )
                raise AdoptionNeeded(what, ADOPT) from needed
            if not reshapes:
                raise
            return self._reshaped_tree(client, base, report, reshape_context, needed)

    def _reshaped_tree(
        self,
        client: PlacementClient,
        base: BaseTree,
        report: DriverReport,
        reshape_context: ReshapeContext,
        needed: ReshapeNeeded,
    ) -> tuple[DriverTree, AllocationMove | None]:
        """Return the tree of a node whose allocations have to move, and the move; None if no
        allocation had to move after all.
        """
        reads = ReshapeReads.read(client, self.placement_state, reshape_context)
        edited = reads.edited()
        LOG.info("node %s: %s", printable(self.node.name), needed.message)
        try:
            desired = self._shape(base, report, reads.reshape_context, edited)
        except ReshapeNeeded as error:
            what = (
                f"driver error: {self.node.driver} asks for a reshape of "
                f"{printable(self.node.name)} although it was given the allocations"
            )
            raise ReshapeFailed(what, DRIVER_FAULT) from error
        move = allocation_move(reads.before, edited)
        needless = needed.data.get("only_if_held") and not move.changed
        return DriverTree(base, desired), None if needless else move

    def _shape(
        self,
        base: BaseTree,
        report: DriverReport,
        reshape_context: ReshapeContext,
        allocations: Allocations | None,
    ) -> DesiredTree:
        """Return the tree that facts, policy and driver make of ``base``. ``allocations`` are
        edited in place.
        """
        context, present = self.context, self.placement_state.named_view.tree
        offered = context.pci.remote_managed(report.facts)
        return desired_tree(
            base,
            present,
            self.node.uuid,
            with_remote_managed_ports(report, offered, present, self.node.uuid),
            context.policy,
            self.placement_state.journal,
            context.mark,
            reshape_context,
            allocations,
        )
