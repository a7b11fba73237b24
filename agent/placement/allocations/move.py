"""Moving all allocations of one consumer to another in one atomic request."""

from dataclasses import dataclass, replace

from agent.model.allocation import Allocation, Holdings
from agent.model.names import ConsumerUuid
from agent.placement.allocations.checks import (
    consumer_uuid,
    holdings_problems,
    normal_holdings,
    owner_problems,
    refuse,
)
from agent.placement.allocations.errors import NothingToMove, TargetBusy
from agent.placement.allocations.writing import (
    Guard,
    generation_of,
    holds,
    repeat_on_conflict,
    send,
    version_of,
)
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES, PlacementClient


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
    given = None if expected is None else normal_holdings(expected)
    return _Move(
        client,
        source_uuid,
        target_uuid,
        given,
        overwrite,
        (project_id, user_id),
        CONSUMER_TYPES if typed else ALLOCATIONS,
    ).run()


class _Move:
    """One move, with the state kept over its attempts."""

    def __init__(
        self,
        client: PlacementClient,
        source: ConsumerUuid,
        target: ConsumerUuid,
        expected: Holdings | None,
        overwrite: bool,
        owner: tuple[str | None, str | None],
        version: str,
    ) -> None:
        self.client, self.source, self.target, self.expected = client, source, target, expected
        self.overwrite, self.owner, self.version = overwrite, owner, version
        self._guards: tuple[Guard, Guard] | None = None

    def run(self) -> Moved:
        return repeat_on_conflict(
            self.client, self._attempt, f"consumers {self.source} and {self.target}"
        )

    def _attempt(self) -> Moved:
        held, there = self._read(self.source), self._read(self.target)
        if held is None:
            return self._check_moved_before(there)
        if there is not None and not self.overwrite:
            raise TargetBusy(
                f"consumer {self.target} holds something already",
                "delete that first, or say that it is to be overwritten",
            )
        if self._guards is None:
            self._guards = Guard(held.generation), Guard(generation_of(there))
        for guard, found, consumer in zip(
            self._guards, (held, there), (self.source, self.target), strict=True
        ):
            guard.check(consumer, found)
        arriving = self._arriving(held, self._guards[1].next())
        self.expected = arriving.resources
        self._send(held, arriving)
        Guard.log(self.target, arriving.generation)
        return Moved(arriving.resources, already=False)

    def _read(self, consumer: ConsumerUuid) -> Allocation | None:
        return self.client.allocation(consumer, self.version)

    def _check_moved_before(self, there: Allocation | None) -> Moved:
        if there is not None and there.resources == self.expected:
            return Moved(there.resources, already=True)
        does = (
            "holds nothing either"
            if there is None
            else "does not hold what was to arrive"
            if self.expected
            else "holds something"
        )
        raise NothingToMove(
            f"consumer {self.source} holds nothing, and consumer {self.target} {does}",
            "check both uuids, or whether it was moved before",
        )

    def _arriving(self, held: Allocation, generation: int | None) -> Allocation:
        project_id, user_id = self.owner
        return replace(
            held,
            consumer=self.target,
            generation=generation,
            project_id=project_id or held.project_id,
            user_id=user_id or held.user_id,
        )

    def _send(self, held: Allocation, arriving: Allocation) -> None:
        leaving = replace(held, resources={})
        bodies = {allocation.consumer: allocation.as_body() for allocation in (leaving, arriving)}

        def applied() -> bool:
            return self._read(self.source) is None and holds(self._read(self.target), arriving)

        send(
            lambda: self.client.set_allocations(bodies, version_of(arriving)),
            applied,
            f"consumers {self.source} and {self.target}",
        )
