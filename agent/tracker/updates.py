"""What the life of a guest does to its claims: planned purely from what the store knows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from agent.model.changes import Changes
from agent.model.instance import Instance, TaskState, VmState
from agent.model.names import printable
from agent.numa.rebuild import RebuildRefused, check_rebuild
from agent.tracker.errors import InstanceElsewhere, StaleVersion, UnknownInstance, WrongTopology
from agent.tracker.known import Known
from agent.tracker.node_state import NodeState
from agent.tracker.releasing import released
from agent.tracker.reserving import guest_topology


class Unset:
    """What a caller did not say, where None means something."""


UNSET = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUpdate:
    """What is to become of an instance's record. ``image_properties``: of the image that it is rebuilt in place with.

    ``version``: the one that the caller has seen, None if it does not matter.
    """

    vm_state: VmState | Unset = UNSET
    task_state: TaskState | Unset | None = UNSET
    deleted: bool | Unset = UNSET
    image_properties: Mapping[str, str] | Unset = UNSET
    version: int | None = None


BuildResult = Literal["failed", "succeeded"]
BUILD_RESULTS: frozenset[BuildResult] = frozenset(get_args(BuildResult))


def update_instance(state: NodeState, known: Known, update: InstanceUpdate, now: float) -> Changes:
    """The new state of an instance of this node; one that is gone or shelved gives everything back, wherever it was moving.

    :raises TrackerError: it is not this node's, or somebody changed it since.
    """
    instance = known.instance
    if instance is None:
        raise UnknownInstance("no record of that instance", "see agent claims")
    node = state.node
    if instance.node != node.uuid and all(one.node != node.uuid for one in known.claims):
        where = printable(instance.host) if instance.host else "no host"
        raise InstanceElsewhere(f"instance {instance.uuid} is on {where}, not on node {printable(node.name)}", "ask the agent of its host")
    if update.version is not None and update.version != instance.version:
        raise StaleVersion(f"instance {instance.uuid} has version {instance.version}, not {update.version}", "read it again, and decide anew")
    updated = _updated(instance, update)
    if updated.image_properties != instance.image_properties:
        _check_rebuild(state, known, updated)
    changes = Changes()
    if updated.removed:
        changes = released(known.claims, known, now) + _ended_moves(known, now)
        updated = replace(updated, old_flavor=None, new_flavor=None)
        if not updated.deleted and updated.vm_state == "shelved_offloaded":
            updated = replace(updated, host=None, node=None)
    elif updated.vm_state == "active":
        arrived = [one for one in known.claims if one.state == "held" and one.purpose == "instance"]
        changes = Changes(claims=tuple(replace(one, state="consumed", updated_at=now) for one in arrived))
    if updated == instance and not changes:
        return changes
    return changes + Changes(instances=(replace(updated, updated_at=now),))


def count_build(state: NodeState, result: BuildResult, now: float) -> Changes:
    """One more failed build in a row, or none any more."""
    failed = state.node.failed_builds + 1 if result == "failed" else 0
    if failed == state.node.failed_builds:
        return Changes()
    return Changes(nodes=(replace(state.node, failed_builds=failed, updated_at=now),))


def _updated(instance: Instance, update: InstanceUpdate) -> Instance:
    said = {name: value for name in ("vm_state", "task_state", "deleted", "image_properties") if not isinstance(value := getattr(update, name), Unset)}
    return replace(instance, **said)


def _check_rebuild(state: NodeState, known: Known, rebuilt: Instance) -> None:
    """A rebuild in place takes no claim: the new image has to ask for the very cells that the guest has.

    :raises TrackerError: it asks for others.
    """
    placed = [cell for one in known.claims if one.node == state.node.uuid and one.purpose != "devices" for cell in one.cells]
    guest = guest_topology(rebuilt.flavor, rebuilt.image_properties)
    try:
        if guest is not None and placed:
            check_rebuild(state.cells, placed, guest)
        elif guest is not None or placed:
            raise RebuildRefused("only one of the old guest and the rebuilt one has cells of its own", "use an image that asks for the same topology")
    except RebuildRefused as refusal:
        raise WrongTopology(f"instance {rebuilt.uuid}: {refusal.message}", refusal.remedy) from refusal


def _ended_moves(known: Known, now: float) -> Changes:
    """A move of a guest that is gone is over."""
    if known.migration is None or known.migration.ended:
        return Changes()
    return Changes(migrations=(replace(known.migration, status="error", updated_at=now),))
