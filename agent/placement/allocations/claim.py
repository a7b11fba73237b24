"""Claiming one of several allocation requests for a consumer, also beside its allocations on the
source of a move; and writing a complete record.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.model.allocation import Allocation, Holdings
from agent.model.names import ConsumerUuid
from agent.placement.allocations.candidates import AllocationRequest
from agent.placement.allocations.change import Doubling, join_move
from agent.placement.allocations.checks import (
    consumer_uuid,
    normal_holdings,
    owner_problems,
    record_problems,
    refuse,
)
from agent.placement.allocations.errors import ConsumerChanged, NotEnoughRoom
from agent.placement.allocations.writing import generation_of, write_decided
from agent.placement.client import PlacementClient

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
