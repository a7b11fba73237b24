"""Detection of another writer of the same providers, which changes back what the agent wrote, and
the pause that keeps the two from writing against each other.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.finding import Drift
from agent.model.names import ProviderUuid, name_first, number_of, printable
from agent.model.operation import (
    CreateProvider,
    DeleteProvider,
    Operation,
    ProviderOperation,
    RenameProvider,
    ReparentProvider,
    SetInventory,
    SetNames,
    SetTraits,
)
from agent.model.report import Outcome
from agent.placement.plan import Plan, depends

# In seconds. What is changed back this soon after it was written is changed back by a program; and
# for this long the agent then leaves it alone.
PAUSE = 600.0
# After this many reversals the item is reported and left alone.
TOLD = 2
REMEDY = (
    "stop the other writer: a nova-compute that still manages this host, or an agent that runs "
    "with a copy of this one's identity; this agent writes it once in ten minutes meanwhile"
)

Item = tuple[ProviderUuid, str, str]
"""One thing that is written on a provider: the provider's uuid, the kind, and the name."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The last write of one item."""

    wanted: Hashable
    """The value that was written."""
    at: float
    """When it was written, in seconds of a monotonic clock."""
    name: str
    """The name of the provider."""
    times: int = 0
    """How often the value was changed back."""
    again: bool = False
    """Whether it was changed back since the last write."""


class RivalWriters:
    """The writes on one node and how often each was changed back, for the life of the process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[Item, _Written] = {}
        # No item was written before.
        self._oldest = math.inf

    def withhold(self, plan: Plan) -> tuple[Plan, list[Outcome]]:
        """Return ``plan`` without what another writer would change back now, and with drift that
        reports the other writer; and the outcomes of the operations that were left out.
        """
        if not self._written:
            return plan, []
        now, wanted = self._clock(), dict(_changes(plan))
        self._count(wanted, now)
        drift = (*plan.drift, *self._drift())
        if not plan.operations:
            return replace(plan, drift=drift), []
        waiting = {
            item
            for item, written in self._written.items()
            if written.times >= TOLD and item in wanted and now - written.at < PAUSE
        }
        if not waiting:
            return replace(plan, drift=drift), []
        left: list[Operation] = []
        sent: list[Operation] = []
        for operation in plan.operations:
            kept, withheld = _divide(operation, waiting)
            sent += kept
            left += withheld
        apart = [
            operation
            for operation in left
            if isinstance(
                operation, CreateProvider | DeleteProvider | RenameProvider | ReparentProvider
            )
        ]
        left += [operation for operation in sent if depends(operation, apart, plan.target.tree)]
        sent = [operation for operation in sent if operation not in left]
        outcomes = [
            Outcome(operation, "skipped", "another writer changes it back") for operation in left
        ]
        return replace(plan, operations=tuple(sent), drift=drift, withheld=bool(left)), outcomes

    def _count(self, wanted: Mapping[Item, Hashable], now: float) -> None:
        for item, value in wanted.items():
            written = self._written.get(item)
            if written is not None and written.wanted != value:
                del self._written[item]
            elif written is not None and not written.again:
                times = written.times + 1 if now - written.at < PAUSE else 0
                self._written[item] = replace(written, times=times, again=True)
        # A first pass writes all that a node has, and each later one would search it.
        if now - self._oldest >= PAUSE:
            self._forget_lasting(wanted, now)

    def _forget_lasting(self, wanted: Mapping[Item, Hashable], now: float) -> None:
        """Forget the written values that have lasted."""
        self._written = {
            item: written
            for item, written in self._written.items()
            if item in wanted or now - written.at < PAUSE
        }
        self._oldest = min((written.at for written in self._written.values()), default=math.inf)

    def record_sent(self, outcomes: Iterable[Outcome]) -> None:
        """Record the operations that were done."""
        now = self._clock()
        self._oldest = min(self._oldest, now)
        for outcome in outcomes:
            operation = outcome.operation
            if outcome.status == "done" and isinstance(operation, ProviderOperation):
                if isinstance(operation, DeleteProvider):
                    # The deletion is the agent's own, contents included: if the node gets the
                    # provider again, nobody has changed anything back.
                    self._written = {
                        item: known
                        for item, known in self._written.items()
                        if item[0] != operation.provider.uuid or item[1] == "the provider"
                    }
                for item, wanted in (*_items(operation), *_implied(operation)):
                    known = self._written.get(item)
                    times = known.times if known is not None and known.wanted == wanted else 0
                    self._written[item] = _Written(wanted, now, operation.provider.name, times)

    def _drift(self) -> Iterator[Drift]:
        by_provider: dict[ProviderUuid, list[tuple[str, _Written]]] = {}
        # Chosen before they are sorted, because after a first pass all that it wrote is here.
        rivals = [
            (item, written) for item, written in self._written.items() if written.times >= TOLD
        ]
        for (uuid, kind, name), written in sorted(rivals):
            by_provider.setdefault(uuid, []).append((f"{kind} {printable(name)}".strip(), written))
        for uuid, found in by_provider.items():
            what = name_first(
                [f"{text} ({number_of(written.times, 'time')})" for text, written in found]
            )
            yield Drift(
                "rival-writer",
                "warning",
                (
                    f"{printable(found[0][1].name)}: somebody changes back what the agent writes: "
                    f"{what}"
                ),
                REMEDY,
                uuid,
            )


def _changes(plan: Plan) -> Iterator[tuple[Item, Hashable]]:
    """Yield the items that a plan writes, with their values.

    Of a provider that is created anew only its creation counts, because its deletion by somebody
    else removed the contents too.
    """
    created = {
        operation.provider.uuid
        for operation in plan.operations
        if isinstance(operation, CreateProvider)
    }
    for operation in plan.operations:
        for item, value in _items(operation):
            if item[0] not in created or isinstance(operation, CreateProvider):
                yield item, value


def _items(operation: Operation) -> Iterator[tuple[Item, Hashable]]:
    """Yield the items that an operation writes, with their values."""
    if not isinstance(operation, ProviderOperation):
        return
    uuid = operation.provider.uuid
    if isinstance(operation, SetInventory):
        for name in operation.old.keys() | operation.new.keys():
            if operation.old.get(name) != operation.new.get(name):
                yield (
                    (uuid, "inventory of", name),
                    tuple(sorted(operation.new.get(name, {}).items())),
                )
    elif isinstance(operation, SetNames):
        for name in operation.old ^ operation.new:
            yield (
                (uuid, "trait" if isinstance(operation, SetTraits) else "aggregate", name),
                name in operation.new,
            )
    elif isinstance(operation, CreateProvider | DeleteProvider):
        yield (uuid, "the provider", ""), isinstance(operation, CreateProvider)
    elif isinstance(operation, RenameProvider):
        yield (uuid, "its name", ""), operation.provider.name
    elif isinstance(operation, ReparentProvider):
        yield (uuid, "its parent", ""), operation.parent


def _implied(operation: ProviderOperation) -> Iterator[tuple[Item, Hashable]]:
    """Yield further items that an operation sets: a created provider has its name, a moved one
    exists.
    """
    if isinstance(operation, CreateProvider):
        yield (operation.provider.uuid, "its name", ""), operation.provider.name
    elif isinstance(operation, ReparentProvider):
        yield (operation.provider.uuid, "the provider", ""), True


def _divide(operation: Operation, waiting: set[Item]) -> tuple[list[Operation], list[Operation]]:
    """Divide an operation into the parts that are sent and those that are ``waiting``."""
    held = {item[2] for item, _ in _items(operation) if item in waiting}
    if not held:
        return [operation], []
    if isinstance(operation, SetInventory):
        kept = {name: record for name, record in operation.new.items() if name not in held}
        kept |= {name: operation.old[name] for name in held if name in operation.old}
        return ([replace(operation, new=kept)] if kept != operation.old else []), [operation]
    if isinstance(operation, SetNames):
        remaining = frozenset((operation.new - held) | (operation.old & held))
        return ([replace(operation, new=remaining)] if remaining != operation.old else []), [
            operation
        ]
    return [], [operation]
