"""Writing what consumers hold: one request, what its answer means, and how often it is worth
another.

Placement has one code for a provider that was raced for and a consumer that changed; only reading
the consumer again tells them apart. An answer that was lost is looked for in the same way.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from agent.errors import GenerationConflict, PlacementError, PlacementRefused
from agent.model.allocation import Allocation
from agent.model.names import ConsumerUuid
from agent.placement import codes
from agent.placement.allocations.errors import (
    BadRequest,
    ConsumerChanged,
    NotEnoughRoom,
    OutOfRetries,
)
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient
from agent.placement.retry import MAX_ATTEMPTS, conflict_policy

LOG = logging.getLogger(__name__)
NOTHING: Mapping[str, Any] = {}
# The generation of a consumer that was made with nothing: no reader sees it, and a first claim is
# refused.
PHANTOM = 0

Result = TypeVar("Result")


def repeated(
    client: PlacementClient,
    attempt: Callable[[], Result],
    about: str,
    exhausted: type[PlacementError] = OutOfRetries,
) -> Result:
    """``attempt``, again after a wait for as long as it raises :class:`GenerationConflict`.

    :raises OutOfRetries: it did so at every attempt; or ``exhausted`` instead.
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
    """Write all that a consumer holds, guarded by its generation. ``extra`` goes into the body
    beside it, or instead.

    ``version`` is the one that the body is made for, if not the usual one.

    :raises GenerationConflict: the consumer, or a provider, changed.
    :raises NotEnoughRoom: it does not fit.
    :raises BadRequest: Placement cannot make sense of it.
    """
    send(
        lambda: client.set_allocation(
            record.consumer, {**record.as_body(), **extra}, version or version_of(record)
        ),
        lambda: holds(client.allocation(record.consumer), record),
        f"consumer {record.consumer}",
    )


def send(request: Callable[[], None], applied: Callable[[], bool], about: str) -> None:
    """Send a write, and if its answer was lost, ask whether it was ``applied``.

    :raises GenerationConflict, NotEnoughRoom, BadRequest: as :func:`write`.
    """
    try:
        request()
    except PlacementError as error:
        if not codes.may_be_applied(error):
            raise _meaning(error, about) from error
        if not _applied(applied):
            raise
        LOG.info("%s: the answer to a write was lost (%s), it was applied", about, error.message)


def _applied(applied: Callable[[], bool]) -> bool:
    try:
        return applied()
    except PlacementError as error:
        LOG.debug("nobody knows what became of a write: %s", error.message)
        return False


def _meaning(error: PlacementError, about: str) -> PlacementError:
    """What a refused write of allocations means, as an exception."""
    if not isinstance(error, PlacementRefused):
        return error
    if codes.is_conflict(error):
        return GenerationConflict(f"{about} or a provider was changed meanwhile")
    if error.status == 409 and error.placement_code == codes.UNDEFINED:
        return NotEnoughRoom(
            f"{about}: no room for it: {error.message}",
            "free something there, or ask for less or elsewhere",
        )
    if error.status == 400:
        return BadRequest(f"{about}: {error.message}", "correct what was asked for")
    return error


def holds(found: Allocation | None, wanted: Allocation) -> bool:
    """Whether a consumer holds exactly what is ``wanted``, for the same owner."""
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
    """Write what a caller has decided: the same body again while providers are raced for, and
    nothing once the consumer changed.

    :raises ConsumerChanged: it holds something else than when the caller decided.
    :raises OutOfRetries: providers were raced for at every attempt.
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
        guard.told(record.consumer, generation)

    repeated(client, attempt, f"consumer {record.consumer}")


def version_of(record: Allocation) -> str:
    """The microversion to write a record with: one that has a type needs another."""
    return CONSUMER_TYPES if record.consumer_type else ALLOCATIONS


class Guard:
    """The generation to write a consumer with, at each attempt of one operation.

    A consumer that should not exist, and that nobody sees, but with which a write is refused may be
    a phantom: that is tried once, by the generation that phantoms have. One that is none refuses
    it, and nothing has happened.
    """

    def __init__(self, expected: int | None) -> None:
        self.expected = expected
        self._attempts = 0

    def next(self) -> int | None:
        """The generation for the next attempt."""
        self._attempts += 1
        return PHANTOM if self.expected is None and self._attempts == 2 else self.expected

    def check(
        self, consumer: ConsumerUuid, found: Allocation | None, cause: Exception | None = None
    ) -> None:
        """Look at what was read after a refusal.

        :raises ConsumerChanged: it is not what the guard expects.
        """
        if generation_of(found) != self.expected:
            became = "has gone" if found is None else "holds something else"
            raise ConsumerChanged(
                f"consumer {consumer} {became} meanwhile",
                "look at it, and decide anew",
                consumer=consumer,
            ) from cause

    @staticmethod
    def told(consumer: ConsumerUuid, generation: int | None) -> None:
        """Tell of a phantom that was written with ``generation``."""
        if generation == PHANTOM:
            LOG.warning(
                "consumer %s had a record without allocations, which another client left behind",
                consumer,
            )


def generation_of(found: Allocation | None) -> int | None:
    """A consumer's generation, ``None`` if it does not exist."""
    return None if found is None else found.generation
