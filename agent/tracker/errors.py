"""Why the tracker refuses. Nothing was written when one of these is raised."""

from collections.abc import Sequence

from agent.errors import AgentError


class TrackerError(AgentError):
    """An operation on claims that cannot be done."""

    code = "tracker.refused"


class InvalidTrackerRequest(TrackerError):
    """The request contradicts itself, whatever the node may have."""

    code = "request.invalid"


class InvalidAmount(InvalidTrackerRequest):
    """An amount that is negative, or more than anything has."""

    code = "request.amount"


class UnknownState(InvalidTrackerRequest):
    """A state, status or type that there is not."""

    code = "request.unknown-state"


class InvalidDevices(InvalidTrackerRequest):
    """The flavor asks for devices in a way that makes no sense."""

    code = "request.devices"


class InvalidTopology(InvalidTrackerRequest):
    """A flavor that asks for cells, CPUs or pages which make no sense."""

    code = "request.topology"


class FlavorImageConflict(InvalidTrackerRequest):
    """A flavor and an image that contradict each other."""

    code = "request.flavor-image"


class UnknownNode(TrackerError):
    """No node of this agent has that uuid."""

    code = "node.unknown"


class NodeUnavailable(TrackerError):
    """The driver does not offer the node now."""

    code = "node.unavailable"


class NodeNotReady(TrackerError):
    """The node was not audited yet, so that nobody knows what it has."""

    code = "node.not-ready"


class NodeDegraded(TrackerError):
    """Records of the node contradict each other, so that nobody knows what is free."""

    code = "node.degraded"


class NodeHeldElsewhere(TrackerError):
    """Another host manages the node."""

    code = "node.elsewhere"
    fatal = True


class GuestsUntold(TrackerError):
    """The node's driver does not say which guests there are."""

    code = "node.guests-untold"


class UnknownInstance(TrackerError):
    """No record knows the instance."""

    code = "instance.unknown"


class InstanceElsewhere(TrackerError):
    """Another host or node owns the instance."""

    code = "instance.elsewhere"


class InstanceDiffers(TrackerError):
    """The caller and a record say different things of an instance or its migration. ``reasons``:
    all of them, a line each.
    """

    code = "instance.differs"

    def __init__(self, instance: str, reasons: Sequence[str]) -> None:
        what = f"instance {instance} is not as the request says: {'; '.join(reasons)}"
        super().__init__(
            what, "leave to the record what it knows, or correct it first", reasons=list(reasons)
        )
        self.reasons = tuple(reasons)


class UnknownClaim(TrackerError):
    """No claim or move has that id."""

    code = "claim.unknown"


class UnknownDevice(TrackerError):
    """No record of a device with that address."""

    code = "device.unknown"


class ClaimIdTaken(TrackerError):
    """The id belongs to another request."""

    code = "claim.id-taken"


class InstanceClaimed(TrackerError):
    """The instance has another claim that excludes this one."""

    code = "instance.claimed"


class ClaimReleased(TrackerError):
    """The claim was given back, so that the same request must not be taken for granted again."""

    code = "claim.released"


class WrongState(TrackerError):
    """The instance, migration or claim is not in the state that the operation needs."""

    code = "state.wrong"


class WrongTopology(TrackerError):
    """A rebuild in place asks for other cells than the guest has."""

    code = "rebuild.topology"


class StaleVersion(TrackerError):
    """The record was changed since the caller read it."""

    code = "record.changed"


class ResourcesUndecided(TrackerError):
    """Nobody knows whether the node has what is asked for: the search for it was given up."""

    code = "resources.undecided"


class ResourcesUnavailable(TrackerError):
    """The node does not have what is asked for. ``reasons``: all of them, a line each."""

    code = "resources.unavailable"

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            f"resources unavailable: {'; '.join(reasons)}",
            "another host, or a smaller guest",
            reasons=list(reasons),
        )
        self.reasons = tuple(reasons)
