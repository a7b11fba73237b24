"""Errors of the tracker. Nothing was written when one of them is raised."""

from collections.abc import Sequence

from agent.errors import AgentError


class TrackerError(AgentError):
    """An operation on claims that is refused."""

    code = "tracker.refused"


class InvalidTrackerRequest(TrackerError):
    """The request contradicts itself, whatever the node has."""

    code = "request.invalid"


class InvalidAmount(InvalidTrackerRequest):
    """An amount that is negative or larger than any host could have."""

    code = "request.amount"


class UnknownState(InvalidTrackerRequest):
    """A state, status or type that does not exist."""

    code = "request.unknown-state"


class InvalidDevices(InvalidTrackerRequest):
    """The flavor's request for devices is invalid."""

    code = "request.devices"


class InvalidTopology(InvalidTrackerRequest):
    """The flavor's request for cells, CPUs or pages is invalid."""

    code = "request.topology"


class FlavorImageConflict(InvalidTrackerRequest):
    """The flavor and the image contradict each other."""

    code = "request.flavor-image"


class UnknownNode(TrackerError):
    """No node of this agent has that uuid."""

    code = "node.unknown"


class NodeUnavailable(TrackerError):
    """The driver does not offer the node now."""

    code = "node.unavailable"


class NodeNotReady(TrackerError):
    """The node was not audited yet, so that its capacity is unknown."""

    code = "node.not-ready"


class NodeDegraded(TrackerError):
    """Records of the node contradict each other, so that its free capacity is unknown."""

    code = "node.degraded"


class NodeHeldElsewhere(TrackerError):
    """Another host manages the node."""

    code = "node.elsewhere"
    fatal = True


class GuestsUnknown(TrackerError):
    """The node's driver does not report the guests."""

    code = "node.guests-untold"


class UnknownInstance(TrackerError):
    """There is no record of the instance."""

    code = "instance.unknown"


class InstanceElsewhere(TrackerError):
    """Another host or node owns the instance."""

    code = "instance.elsewhere"


class InstanceDiffers(TrackerError):
    """The request contradicts the record of the instance or of its migration."""

    code = "instance.differs"

    def __init__(self, instance: str, reasons: Sequence[str]) -> None:
        """``reasons``: every contradiction, a line each."""
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
    """The claim with this id was given back, so that the request must not be answered as a
    repetition.
    """

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
    """The search was given up, so that it is unknown whether the node has the resources."""

    code = "resources.undecided"


class ResourcesUnavailable(TrackerError):
    """The node does not have the requested resources."""

    code = "resources.unavailable"

    def __init__(self, reasons: Sequence[str]) -> None:
        """``reasons``: every reason, a line each."""
        super().__init__(
            f"resources unavailable: {'; '.join(reasons)}",
            "another host, or a smaller guest",
            reasons=list(reasons),
        )
        self.reasons = tuple(reasons)
