"""The view model of the page: what a report shows of nodes, computed from their documents. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from agent.model.finding import WELL
from agent.model.inventory import capacity
from agent.model.names import number_of
from agent.render.document import Document, command_line
from agent.render.page_guests import (
    PageGuest,
    allocation_words,
    page_guests,
    provider_holders,
    with_ways,
)
from agent.render.page_machine import PageMachine, machine_of

NODES_IN_FULL = 20
"""Beyond this number of nodes, the page is a table, and shows one node at a time."""
SEVERITIES = ("warning", "info")
_CONTENTS = frozenset({"set-inventory", "set-traits", "set-aggregates"})
"""Operations that are told with the creation of their provider."""
Tone = Literal["good", "warn", "bad", "unknown"]


def larger(one: int | None, other: int | None) -> int | None:
    """Return the larger of the known amounts; None if neither is known."""
    return max((amount for amount in (one, other) if amount is not None), default=None)


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource class of one provider. The bar is as long as what can be used and reserved,
    overcommitment included; its parts are in percent of it.
    """

    resource_class: str
    on_record: int | None
    """None if unknown."""
    in_placement: int | None
    """None if Placement was not asked."""
    reserved: int
    total: int
    ratio: float
    capacity: int
    reserved_part: float
    used_part: float
    total_mark: float | None
    """Where the total ends, if the class is overcommitted."""

    @property
    def used(self) -> int | None:
        """The larger of what is on record and what Placement counts, because only what neither
        counts is free; None if neither is known.
        """
        return larger(self.on_record, self.in_placement)

    @property
    def free(self) -> int | None:
        """What can still be allocated; negative if more is used; None if unknown."""
        return None if self.used is None else self.capacity - self.used

    @property
    def over(self) -> bool:
        """Whether more is used than can be allocated."""
        return self.free is not None and self.free < 0


@dataclass(frozen=True, slots=True)
class PageProvider:
    """One provider of the tree."""

    name: str
    uuid: str | None
    depth: int
    """0 for a root."""
    generation: int | None
    owned: bool
    bars: tuple[Bar, ...]
    traits: tuple[str, ...]
    aggregates: tuple[str, ...]
    holders: tuple[int, ...]
    """The guests that are known to have an allocation of it, by their places."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """One operation of a step."""

    op: str
    before: str
    """JSON; empty if there is none."""
    after: str
    """JSON; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the plan, or the creation of a provider with what it was created with."""

    parts: tuple[StepPart, ...]
    subject: str
    """The provider, or the name that is made; empty if the operation is about several."""
    reason: str
    status: str
    error: str


@dataclass(frozen=True, slots=True)
class Promise:
    """One open claim."""

    id: str
    instance: str
    guest: str
    """Its name; empty if the hypervisor does not show it."""
    purpose: str
    half: str
    state: str
    amounts: str
    since: str


@dataclass(frozen=True, slots=True)
class PageMove:
    """One migration that has not ended."""

    uuid: str
    instance: str
    guest: str
    """As of a claim."""
    type: str
    status: str
    way: str
    allocation: tuple[str, ...]
    """What the migration itself is known to have in Placement of the node."""


@dataclass(frozen=True, slots=True)
class PageNode:
    """One node."""

    number: int
    """Its place on the page, for the ids of elements."""
    name: str
    uuid: str | None
    driver: str
    state: str
    """``unknown`` where only the store was read."""
    tone: Tone
    """How the state looks: ``good`` only where nothing is wrong and nothing is left to do."""
    audited: str
    last_good_audit: str
    severities: Mapping[str, int]
    """Severity to the number of differences; only those that occur."""
    no_drift: str
    """What is said where none occurs."""
    providers: tuple[PageProvider, ...]
    """Parents before their children."""
    to_ask: str
    """The command that asks Placement what it counts; empty if it was asked."""
    hidden: bool
    """Whether neither records nor Placement say what is used of something."""
    steps: tuple[Step, ...]
    done: bool
    """Whether nothing of the plan is left to do."""
    drift: tuple[Document, ...]
    errors: tuple[Document, ...]
    hint: str
    """What is no trouble and worth to know, such as that allocations were not judged."""
    machine: PageMachine | None
    """None if nothing is known of the machine."""
    guests: tuple[PageGuest, ...]
    claims: tuple[Promise, ...]
    moves: tuple[PageMove, ...]

    @property
    def pending(self) -> int:
        """How many operations are planned and not sent."""
        return sum(len(step.parts) for step in self.steps if step.status == "planned")

    @property
    def operations(self) -> int:
        """How many operations there are."""
        return sum(len(step.parts) for step in self.steps)


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page."""

    title: str
    source: str
    """Where the documents come from, in a few words."""
    made: str
    version: str
    placement: str
    """The endpoint; empty if unknown."""
    errors: tuple[Document, ...]
    nodes: tuple[PageNode, ...]

    @property
    def states(self) -> Mapping[str, int]:
        """State to number of nodes."""
        return dict(sorted(Counter(node.state for node in self.nodes).items()))

    @property
    def warnings(self) -> int:
        """How many warnings there are."""
        return sum(node.severities.get("warning", 0) for node in self.nodes)

    @property
    def totals(self) -> tuple[tuple[str, int | None, int], ...]:
        """Each resource class with what all nodes use of it, None if one does not tell, and what
        can be allocated of it.
        """
        capacities: Counter[str] = Counter()
        used: dict[str, int | None] = {}
        providers = (provider for node in self.nodes for provider in node.providers)
        for bar in (bar for provider in providers for bar in provider.bars):
            name = bar.resource_class
            capacities[name] += bar.capacity
            before = used.get(name, 0)
            used[name] = None if before is None or bar.used is None else before + bar.used
        return tuple((name, used[name], count) for name, count in sorted(capacities.items()))


def page_of(
    nodes: Iterable[Document],
    *,
    source: str,
    made_at: float,
    version: str,
    placement: str = "",
    errors: Sequence[Document] = (),
) -> Page:
    """Return the page of nodes. ``nodes``: each the document of a node's report with the keys
    ``audited_at``, ``last_good_audit_at``, ``records``, ``guests``, ``claims``, ``migrations`` and
    ``devices``, as the local API has them, and ``allocations``: what each consumer is known to have
    of each provider; ``hint``, if there is one.
    """
    shown = tuple(page_node(number, node) for number, node in enumerate(nodes))
    return Page(
        title=shown[0].name if len(shown) == 1 else number_of(len(shown), "node"),
        source=source,
        made=moment(made_at),
        version=version,
        placement=placement,
        errors=tuple(map(with_ways, errors)),
        nodes=shown,
    )


def page_node(number: int, node: Document) -> PageNode:
    """Return one node of the page."""
    drift = tuple(node["drift"])
    counts = Counter(found["severity"] for found in drift)
    providers = tuple(provider_rows(node["tree"], provider_holders(node)))
    bars = [bar for provider in providers for bar in provider.bars]
    steps = tuple(_steps(node["operations"]))
    called = {guest["uuid"]: guest["name"] for guest in node["guests"]}
    return PageNode(
        number=number,
        name=node["name"],
        uuid=node["uuid"],
        driver=node["driver"] or "",
        state=node["state"] or "unknown",
        tone=_tone(node["state"], counts["warning"] or node["errors"]),
        audited=moment(node["audited_at"]),
        last_good_audit=moment(node["last_good_audit_at"]),
        severities={name: counts[name] for name in SEVERITIES if counts[name]},
        no_drift=_no_drift(node["state"]),
        providers=providers,
        to_ask=""
        if any(bar.in_placement is not None for bar in bars)
        else command_line("agent --once --with-usages --report FILE"),
        hidden=any(bar.used is None for bar in bars),
        steps=steps,
        done=all(step.status == "done" for step in steps),
        drift=tuple(
            map(with_ways, sorted(drift, key=lambda one: SEVERITIES.index(one["severity"])))
        ),
        errors=tuple(map(with_ways, node["errors"])),
        hint=node.get("hint") or "",
        machine=machine_of(node),
        guests=page_guests(node),
        claims=tuple(
            _promise(claim, called.get(claim["instance"], "")) for claim in node["claims"]
        ),
        moves=tuple(
            _move(node, migration, called.get(migration["instance"], ""))
            for migration in node["migrations"]
        ),
    )


def _no_drift(state: str | None) -> str:
    if state is None:
        return "drift unknown"
    return "no drift" if state in WELL else "no drift is known: the last audit was incomplete"


def _tone(state: str | None, troubles: object) -> Tone:
    if state is None:
        return "unknown"
    if state not in WELL:
        return "bad"
    return "warn" if troubles or state == "pending" else "good"


def provider_rows(
    rows: Sequence[Document], holders: Mapping[str, Sequence[int]]
) -> Iterator[PageProvider]:
    """Yield the providers of the rows of a tree, each before its children. Where no provider has a
    uuid yet, the rows after the first are its children.

    ``holders``: the places of the guests with an allocation, by the provider's uuid.
    """
    below: dict[str | None, list[Document]] = {}
    known = {row["uuid"] for row in rows if row["uuid"] is not None}
    for row in rows:
        below.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)
    waiting = [(row, 0 if known or row is rows[0] else 1) for row in reversed(below.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        yield _provider(row, depth, holders.get(row["uuid"], ()))
        children = below.get(row["uuid"], []) if row["uuid"] is not None else []
        waiting += [(child, depth + 1) for child in reversed(children)]


def _provider(row: Document, depth: int, holders: Sequence[int]) -> PageProvider:
    return PageProvider(
        name=row["name"],
        uuid=row["uuid"],
        depth=depth,
        generation=row["generation"],
        owned=row["owned"],
        bars=tuple(bar_of(name, record) for name, record in row["inventories"].items()),
        traits=tuple(row["traits"]),
        aggregates=tuple(row["aggregates"]),
        holders=tuple(holders),
    )


def bar_of(resource_class: str, record: Document) -> Bar:
    """Return the bar of one inventory record with what is used of it: ``used``, on record, and
    ``in_placement``.
    """
    room, on_record = capacity(record), record["used"]
    # Not in the documents of an agent of an earlier version, which a newer command may ask.
    in_placement = record.get("in_placement")
    used = larger(on_record, in_placement) or 0
    reserved, total = record["reserved"], record["total"]
    length = max(room + reserved, total, reserved + used, 1)
    return Bar(
        resource_class=resource_class,
        on_record=on_record,
        in_placement=in_placement,
        reserved=reserved,
        total=total,
        ratio=record["allocation_ratio"],
        capacity=room,
        reserved_part=_percent(reserved, length),
        used_part=_percent(used, length),
        total_mark=_percent(total, length) if total < room + reserved else None,
    )


def _percent(amount: int, whole: int) -> float:
    return round(100 * amount / whole, 2)


def moment(seconds: float | None) -> str:
    """Return a time in UTC; empty if there is none."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _steps(operations: Iterable[Document]) -> Iterator[Step]:
    """Yield the steps in their order; what a provider was created with is part of its creation,
    which stands before it.
    """
    steps: list[list[Document]] = []
    creations: dict[tuple[str | None, str], list[Document]] = {}
    for operation in operations:
        step = [operation]
        key = ((operation["provider"] or {}).get("uuid"), operation["status"])
        if operation["op"] == "create-provider":
            creations[key] = step
        elif operation["op"] in _CONTENTS and key in creations and not operation["error"]:
            creations[key].append(operation)
            continue
        steps.append(step)
    yield from map(_step, steps)


def _step(operations: Sequence[Document]) -> Step:
    first = operations[0]
    provider, after = first["provider"], first["after"]
    return Step(
        parts=tuple(
            StepPart(one["op"], _json(one["before"]), _json(one["after"])) for one in operations
        ),
        subject=provider["name"] if provider else after if isinstance(after, str) else "",
        reason=first["reason"],
        status=first["status"],
        error=first["error"] or "",
    )


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _promise(claim: Document, guest: str) -> Promise:
    amounts = claim["amounts"]
    return Promise(
        id=claim["id"],
        instance=claim["instance"],
        guest=guest,
        purpose=claim["purpose"],
        half=claim["half"],
        state=claim["state"],
        amounts=(
            f"{number_of(amounts['vcpus'], 'CPU')}, {amounts['memory_mb']} MiB memory, "
            f"{amounts['disk_mb']} MiB disk"
        ),
        since=moment(claim["created_at"]),
    )


def _move(node: Document, migration: Document, guest: str) -> PageMove:
    names = {row["uuid"]: row["name"] for row in node["tree"]}
    return PageMove(
        uuid=migration["uuid"],
        instance=migration["instance"],
        guest=guest,
        type=migration["type"],
        status=migration["status"],
        way=f"{migration['source_compute'] or '?'} → {migration['dest_compute'] or '?'}",
        allocation=allocation_words(node, migration["uuid"], names),
    )
