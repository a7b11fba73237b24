"""The errors of operations on allocations, one type for each kind."""

from agent.errors import GenerationConflict, PlacementError


class AllocationError(PlacementError):
    """Base class of the errors of operations on allocations."""

    code = "allocation.failed"


class BadRequest(AllocationError, ValueError):
    """The input is invalid, or Placement refused it as invalid."""

    code = "allocation.bad-request"


class NotEnoughRoom(AllocationError):
    """The providers lack capacity. A repetition is useless until somebody frees some."""

    code = "allocation.no-room"


class ConsumerChanged(AllocationError):
    """Somebody else changed the consumer, so that the caller has to decide again."""

    code = "allocation.consumer-changed"


class OutOfRetries(GenerationConflict):
    """A change by somebody else interfered with every attempt."""

    code = "allocation.out-of-retries"


class ConsumerNotFound(AllocationError):
    """The consumer has no allocations, so that Placement does not know it."""

    code = "allocation.consumer-not-found"


class NotAllocated(AllocationError):
    """The consumer has no allocation of a provider or class that is to be removed."""

    code = "allocation.not-allocated"


class NegativeResult(AllocationError):
    """More is to be removed from a consumer than it has."""

    code = "allocation.negative-result"


class SeveralTrees(AllocationError):
    """The consumer has allocations on several trees, but the operation is for one tree."""

    code = "allocation.several-trees"


class NothingToMove(AllocationError):
    """The source of a move has no allocations, and its target not the expected ones."""

    code = "allocation.nothing-to-move"


class TargetBusy(AllocationError):
    """The target of a move has allocations already."""

    code = "allocation.target-busy"


class CandidatesFailed(AllocationError):
    """Placement refused a query for allocation candidates."""

    code = "allocation.candidates-failed"


class UsagesFailed(AllocationError):
    """Placement refused to report the usages of a project or user."""

    code = "allocation.usages-failed"


class ProviderNotFound(AllocationError):
    """The provider does not exist."""

    code = "allocation.provider-not-found"


class ProviderInUse(AllocationError):
    """Allocations or children prevent the deletion of a provider."""

    code = "allocation.provider-in-use"


class ForeignProvider(AllocationError):
    """The provider was created by somebody else, who has to delete it."""

    code = "allocation.foreign-provider"
