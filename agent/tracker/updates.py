"""Changes to an instance's record and what they do to its claims. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from agent.model.claim import Migration
from agent.model.instance import Instance
from agent.model.names import printable
from agent.model.node_records import RecordChanges
from agent.numa.host_policy import RebuildRefused, check_rebuild
from agent.tracker.errors import (
    GuestsUnknown,
    InstanceElsewhere,
    StaleVersion,
    UnknownInstance,
    WrongState,
    WrongTopology,
)
from agent.tracker.node_state import NodeState
from agent.tracker.requests import BuildResult, InstanceUpdate, Unset
from agent.tracker.reserving import guest_topology
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import release_claims


def update_instance(
    state: NodeState,
    stored: StoredState,
    update: InstanceUpdate,
    now: float,
    moves: Iterable[Migration] = (),
) -> RecordChanges:
    """Return the changes that update an instance of this node, or one that has no host and no
    claims.

    An instance that is deleted or shelved gives all its resources back, and its ``moves`` end.

    :raises TrackerError: the instance is another node's, or was changed since the caller read it.
    """
    instance = stored.instance
    if instance is None:
        raise UnknownInstance("no record of that instance", "see agent claims")
    # Checked first, so that a caller that repeats a request after a lost answer reads the record
    # again, although the instance may have left this node.
    if update.version is not None and update.version != instance.version:
        raise StaleVersion(
            f"instance {instance.uuid} has version {instance.version}, not {update.version}",
            "read the record again and repeat the decision",
        )
    node = state.node
    has_owner = instance.host is not None or stored.claims
    if (
        has_owner
        and instance.node != node.uuid
        and all(claim.node != node.uuid for claim in stored.claims)
    ):
        where = printable(instance.host) if instance.host else "no host"
        raise InstanceElsewhere(
            f"instance {instance.uuid} is on {where}, not on node {printable(node.name)}",
            "ask the agent of its host",
        )
    updated = _apply_update(instance, update)
    if updated.image_properties != instance.image_properties:
        _check_rebuild(state, stored, instance, updated)
    changes = RecordChanges()
    if updated.removed:
        changes = release_claims(stored.claims, stored, now) + end_moves(moves, now)
        updated = replace(updated, old_flavor=None, new_flavor=None)
        if not updated.deleted and updated.vm_state == "shelved_offloaded":
            updated = replace(updated, host=None, node=None)
    elif updated.vm_state == "active":
        arrived = [
            claim
            for claim in stored.claims
            if claim.state == "held" and claim.purpose == "instance"
        ]
        changes = RecordChanges(
            claims=tuple(replace(claim, state="consumed", updated_at=now) for claim in arrived)
        )
    if updated == instance and not changes:
        return changes
    return changes + RecordChanges(instances=(replace(updated, updated_at=now),))


def forget_guest(
    state: NodeState, stored: StoredState, now: float, moves: Iterable[Migration] = ()
) -> RecordChanges:
    """Return the changes that end the record of a guest of this node that is gone.

    The state in the record does not matter. The record keeps no host, so that in Placement only the
    allocations in this tree are removed: the agent does not know of any others.

    :raises TrackerError: the instance is another node's, it moves, or the hypervisor shows the
        guest or may still have it.
    """
    instance, node = stored.instance, state.node
    if instance is None:
        raise UnknownInstance(
            "no record of that instance", "see agent guests list and agent claims"
        )
    if instance.deleted and not stored.claims:
        return RecordChanges()
    elsewhere = [claim.node for claim in stored.claims if claim.node != node.uuid]
    if instance.node not in (None, node.uuid) or (elsewhere and not instance.removed):
        where = f"host {printable(instance.host)}" if instance.host else "another node"
        raise InstanceElsewhere(
            f"instance {instance.uuid} is on {where}, not on node {printable(node.name)} alone",
            "ask the agent of its host",
        )
    if any(move.in_progress for move in moves):
        raise WrongState(
            f"instance {instance.uuid} moves",
            "end its move first: agent migrate confirm, revert or abort",
        )
    if state.host.guests_incomplete:
        what = (
            f"not all guests of node {printable(node.name)} are known: "
            f"{printable(state.host.guests_incomplete)}"
        )
        raise GuestsUnknown(
            what, "see agent status; forget the guest once the hypervisor shows all guests"
        )
    if any(guest.uuid == instance.uuid for guest in state.host.guests or ()):
        raise WrongState(
            f"the hypervisor of node {printable(node.name)} shows instance {instance.uuid}",
            "remove it from the hypervisor first",
        )
    gone = replace(
        instance,
        deleted=True,
        host=None,
        node=None,
        task_state=None,
        old_flavor=None,
        new_flavor=None,
        updated_at=now,
    )
    return (
        release_claims(stored.claims, stored, now)
        + end_moves(moves, now)
        + RecordChanges(instances=(gone,))
    )


def count_build(state: NodeState, result: BuildResult, now: float) -> RecordChanges:
    """Return the change that counts one more failed build in a row, or resets the count."""
    failed = state.node.failed_builds + 1 if result == "failed" else 0
    if failed == state.node.failed_builds:
        return RecordChanges()
    return RecordChanges(nodes=(replace(state.node, failed_builds=failed, updated_at=now),))


def _apply_update(instance: Instance, update: InstanceUpdate) -> Instance:
    names = ("vm_state", "task_state", "deleted", "hidden", "image_properties")
    return replace(
        instance,
        **{name: value for name in names if not isinstance(value := getattr(update, name), Unset)},
    )


def _check_rebuild(state: NodeState, stored: StoredState, old: Instance, rebuilt: Instance) -> None:
    """Check that the new image asks for the cells that the guest has, because a rebuild in place
    takes no claim.

    :raises TrackerError: it asks for other cells.
    """
    guest = guest_topology(rebuilt.flavor, rebuilt.image_properties)
    if guest == guest_topology(old.flavor, old.image_properties):
        return
    placed = [
        cell
        for claim in stored.claims
        if claim.node == state.node.uuid and claim.purpose != "devices"
        for cell in claim.cells
    ]
    try:
        if guest is not None and placed:
            check_rebuild(state.cells, placed, guest)
        elif guest is not None or placed:
            raise RebuildRefused(
                "only one of the old guest and the rebuilt one has cells of its own",
                "use an image that asks for the same topology",
            )
    except RebuildRefused as refusal:
        raise WrongTopology(
            f"instance {rebuilt.uuid}: {refusal.message}", refusal.remedy
        ) from refusal


def end_moves(moves: Iterable[Migration], now: float) -> RecordChanges:
    """Return the changes that end the moves of a guest that is gone, failed ones included: no guest
    is left whose place could still be found out.
    """
    return RecordChanges(
        migrations=tuple(
            replace(move, status=move.without_guest, updated_at=now)
            for move in moves
            if not move.ended
        )
    )
