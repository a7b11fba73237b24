"""Whether a host would grant a guest that it has: the guest's flavor asked for again, without what
the guest itself has there. Pure.
"""

from dataclasses import dataclass, replace
from typing import Self

import os_resource_classes as orc

from agent.explain.constraints import Constraint, ProviderRoom, TreeView, constraints_of
from agent.explain.explanation import (
    CandidateAnswer,
    NodeExplanation,
    cell_uses,
    device_uses_of,
)
from agent.explain.host_answer import host_answer, try_claim
from agent.explain.reasons import Reason, Suggestion, meets, reason_of, without_guest
from agent.explain.scheduler_query import SchedulerQuery, scheduler_query
from agent.model.facts import Domain
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid
from agent.model.provider import SHARING_TRAIT
from agent.model.provider_tree import ProviderTree
from agent.tracker import nova_commands
from agent.tracker.claim_usage import provider_usage
from agent.tracker.errors import ResourcesUnavailable, UnknownInstance
from agent.tracker.node_state import NodeState
from agent.tracker.seen_guest import SEEN
from agent.tracker.stored_state import InstanceClaim
from agent.tree.cell_tree import OF_CELLS


def known_guest(recorded: Instance | None, shown: Domain | None) -> Instance | None:
    """Return a guest with its flavor, from its record, or else from what its creator wrote beside
    it; None if the flavor is not known. ``shown``: as the hypervisor shows the guest.
    """
    origin = shown.origin if shown is not None else None
    if origin is not None and not origin.specs_known:
        return None
    if recorded is not None and not recorded.flavor.id.startswith(SEEN):
        return recorded
    if shown is None or origin is None:
        return None
    return Instance(
        uuid=shown.uuid,
        project_id=origin.project_id,
        user_id=origin.user_id,
        flavor=origin.flavor,
        image_properties=shown.image_properties,
        volume_backed=origin.volume_backed,
    )


@dataclass(frozen=True, slots=True)
class GuestHere:
    """A guest as a request to the node that it is on."""

    claim: InstanceClaim
    query: SchedulerQuery
    state: NodeState
    """The node without what the guest has of it."""
    view: TreeView
    """The node's tree, with what the records say that the other guests use."""

    @classmethod
    def of(
        cls,
        state: NodeState,
        instance: Instance,
        tree: ProviderTree,
        now: float,
        *,
        devices_in_placement: bool,
    ) -> Self:
        """Return the guest as a request. ``tree``: the node's, as Placement should hold it.

        :raises InvalidTrackerRequest: flavor and image contradict each other.
        """
        claim = InstanceClaim(id=instance.uuid, node=state.node.uuid, instance=instance)
        query = scheduler_query(
            claim, state.host.aliases, devices_in_placement=devices_in_placement
        )
        without = _without(state, instance.uuid, now)
        return cls(claim, query, without, _view(without, tree))

    def lacking(self, *, when_empty: bool = False) -> list[Reason]:
        """Return the constraints of the flavor that the tree does not meet. What cells and devices
        give is left to the host. ``when_empty``: without those that it would meet without the other
        guests.
        """
        empty = tuple(map(_emptied, self.view.providers))
        judged = replace(self.view, providers=empty) if when_empty else self.view
        query = self.query.query
        return [
            reason_of(constraint, query, self.view)
            for constraint in constraints_of(query, self.query.aliases)
            if self._is_of_tree(constraint) and not meets(constraint, query, judged)
        ]

    def _is_of_tree(self, constraint: Constraint) -> bool:
        # A disabled node keeps its guests.
        if constraint.kind in ("alias", "root-forbidden"):
            return False
        name = constraint.name
        if constraint.kind != "resource":
            return True
        if name in OF_CELLS and self.state.cells:
            return any(room.provider.uuid == self.view.root for room in self.view.rooms(name))
        # A sharing provider that nobody has asked about may give it.
        return name != orc.DISK_GB or bool(self.view.rooms(name))

    def broken(self, now: float) -> list[str]:
        """Return why the guest does not belong here any more, in figures. That the node has more
        guests than it can hold is no reason: that is told of the node.
        """
        # While cells or devices have moved under some guests, no claim gets any: that, too, is told
        # of the node.
        host = replace(self.state.host, moved_devices={})
        settled = replace(self.state, host=host, displaced=frozenset())
        denied = try_claim(settled, self.claim, {}, now)
        of_host = denied.reasons if isinstance(denied, ResourcesUnavailable) else ()
        return [
            *of_host,
            *(
                text
                for reason in self.lacking(when_empty=True)
                for text in reason.numbers or (reason.constraint.text,)
            ),
        ]

    def explained(self, now: float) -> NodeExplanation:
        """Return whether and why the node would grant the guest."""
        lacking = tuple(self.lacking())
        found = NodeExplanation(
            self.state.node.name,
            self.state.node.uuid,
            CandidateAnswer(lacking=lacking),
            host_answer(self.state, self.claim, (), now),
            tuple(cell_uses(self.state)),
            tuple(device_uses_of(self.state, self.claim)),
            allocated=not lacking,
        )
        if found.fits:
            return found
        command = nova_commands.migrate(self.claim.instance.uuid)
        move = Suggestion("guests", command, "whether another host takes it")
        return replace(found, suggestions=(move,))


def has_guest(state: NodeState, guest: ConsumerUuid) -> bool:
    """Return whether the node has the guest, by its records or by the hypervisor."""
    return guest in state.instances or any(one.uuid == guest for one in state.host.guests or ())


def guest_here(
    state: NodeState,
    guest: ConsumerUuid,
    tree: ProviderTree,
    now: float,
    *,
    devices_in_placement: bool,
) -> GuestHere:
    """Return a guest that the node has as a request, see :meth:`GuestHere.of`.

    :raises UnknownInstance: its flavor is not known.
    :raises InvalidTrackerRequest: flavor and image contradict each other.
    """
    shown = next((one for one in state.host.guests or () if one.uuid == guest), None)
    instance = known_guest(state.instances.get(guest), shown)
    if instance is None:
        raise UnknownInstance(
            f"guest {guest}: its flavor is not known, neither from a record nor from what nova "
            "wrote beside it",
            "ask with its flavor: openstack flavor show -f json FLAVOR | agent explain --flavor -",
        )
    return GuestHere.of(state, instance, tree, now, devices_in_placement=devices_in_placement)


def _without(state: NodeState, guest: ConsumerUuid, now: float) -> NodeState:
    """Return the node as if the guest had never been there: its devices need no cleaning."""
    held = {claim.id for claim in state.claims_of(guest)}
    mine = {address for address, device in state.devices.items() if device.holder in held}
    without = without_guest(state, guest, now)
    devices = {
        address: replace(device, used=False) if address in mine else device
        for address, device in without.devices.items()
    }
    return replace(without, devices=devices)


def _emptied(room: ProviderRoom) -> ProviderRoom:
    """Return a provider as if nobody used it. What is reserved whole is held until it is free, or
    the operator gives it to nobody new: who has it stays.
    """
    inventory = {
        name: {**record, "reserved": 0} if record["reserved"] >= record["total"] else record
        for name, record in room.inventory.items()
    }
    return replace(room, used={}, inventory=inventory)


def _view(state: NodeState, tree: ProviderTree) -> TreeView:
    used = provider_usage(state, tree)
    return TreeView(
        state.node.uuid,
        tuple(
            ProviderRoom(
                provider.uuid,
                provider.name,
                provider.inventory,
                used.get(provider.uuid, {}),
                frozenset(provider.traits),
                sharing=SHARING_TRAIT in provider.traits,
            )
            for provider in sorted(tree.providers(), key=lambda provider: provider.name)
        ),
    )
