"""Errors of the tracker. Nothing was written when one of them is raised."""

from collections.abc import Sequence

from agent.errors import AgentError


class TrackerError(AgentError):
    """An operation on claims that is refused.
    Remedy: do what the message says; nothing was changed.
    """

    code = "tracker.refused"


class InvalidTrackerRequest(TrackerError):
    """The request contradicts itself, whatever the node has.
    Remedy: correct the request; ``errors`` says where.
    """

    code = "request.invalid"


class InvalidDevices(InvalidTrackerRequest):
    """The flavor's request for devices is invalid.
    Remedy: correct the flavor's request, or ``[pci] alias``.
    """

    code = "request.devices"


class InvalidTopology(InvalidTrackerRequest):
    """The flavor's request for cells, CPUs or pages is invalid.
    Remedy: correct the flavor or the image.
    """

    code = "request.topology"


class FlavorImageConflict(InvalidTrackerRequest):
    """The flavor and the image contradict each other.
    Remedy: correct the flavor or the image.
    """

    code = "request.flavor-image"


class UnknownNode(TrackerError):
    """No node of this agent has that uuid.
    Remedy: use a uuid of ``GET /v1/nodes``.
    """

    code = "node.unknown"


class NodeUnavailable(TrackerError):
    """The driver does not offer the node now.
    Remedy: use another host; see the driver's page for when a node is available.
    """

    code = "node.unavailable"


class NodeNotReady(TrackerError):
    """The node was not audited yet, or its driver could not report its cells since the agent
    started, so that its capacity is unknown.
    Remedy: wait for an audit with complete facts; ``agent status`` shows what is missing.
    """

    code = "node.not-ready"


class NodeDegraded(TrackerError):
    """Records of the node contradict each other, so that its free capacity is unknown.
    Remedy: correct the records that the message names.
    """

    code = "node.degraded"


class NodeHeldElsewhere(TrackerError):
    """Another host manages the node.
    Remedy: ask the agent of that host.
    """

    code = "node.elsewhere"
    fatal = True


class GuestsUnknown(TrackerError):
    """The node's driver does not report the guests.
    Remedy: use a driver that reports guests.
    """

    code = "node.guests-untold"


class UnknownInstance(TrackerError):
    """There is no record of the instance.
    Remedy: claim it first, or import it with ``agent guests import``.
    """

    code = "instance.unknown"


class InstanceElsewhere(TrackerError):
    """Another host or node owns the instance.
    Remedy: ask the agent of that host.
    """

    code = "instance.elsewhere"


class InstanceDiffers(TrackerError):
    """The request contradicts the record of the instance or of its migration.
    Remedy: leave to the record what it knows, or correct it first.
    """

    code = "instance.differs"

    def __init__(self, instance: str, reasons: Sequence[str]) -> None:
        """``reasons``: every contradiction, a line each."""
        what = f"instance {instance} is not as the request says: {'; '.join(reasons)}"
        super().__init__(
            what, "leave to the record what it knows, or correct it first", reasons=list(reasons)
        )
        self.reasons = tuple(reasons)


class UnknownClaim(TrackerError):
    """No claim or move has that id.
    Remedy: see ``agent claims`` for the ids.
    """

    code = "claim.unknown"


class UnknownDevice(TrackerError):
    """No record of a device with that address.
    Remedy: see ``agent pci check`` for the addresses.
    """

    code = "device.unknown"


class ClaimIdTaken(TrackerError):
    """The id belongs to another request.
    Remedy: choose a new id.
    """

    code = "claim.id-taken"


class InstanceClaimed(TrackerError):
    """The instance has another claim that excludes this one.
    Remedy: end the other claim first.
    """

    code = "instance.claimed"


class ClaimReleased(TrackerError):
    """The claim with this id was given back, so that the request must not be answered as a
    repetition.
    Remedy: choose a new id.
    """

    code = "claim.released"


class WrongState(TrackerError):
    """The instance, migration or claim is not in the state that the operation needs.
    Remedy: bring the object into the state that the message names.
    """

    code = "state.wrong"


class WrongTopology(TrackerError):
    """A rebuild in place asks for other cells than the guest has.
    Remedy: use an image that asks for the same topology, or resize the guest.
    """

    code = "rebuild.topology"


class StaleVersion(TrackerError):
    """The record was changed since the caller read it.
    Remedy: read the record again and repeat the change with its version.
    """

    code = "record.changed"


class ResourcesUndecided(TrackerError):
    """The search was given up, so that it is unknown whether the node has the resources.
    Remedy: use another host, or make the request simpler.
    """

    code = "resources.undecided"


class ResourcesUnavailable(TrackerError):
    """The node does not have the requested resources.
    Remedy: use another host or a smaller guest; ``reasons`` says what is missing.
    """

    code = "resources.unavailable"

    def __init__(self, reasons: Sequence[str]) -> None:
        """``reasons``: every reason, a line each."""
        super().__init__(
            f"resources unavailable: {'; '.join(reasons)}",
            "another host, or a smaller guest",
            reasons=list(reasons),
        )
        self.reasons = tuple(reasons)
