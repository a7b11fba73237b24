"""Detection of another writer of the same providers, which changes back what the agent wrote, and
the pause that keeps the two from writing against each other.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.model.names import ProviderUuid, number_of, printable
from agent.model.operation import (
    CreateProvider,
    DeleteProvider,
    Operation,
    ProviderOperation,
    RenameProvider,
    ReparentProvider,
    SetAggregates,
    SetInventory,
    SetTraits,
)
from agent.model.report import Drift, Outcome
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

    @property
    def rival(self) -> bool:
        return self.times >= TOLD


class RivalWriters:
    """The writes on one node and how often each was changed back, for the life of the process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[Item, _Written] = {}

    def withhold(self, plan: Plan) -> tuple[Plan, list[Outcome]]:
        """Return ``plan`` without what another writer would change back now, and with drift that
        reports the other writer; and the outcomes of the operations that were left out.
        """
        now, wanted = self._clock(), dict(_changes(plan))
        self._count(wanted, now)
        waiting = {
            item
            for item, one in self._written.items()
            if one.rival and item in wanted and now - one.at < PAUSE
        }
        left: list[Operation] = []
        sent: list[Operation] = []
        for one in plan.operations:
            kept, withheld = _divided(one, waiting)
            sent += kept
            left += withheld
        apart = [
            one
            for one in left
            if isinstance(one, CreateProvider | DeleteProvider | RenameProvider | ReparentProvider)
        ]
        left += [one for one in sent if depends(one, apart, plan.target.tree)]
        sent = [one for one in sent if one not in left]
        drift = (*plan.drift, *self._drift())
        outcomes = [Outcome(one, "skipped", "another writer changes it back") for one in left]
        return replace(plan, operations=tuple(sent), drift=drift, withheld=bool(left)), outcomes

    def _count(self, wanted: Mapping[Item, Hashable], now: float) -> None:
        for item, one in list(self._written.items()):
            soon = now - one.at < PAUSE
            if item in wanted and one.wanted == wanted[item]:
                if not one.again:
                    self._written[item] = replace(
                        one, times=one.times + 1 if soon else 0, again=True
                    )
            elif item in wanted or not soon:
                # Another value is wanted now, or the written value has lasted.
                del self._written[item]

    def record_sent(self, outcomes: Iterable[Outcome]) -> None:
        """Record the operations that were done."""
        now = self._clock()
        for outcome in outcomes:
            one = outcome.operation
            if outcome.status == "done" and isinstance(one, ProviderOperation):
                if isinstance(one, DeleteProvider):
                    # The deletion is the agent's own, contents included: if the node gets the
                    # provider again, nobody has changed anything back.
                    self._written = {
                        item: known
                        for item, known in self._written.items()
                        if item[0] != one.provider.uuid or item[1] == "the provider"
                    }
                for item, wanted in (*_items(one), *_implied(one)):
                    known = self._written.get(item)
                    times = known.times if known is not None and known.wanted == wanted else 0
                    self._written[item] = _Written(wanted, now, one.provider.name, times)

    def _drift(self) -> Iterator[Drift]:
        by_provider: dict[ProviderUuid, list[tuple[str, _Written]]] = {}
        for (uuid, kind, name), one in sorted(self._written.items()):
            if one.rival:
                by_provider.setdefault(uuid, []).append((f"{kind} {printable(name)}".strip(), one))
        for uuid, found in by_provider.items():
            what = ", ".join(f"{text} ({number_of(one.times, 'time')})" for text, one in found)
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
    created = {one.provider.uuid for one in plan.operations if isinstance(one, CreateProvider)}
    for one in plan.operations:
        for item, value in _items(one):
            if item[0] not in created or isinstance(one, CreateProvider):
                yield item, value


def _items(one: Operation) -> Iterator[tuple[Item, Hashable]]:
    """Yield the items that an operation writes, with their values."""
    if not isinstance(one, ProviderOperation):
        return
    uuid = one.provider.uuid
    if isinstance(one, SetInventory):
        for name in one.old.keys() | one.new.keys():
            if one.old.get(name) != one.new.get(name):
                yield (uuid, "inventory of", name), tuple(sorted(one.new.get(name, {}).items()))
    elif isinstance(one, SetTraits | SetAggregates):
        for name in one.old ^ one.new:
            yield (
                (uuid, "trait" if isinstance(one, SetTraits) else "aggregate", name),
                name in one.new,
            )
    elif isinstance(one, CreateProvider | DeleteProvider):
        yield (uuid, "the provider", ""), isinstance(one, CreateProvider)
    elif isinstance(one, RenameProvider):
        yield (uuid, "its name", ""), one.provider.name
    elif isinstance(one, ReparentProvider):
        yield (uuid, "its parent", ""), one.parent


def _implied(one: ProviderOperation) -> Iterator[tuple[Item, Hashable]]:
    """Yield further items that an operation sets: a created provider has its name, a moved one
    exists.
    """
    if isinstance(one, CreateProvider):
        yield (one.provider.uuid, "its name", ""), one.provider.name
    elif isinstance(one, ReparentProvider):
        yield (one.provider.uuid, "the provider", ""), True


def _divided(one: Operation, waiting: set[Item]) -> tuple[list[Operation], list[Operation]]:
    """Divide an operation into the parts that are sent and those that wait."""
    held = {item[2] for item, _ in _items(one) if item in waiting}
    if not held:
        return [one], []
    if isinstance(one, SetInventory):
        kept = {name: record for name, record in one.new.items() if name not in held}
        kept |= {name: one.old[name] for name in held if name in one.old}
        return ([replace(one, new=kept)] if kept != one.old else []), [one]
    if isinstance(one, SetTraits | SetAggregates):
        remaining = frozenset((one.new - held) | (one.old & held))
        return ([replace(one, new=remaining)] if remaining != one.old else []), [one]
    return [], [one]
