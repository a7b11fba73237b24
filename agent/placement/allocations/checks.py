"""The errors of operations on allocations, one type for each kind, and the checks of input before
anything is sent: valid input is returned in normal form, all problems are reported together.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.errors import GenerationConflict, PlacementError
from agent.model.inventory import Allocation, Holdings
from agent.model.names import (
    MAX_PROVIDER_NAME,
    ConsumerUuid,
    ProviderUuid,
    is_token,
    is_uuid,
    normal_uuid,
    printable,
)


class AllocationError(PlacementError):
    """Base class of the errors of operations on allocations.
    Remedy: do what the message says; nothing was changed.
    """

    code = "allocation.failed"


class BadRequest(AllocationError, ValueError):
    """The input is invalid, or Placement refused it as invalid.
    Remedy: correct what was asked for.
    """

    code = "allocation.bad-request"


class NotEnoughRoom(AllocationError):
    """The providers lack capacity. A repetition is useless until somebody frees some.
    Remedy: ask for less, or free some of it.
    """

    code = "allocation.no-room"


class ConsumerChanged(AllocationError):
    """Somebody else changed the consumer, so that the caller has to decide again.
    Remedy: read the allocation again, and decide again.
    """

    code = "allocation.consumer-changed"


class OutOfRetries(GenerationConflict):
    """A change by somebody else interfered with every attempt.
    Remedy: try again; find the other writer if this lasts.
    """

    code = "allocation.out-of-retries"


class ConsumerNotFound(AllocationError):
    """The consumer has no allocations, so that Placement does not know it.
    Remedy: see ``agent allocation list NODE`` for the consumers.
    """

    code = "allocation.consumer-not-found"


class NotAllocated(AllocationError):
    """The consumer has no allocation of a provider or class that is to be removed.
    Remedy: see ``agent allocation show CONSUMER``.
    """

    code = "allocation.not-allocated"


class NegativeResult(AllocationError):
    """More is to be removed from a consumer than it has.
    Remedy: see ``agent allocation show CONSUMER``, and remove at most that.
    """

    code = "allocation.negative-result"


class SeveralTrees(AllocationError):
    """The consumer has allocations on several trees, but the operation is for one tree.
    Remedy: name the node.
    """

    code = "allocation.several-trees"


class NothingToMove(AllocationError):
    """The source of a move has no allocations, and its target not the expected ones.
    Remedy: see ``agent allocation show`` of both consumers.
    """

    code = "allocation.nothing-to-move"


class TargetBusy(AllocationError):
    """The target of a move has allocations already.
    Remedy: give ``--overwrite`` if what the target holds may be lost.
    """

    code = "allocation.target-busy"


class CandidatesFailed(AllocationError):
    """Placement refused a query for allocation candidates.
    Remedy: correct the query; the message has Placement's own words.
    """

    code = "allocation.candidates-failed"


class UsagesFailed(AllocationError):
    """Placement refused to report the usages of a project or user.
    Remedy: correct the project or user; the message has Placement's own words.
    """

    code = "allocation.usages-failed"


class ProviderNotFound(AllocationError):
    """The provider does not exist.
    Remedy: see ``agent tree`` for names and uuids.
    """

    code = "allocation.provider-not-found"


class ProviderInUse(AllocationError):
    """Allocations or children prevent the deletion of a provider.
    Remedy: delete what uses it first, or wait until it is free.
    """

    code = "allocation.provider-in-use"


class ForeignProvider(AllocationError):
    """The provider was created by somebody else, who has to delete it.
    Remedy: have it deleted by whoever made it.
    """

    code = "allocation.foreign-provider"


LARGEST = 2147483647
LONGEST_OWNER = 255
REMEDY = "correct what was asked for"


def refuse(wrong: Iterable[str]) -> None:
    """Refuse input if there are problems.

    :raises BadRequest: ``wrong`` is not empty; the message lists everything in it.
    """
    if found := list(wrong):
        raise BadRequest("; ".join(found), REMEDY)


def consumer_uuid(text: str, what: str = "consumer") -> ConsumerUuid:
    """Return a consumer's uuid in normal form.

    :raises BadRequest: ``text`` is not a uuid.
    """
    return ConsumerUuid(provider_uuid(text, what))


def provider_uuid(text: str, what: str = "provider") -> ProviderUuid:
    """Return a uuid in normal form, because Placement answers 404 to any other spelling.

    :raises BadRequest: ``text`` is not a uuid.
    """
    refuse(_uuid_problems(text, what))
    return normal_uuid(text)


def _uuid_problems(text: Any, what: str) -> Iterator[str]:
    if not isinstance(text, str) or not is_uuid(text):
        yield f"{what} {quoted(text)} is no uuid"


def provider_name(name: str) -> str:
    """Return a valid name of a provider.

    :raises BadRequest: the name is empty or too long.
    """
    if not 1 <= len(name) <= MAX_PROVIDER_NAME:
        raise BadRequest(
            (
                f"the provider's name has {len(name)} characters, Placement takes 1 to "
                f"{MAX_PROVIDER_NAME}"
            ),
            REMEDY,
        )
    return name


def owner_problems(project_id: Any, user_id: Any) -> Iterator[str]:
    """Yield the problems of a consumer's owner."""
    for what, owner in (("project", project_id), ("user", user_id)):
        if not isinstance(owner, str) or not 1 <= len(owner) <= LONGEST_OWNER:
            yield f"the {what}'s id {quoted(owner)} has not 1 to {LONGEST_OWNER} characters"


def holdings_problems(holdings: Any) -> Iterator[str]:
    """Yield the problems of amounts by provider and class: no mapping may be empty, no amount zero,
    negative or too large.
    """
    if not isinstance(holdings, Mapping):
        yield "the amounts are no mapping of providers"
        return
    for provider, resources in holdings.items():
        yield from _uuid_problems(provider, "provider")
        if not isinstance(resources, Mapping) or not resources:
            yield f"nothing is named of provider {quoted(provider)}"
            continue
        for name, amount in resources.items():
            yield from amount_problems(name, amount)


def amount_problems(name: Any, amount: Any) -> Iterator[str]:
    """Yield the problems of an amount of one class."""
    if not isinstance(name, str) or not is_token(name):
        yield f"{quoted(name)} is no resource class"
    # A bool is an int in Python, but not in Placement.
    if not isinstance(amount, int) or isinstance(amount, bool) or not 1 <= amount <= LARGEST:
        yield (
            f"the amount {quoted(amount)} of {quoted(name)} is no whole number from 1 to {LARGEST}"
        )


def normal_holdings(holdings: Holdings) -> dict[ProviderUuid, dict[str, int]]:
    """Return valid amounts with provider uuids in normal form; amounts of one provider in two
    spellings are added.
    """
    normal: dict[ProviderUuid, dict[str, int]] = {}
    for provider, resources in holdings.items():
        there = normal.setdefault(normal_uuid(provider), {})
        for name, amount in resources.items():
            there[name] = there.get(name, 0) + amount
    return normal


def record_problems(record: Allocation) -> Iterator[str]:
    """Yield the problems of a consumer's complete record."""
    yield from _uuid_problems(record.consumer, "consumer")
    yield from owner_problems(record.project_id, record.user_id)
    yield from holdings_problems(record.resources)
    if not record.resources and record.generation is None:
        # It would create a consumer that no read shows and that refuses every first claim.
        yield f"consumer {quoted(record.consumer)} would be made with nothing"


def quoted(value: Any) -> str:
    """Return a value from outside for a message: shortened, and on one line."""
    text = printable(str(value))
    return f"'{text if len(text) <= 60 else text[:60] + '...'}'"
