"""What can go wrong with an operation on allocations, each kind a type of its own."""

from agent.errors import GenerationConflict, PlacementError


class AllocationError(PlacementError):
    """Base of what operations on allocations raise on purpose."""

    code = "allocation.failed"


class BadRequest(AllocationError, ValueError):
    """The input cannot be meant, or Placement refused it as such."""

    code = "allocation.bad-request"


class NotEnoughRoom(AllocationError):
    """The providers have no room for it. Asking again is useless before somebody makes some."""

    code = "allocation.no-room"


class ConsumerChanged(AllocationError):
    """Somebody else changed the consumer; what was decided before has to be decided anew."""

    code = "allocation.consumer-changed"


class OutOfRetries(GenerationConflict):
    """Somebody else was in the way at every attempt."""

    code = "allocation.out-of-retries"


class ConsumerNotFound(AllocationError):
    """The consumer holds nothing, so that Placement does not know it."""

    code = "allocation.consumer-not-found"


class NotAllocated(AllocationError):
    """The consumer has nothing of a provider or class that is to be taken from it."""

    code = "allocation.not-allocated"


class NegativeResult(AllocationError):
    """More is to be taken from a consumer than it has."""

    code = "allocation.negative-result"


class SeveralTrees(AllocationError):
    """A consumer holds something of several trees, and only one of them can be meant."""

    code = "allocation.several-trees"


class NothingToMove(AllocationError):
    """The source of a move holds nothing, and its target does not hold what was to arrive."""

    code = "allocation.nothing-to-move"


class TargetBusy(AllocationError):
    """The target of a move holds something already."""

    code = "allocation.target-busy"


class CandidatesFailed(AllocationError):
    """Placement refused a query for candidates."""

    code = "allocation.candidates-failed"


class UsagesFailed(AllocationError):
    """Placement refused to tell what a project or user has."""

    code = "allocation.usages-failed"


class ProviderNotFound(AllocationError):
    """There is no such provider."""

    code = "allocation.provider-not-found"


class ProviderInUse(AllocationError):
    """Allocations keep a provider alive."""

    code = "allocation.provider-in-use"


class ForeignProvider(AllocationError):
    """A provider was made by somebody else, who has to take it away."""

    code = "allocation.foreign-provider"
