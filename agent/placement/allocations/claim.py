"""Claiming one of several allocation requests for a consumer, also beside its allocations on the
source of a move; writing a complete record; moving all allocations of one consumer to another in
one atomic request.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.model.inventory import Allocation, Holdings
from agent.model.names import ConsumerUuid
from agent.placement.allocations.candidates import AllocationRequest
from agent.placement.allocations.change import Doubling, join_move
from agent.placement.allocations.checks import (
    ConsumerChanged,
    NotEnoughRoom,
    NothingToMove,
    TargetBusy,
    consumer_uuid,
    holdings_problems,
    normal_holdings,
    owner_problems,
    record_problems,
    refuse,
)
from agent.placement.allocations.records import (
    Guard,
    generation_of,
    holds,
    repeat_on_conflict,
    send,
    version_of,
    write_decided,
)
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a consumer."""

    project_id: str
    user_id: str
    consumer_type: str | None = None
    """Set only where consumer types are in use."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The request that was claimed, and all allocations of the consumer now."""

    request: AllocationRequest
    resources: Holdings


def claim(
    client: PlacementClient,
    consumer: str,
    requests: Sequence[AllocationRequest],
    owner: Owner,
    *,
    doubling: Doubling,
    generation: int | None = None,
) -> Claimed:
    """Allocate to ``consumer`` the first of ``requests`` for which there is capacity.

    Repeating a claim that was done sends nothing but a GET.

    :param doubling: how allocations that the consumer has already are treated.
    :param generation: the consumer's generation at the caller's decision, if not the present one.
    :raises NotEnoughRoom: none of the requests fits.
    :raises ConsumerChanged: the consumer has allocations that the caller did not expect.
    :raises OutOfRetries: providers changed during every attempt.
    :raises BadRequest: the input is invalid.
    """
    uuid = consumer_uuid(consumer)
    refuse(_problems(requests, owner))
    held = client.allocation(uuid)
    for place, request in enumerate(requests, 1):
        try:
            return _claim(client, uuid, request, owner, held, doubling, generation)
        except NotEnoughRoom as error:
            LOG.debug("request %s of %s: %s", place, len(requests), error.message)
            if place == len(requests):
                raise
    raise AssertionError("requests are never empty here")


def _problems(requests: Sequence[AllocationRequest], owner: Owner) -> list[str]:
    wrong = [
        *owner_problems(owner.project_id, owner.user_id),
        *(problem for request in requests for problem in request.problems()),
    ]
    if not requests:
        wrong.append("there is no allocation request to claim")
    if not wrong:
        wrong += [
            (
                f"an allocation request of microversion {request.version} is written "
                f"{'with' if request.needs_type else 'without'} a consumer type"
            )
            for request in requests
            if request.needs_type != bool(owner.consumer_type)
        ]
    return wrong


def _claim(
    client: PlacementClient,
    consumer: ConsumerUuid,
    request: AllocationRequest,
    owner: Owner,
    held: Allocation | None,
    doubling: Doubling,
    generation: int | None,
) -> Claimed:
    wanted, extra = _wanted(consumer, request, held, doubling)
    claimed = Claimed(request, wanted)
    if (
        held is not None
        and held.resources == wanted
        and (held.project_id, held.user_id) == (owner.project_id, owner.user_id)
    ):
        return claimed
    present = generation_of(held) if generation is None else generation
    record = Allocation(
        consumer,
        wanted,
        owner.project_id,
        owner.user_id,
        present,
        consumer_type=owner.consumer_type,
    )
    write_decided(client, record, request.version, extra)
    return claimed


def _wanted(
    consumer: ConsumerUuid, request: AllocationRequest, held: Allocation | None, doubling: Doubling
) -> tuple[Holdings, Mapping[str, Any]]:
    """Return the wanted allocations, and the fields of the request that go into the body."""
    if held is None or (doubling is Doubling.REFUSE and held.resources == request.resources):
        return request.resources, request.body
    if doubling is Doubling.REFUSE:
        raise ConsumerChanged(
            f"consumer {consumer} holds something already",
            "look at it, and decide anew",
            consumer=consumer,
        )
    if doubling is Doubling.SUM and _is_in(request.resources, held.resources):
        return held.resources, request.body
    body = {key: value for key, value in request.body.items() if key != "allocations"}
    return join_move(held.resources, request.resources, doubling), body


def _is_in(wanted: Holdings, held: Holdings) -> bool:
    """Return whether a move's destination is claimed already beside the source.

    That is so if all of it is allocated, other providers (the source) are too, and on at least one
    provider exactly the destination's amounts are allocated.
    """
    whole = all(
        held.get(uuid, {}).get(name, 0) >= amount
        for uuid, resources in wanted.items()
        for name, amount in resources.items()
    )
    return (
        whole
        and bool(held.keys() - wanted.keys())
        and any(held[uuid] == dict(resources) for uuid, resources in wanted.items())
    )


def put(client: PlacementClient, record: Allocation) -> None:
    """Write a complete record, as the caller decided for the consumer generation in it.

    :raises ConsumerChanged, OutOfRetries, NotEnoughRoom, BadRequest: as :func:`claim`.
    """
    refuse(record_problems(record))
    write_decided(
        client,
        replace(
            record,
            consumer=consumer_uuid(record.consumer),
            resources=normal_holdings(record.resources),
        ),
    )


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move: the allocations of the target."""

    resources: Holdings
    already: bool
    """Whether the target had them before, so that nothing was sent."""


def move(
    client: PlacementClient,
    source: str,
    target: str,
    *,
    expected: Holdings | None,
    overwrite: bool = False,
    project_id: str | None = None,
    user_id: str | None = None,
    typed: bool = False,
) -> Moved:
    """Move all allocations of ``source`` to ``target``, together with the owner unless another one
    is given.

    :param expected: the allocations of the source as far as the caller knows them, by which an
        earlier, completed move is recognized.
    :param overwrite: whether existing allocations of the target are replaced.
    :param typed: whether consumers have types here; then the target gets that of the source.
    :raises NothingToMove: the source has no allocations, and the target not the expected ones.
    :raises TargetBusy: the target has allocations.
    :raises ConsumerChanged: one of the two changed meanwhile.
    :raises NotEnoughRoom, OutOfRetries: as for every write of allocations.
    :raises BadRequest: the input is invalid.
    """
    source_uuid, target_uuid = consumer_uuid(source, "source"), consumer_uuid(target, "target")
    wrong = [
        *holdings_problems(expected or {}),
        *owner_problems(
            *("unchanged" if owner is None else owner for owner in (project_id, user_id))
        ),
    ]
    if source_uuid == target_uuid:
        wrong.append(f"source and target are both consumer {source_uuid}")
    refuse(wrong)
    known: Holdings | None = None if expected is None else normal_holdings(expected)
    version = CONSUMER_TYPES if typed else ALLOCATIONS
    about = f"consumers {source_uuid} and {target_uuid}"
    guards: tuple[Guard, Guard] | None = None

    def read(consumer: ConsumerUuid) -> Allocation | None:
        return client.allocation(consumer, version)

    def attempt() -> Moved:
        nonlocal known, guards
        held, there = read(source_uuid), read(target_uuid)
        if held is None:
            return _moved_before(source_uuid, target_uuid, there, known)
        if there is not None and not overwrite:
            raise TargetBusy(
                f"consumer {target_uuid} holds something already",
                "delete that first, or say that it is to be overwritten",
            )
        guards = guards or (Guard(held.generation), Guard(generation_of(there)))
        guards[0].check(source_uuid, held)
        guards[1].check(target_uuid, there)
        arriving = replace(
            held,
            consumer=target_uuid,
            generation=guards[1].next(),
            project_id=project_id or held.project_id,
            user_id=user_id or held.user_id,
        )
        known = arriving.resources
        records = (replace(held, resources={}), arriving)
        bodies = {record.consumer: record.as_body() for record in records}
        send(
            lambda: client.set_allocations(bodies, version_of(arriving)),
            lambda: read(source_uuid) is None and holds(read(target_uuid), arriving),
            about,
        )
        Guard.log(target_uuid, arriving.generation)
        return Moved(arriving.resources, already=False)

    return repeat_on_conflict(client, attempt, about)


def _moved_before(
    source: ConsumerUuid, target: ConsumerUuid, there: Allocation | None, expected: Holdings | None
) -> Moved:
    """Return the result of a move that was done before.

    :raises NothingToMove: the target does not hold what was expected.
    """
    if there is not None and there.resources == expected:
        return Moved(there.resources, already=True)
    does = (
        "holds nothing either"
        if there is None
        else "does not hold what was to arrive"
        if expected
        else "holds something"
    )
    raise NothingToMove(
        f"consumer {source} holds nothing, and consumer {target} {does}",
        "check both uuids, or whether it was moved before",
    )
