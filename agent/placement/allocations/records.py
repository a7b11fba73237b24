"""Reading and writing the allocations of consumers: sending a request, interpreting its answer, and
repeating it; and finding providers.

Placement has one error code for a provider whose generation moved and for a consumer that changed;
only reading the consumer again tells them apart. That read also shows whether a write whose answer
was lost has been applied.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from agent.errors import UNDEFINED, GenerationConflict, PlacementError, PlacementRefused
from agent.model.inventory import Allocation
from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, normal_uuid, printable
from agent.placement.allocations.checks import (
    BadRequest,
    ConsumerChanged,
    ConsumerNotFound,
    NotEnoughRoom,
    OutOfRetries,
    ProviderNotFound,
    UsagesFailed,
    consumer_uuid,
    owner_problems,
    provider_name,
    provider_uuid,
    refuse,
)
from agent.placement.answers import Row
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.exchange import MAX_ATTEMPTS, conflict_policy
from agent.placement.mirror import below

LOG = logging.getLogger(__name__)
NOTHING: Mapping[str, Any] = {}
# The generation of a consumer that was created without allocations: no read shows the consumer, and
# a first claim for it is refused.
PHANTOM = 0

Result = TypeVar("Result")


def repeat_on_conflict(
    client: PlacementClient,
    attempt: Callable[[], Result],
    about: str,
    exhausted: type[PlacementError] = OutOfRetries,
) -> Result:
    """Call ``attempt``, and repeat it after a wait while it raises :class:`GenerationConflict`.

    :raises OutOfRetries: every attempt raised it; or the error type ``exhausted`` instead.
    """
    try:
        result: Result = conflict_policy(client.exchange.transport.cancelled).call(attempt)
    except GenerationConflict as error:
        raise exhausted(
            f"{about}: {error.message}, at each of {MAX_ATTEMPTS} attempts", "try again"
        ) from error
    return result


def write(
    client: PlacementClient,
    record: Allocation,
    version: str = "",
    extra: Mapping[str, Any] = NOTHING,
) -> None:
    """Write all allocations of a consumer, guarded by the consumer generation.

    :param version: the microversion of the body, if not the usual one.
    :param extra: fields that are added to the body, or replace some of it.
    :raises GenerationConflict: the consumer or a provider changed.
    :raises NotEnoughRoom: the providers lack capacity.
    :raises BadRequest: Placement refused the body as invalid.
    """
    send(
        lambda: client.set_allocation(
            record.consumer, {**record.as_body(), **extra}, version or version_of(record)
        ),
        lambda: holds(client.allocation(record.consumer), record),
        f"consumer {record.consumer}",
    )


def send(request: Callable[[], None], applied: Callable[[], bool], about: str) -> None:
    """Send a write; if its answer was lost, call ``applied`` to find out whether it was applied.

    :raises GenerationConflict, NotEnoughRoom, BadRequest: as :func:`write`.
    """
    try:
        request()
    except PlacementError as error:
        if not error.outcome_unknown:
            raise _meaning(error, about) from error
        if not _is_applied(applied):
            if not error.is_closed:
                raise
            # The guard in the request still holds, and the next connection is a new one.
            return send(request, applied, about)
        LOG.info("%s: the answer to a write was lost (%s), it was applied", about, error.message)


def _is_applied(applied: Callable[[], bool]) -> bool:
    try:
        return applied()
    except PlacementError as error:
        LOG.debug("nobody knows what became of a write: %s", error.message)
        return False


def _meaning(error: PlacementError, about: str) -> PlacementError:
    """Return the exception for a refused write of allocations."""
    if not isinstance(error, PlacementRefused):
        return error
    if error.is_conflict:
        return GenerationConflict(f"{about} or a provider was changed meanwhile")
    if error.status == 409 and error.placement_code == UNDEFINED:
        return NotEnoughRoom(
            f"{about}: no room for it: {error.message}",
            "free something there, or ask for less or elsewhere",
        )
    if error.status == 400:
        return BadRequest(f"{about}: {error.message}", "correct what was asked for")
    return error


def holds(found: Allocation | None, wanted: Allocation) -> bool:
    """Return whether a consumer has exactly the ``wanted`` allocations and the same owner."""
    if found is None:
        return not wanted.resources
    return (found.resources, found.project_id, found.user_id) == (
        wanted.resources,
        wanted.project_id,
        wanted.user_id,
    )


def write_decided(
    client: PlacementClient,
    record: Allocation,
    version: str = "",
    extra: Mapping[str, Any] = NOTHING,
) -> None:
    """Write allocations that the caller decided on.

    The same body is sent again while only providers change, and not if the consumer changed.

    :raises ConsumerChanged: the consumer is not in the state for which the caller decided.
    :raises OutOfRetries: providers changed during every attempt.
    :raises NotEnoughRoom, BadRequest: as :func:`write`.
    """
    guard = Guard(record.generation)

    def attempt() -> None:
        generation = guard.next()
        try:
            write(client, replace(record, generation=generation), version, extra)
        except GenerationConflict as conflict:
            found = client.allocation(record.consumer)
            if holds(found, record):
                return
            guard.check(record.consumer, found, conflict)
            raise
        guard.log(record.consumer, generation)

    repeat_on_conflict(client, attempt, f"consumer {record.consumer}")


def version_of(record: Allocation) -> str:
    """Return the microversion to write a record with: a later one if it has a consumer type."""
    return CONSUMER_TYPES if record.consumer_type else ALLOCATIONS


class Guard:
    """The consumer generation to write with, for each attempt of one operation.

    If the write of a consumer that should not exist, and that no read shows, is refused, the
    consumer may have been created without allocations (a phantom). The second attempt therefore
    uses the generation that phantoms have. If there is no phantom, that attempt is refused without
    effect.
    """

    def __init__(self, expected: int | None) -> None:
        self.expected = expected
        self._attempts = 0

    def next(self) -> int | None:
        """Return the generation for the next attempt."""
        self._attempts += 1
        return PHANTOM if self.expected is None and self._attempts == 2 else self.expected

    def check(
        self, consumer: ConsumerUuid, found: Allocation | None, cause: Exception | None = None
    ) -> None:
        """Check the consumer that was read after a refusal.

        :raises ConsumerChanged: the generation is not the expected one.
        """
        if generation_of(found) != self.expected:
            became = "has gone" if found is None else "holds something else"
            raise ConsumerChanged(
                f"consumer {consumer} {became} meanwhile",
                "look at it, and decide anew",
                consumer=consumer,
            ) from cause

    @staticmethod
    def log(consumer: ConsumerUuid, generation: int | None) -> None:
        """Log a phantom, if the consumer was written with the generation of phantoms."""
        if generation == PHANTOM:
            LOG.warning(
                "consumer %s had a record without allocations, which another client left behind",
                consumer,
            )


def generation_of(found: Allocation | None) -> int | None:
    """Return a consumer's generation, ``None`` if it does not exist."""
    return None if found is None else found.generation


# --- reading --------------------------------------------------------------------------------------


def read_consumer(client: PlacementClient, consumer: str) -> Allocation | None:
    """Return all allocations of a consumer, ``None`` if it has none.

    :raises BadRequest: ``consumer`` is not a uuid.
    """
    return client.allocation(consumer_uuid(consumer))


def existing_allocation(client: PlacementClient, consumer: ConsumerUuid) -> Allocation:
    """Return all allocations of a consumer.

    :raises ConsumerNotFound: the consumer has none.
    """
    held = client.allocation(consumer)
    if held is None:
        raise ConsumerNotFound(
            f"consumer {consumer} holds nothing", "check its uuid", consumer=consumer
        )
    return held


class ConsumersOfTree(NamedTuple):
    """The providers at and below a root, and every consumer of one of them."""

    providers: Sequence[Row]
    """Parents first; none if the root does not exist."""
    consumers: Mapping[ConsumerUuid, Allocation]
    """With all allocations of the consumer, also on other trees."""


def of_tree(client: PlacementClient, root: str) -> ConsumersOfTree:
    """Return the tree at and below ``root`` with its consumers.

    A consumer that released everything between the two reads is left out: its record would have no
    owner.

    :raises BadRequest: ``root`` is not a uuid.
    """
    top = provider_uuid(root)
    rows = below(client.tree(top), top)
    each = client.exchange.each
    found = {
        consumer for held in each(client.consumers, [row.uuid for row in rows]) for consumer in held
    }
    consumers = {
        allocation.consumer: allocation
        for allocation in each(client.allocation, sorted(found))
        if allocation is not None
    }
    return ConsumersOfTree(rows, consumers)


def members(client: PlacementClient, root: ProviderUuid) -> list[ProviderUuid]:
    """Return the providers at and below ``root``, parents first; none if it does not exist.

    Ancestors of ``root`` are excluded, because they may hold nodes of others too.
    """
    return [row.uuid for row in below(client.tree(root), root)]


def provider_by_name(client: PlacementClient, name: str) -> Row:
    """Return the provider that Placement has by ``name``.

    :raises ProviderNotFound: there is none.
    :raises BadRequest: the name is not valid for a provider.
    """
    found = client.provider_named(provider_name(name))
    if found is None:
        raise ProviderNotFound(
            f"there is no provider called {printable(name)!r}", "check its name", name=name
        )
    return found


def provider_by(client: PlacementClient, name_or_uuid: str) -> Row:
    """Return the provider with a given name or uuid.

    :raises ProviderNotFound: there is none.
    :raises BadRequest: the name is not valid for a provider.
    """
    if not is_uuid(name_or_uuid):
        return provider_by_name(client, name_or_uuid)
    row = client.provider(normal_uuid(name_or_uuid))
    if row is None:
        uuid = normal_uuid(name_or_uuid)
        raise ProviderNotFound(f"there is no provider {uuid}", "check its uuid", provider=uuid)
    return row


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The usage that counts for quota."""

    cores: int
    """Shared and dedicated CPUs."""
    ram: int
    """In MiB."""


def usages_for_limits(
    client: PlacementClient, project_id: str, user_id: str | None = None
) -> Mapping[str, int]:
    """Return the allocated amount of each class; a class without usage is missing.

    :raises UsagesFailed: Placement refused the request.
    :raises PlacementUnreachable: no answer came, four times.
    :raises BadRequest: the input is invalid.
    """
    refuse(owner_problems(project_id, "nobody" if user_id is None else user_id))
    try:
        return client.owner_usages(project_id, user_id)
    except PlacementRefused as error:
        raise UsagesFailed(f"no usages: {error.message}", error.remedy) from error


def quota_usage(usages: Mapping[str, int]) -> QuotaUsage:
    """Return amounts by class as cores and memory."""
    return QuotaUsage(usages.get("VCPU", 0) + usages.get("PCPU", 0), usages.get("MEMORY_MB", 0))
