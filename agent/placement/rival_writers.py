"""Another writer of the same providers: notices that what the agent wrote is changed back, and
keeps the two from writing against each other.
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

# What is changed back so soon after it was written, in seconds, is changed back by a program; and
# so long it is left alone then.
PAUSE = 600.0
# From so many times on it is told, and left alone.
TOLD = 2
REMEDY = (
    "stop the other writer: a nova-compute that still manages this host, or an agent that runs "
    "with a copy of this one's identity; this agent writes it once in ten minutes meanwhile"
)

Item = tuple[ProviderUuid, str, str]
"""One thing that is written of a provider: its uuid, of what kind, and which of that kind."""


@dataclass(frozen=True, slots=True)
class _Written:
    """``wanted`` was written at ``at`` (seconds of a clock that never goes back); ``times``: how
    often it was changed back, and whether ``again`` since.
    """

    wanted: Hashable
    at: float
    name: str
    times: int = 0
    again: bool = False

    @property
    def rival(self) -> bool:
        return self.times >= TOLD


class RivalWriters:
    """What was written of one node, and how often it was changed back. Kept for as long as the
    process lives.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[Item, _Written] = {}

    def withheld(self, plan: Plan) -> tuple[Plan, list[Outcome]]:
        """``plan`` without what another writer would only change back now, and with the drift that
        tells of it; and what was left out.
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
                # It is wanted otherwise by now, or has stayed as it was written.
                del self._written[item]

    def sent(self, outcomes: Iterable[Outcome]) -> None:
        """Remember what was written."""
        now = self._clock()
        for outcome in outcomes:
            one = outcome.operation
            if outcome.status == "done" and isinstance(one, ProviderOperation):
                if isinstance(one, DeleteProvider):
                    # What it had goes with it by the agent's own hand: if the node has it again,
                    # nobody has changed anything back.
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
    """What the operations of a plan make of their providers; of one that is made anew only that,
    because whoever deleted it took the rest with it.
    """
    created = {one.provider.uuid for one in plan.operations if isinstance(one, CreateProvider)}
    for one in plan.operations:
        for item, value in _items(one):
            if item[0] not in created or isinstance(one, CreateProvider):
                yield item, value


def _items(one: Operation) -> Iterator[tuple[Item, Hashable]]:
    """What an operation makes of its provider, each with the value that it gets."""
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
    """What an operation gives a provider besides: a new one has its name, and one that was moved is
    there.
    """
    if isinstance(one, CreateProvider):
        yield (one.provider.uuid, "its name", ""), one.provider.name
    elif isinstance(one, ReparentProvider):
        yield (one.provider.uuid, "the provider", ""), True


def _divided(one: Operation, waiting: set[Item]) -> tuple[list[Operation], list[Operation]]:
    """The parts of an operation that are sent, and those that wait."""
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
