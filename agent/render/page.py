"""The view model of the page: what a report shows of nodes, computed from their documents. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent.model.inventory import capacity
from agent.model.names import number_of
from agent.render.page_machine import Machine, PageGuest, machine_of, page_guests

Document = Mapping[str, Any]

NODES_IN_FULL = 20
"""Beyond this number of nodes, the page is a table, and shows one node at a time."""
SEVERITIES = ("warning", "info")


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource class of one provider. The bar is as long as what can be used and reserved,
    overcommitment included; its parts are in percent of it.
    """

    resource_class: str
    used: int | None
    """None if unknown."""
    reserved: int
    total: int
    ratio: float
    capacity: int
    reserved_part: float
    used_part: float
    total_mark: float | None
    """Where the total ends, if the class is overcommitted."""

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
    """One provider, with its children."""

    name: str
    uuid: str | None
    generation: int | None
    owned: bool
    bars: tuple[Bar, ...]
    traits: tuple[str, ...]
    aggregates: tuple[str, ...]
    children: tuple["PageProvider", ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the plan."""

    op: str
    provider: str
    """Empty if the operation is not about one provider."""
    reason: str
    status: str
    error: str
    before: str
    """JSON; empty if there is none."""
    after: str
    """JSON; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Promise:
    """One open claim."""

    id: str
    instance: str
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
    type: str
    status: str
    way: str


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
    audited: str
    last_good_audit: str
    severities: Mapping[str, int]
    """Severity to the number of differences; only those that occur."""
    roots: tuple[PageProvider, ...]
    steps: tuple[Step, ...]
    drift: tuple[Document, ...]
    errors: tuple[Document, ...]
    machine: Machine | None
    """None if nothing is known of the machine."""
    guests: tuple[PageGuest, ...]
    claims: tuple[Promise, ...]
    moves: tuple[PageMove, ...]

    @property
    def pending(self) -> int:
        """How many operations are planned and not sent."""
        return sum(step.status == "planned" for step in self.steps)


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
    def totals(self) -> tuple[tuple[str, int | None, int], ...]:
        """Each resource class with what all nodes use of it, None if one does not tell, and what
        can be allocated of it.
        """
        capacities: Counter[str] = Counter()
        used: dict[str, int | None] = {}
        for bar in (bar for node in self.nodes for bar in bars_of(node.roots)):
            name = bar.resource_class
            capacities[name] += bar.capacity
            before = used.get(name, 0)
            used[name] = None if before is None or bar.used is None else before + bar.used
        return tuple((name, used[name], count) for name, count in sorted(capacities.items()))


def bars_of(providers: Sequence[PageProvider]) -> list[Bar]:
    """Return the bars of providers and of everything below them."""
    return [bar for provider in providers for bar in (*provider.bars, *bars_of(provider.children))]


def page_of(
    nodes: Sequence[Document],
    *,
    source: str,
    made_at: float,
    version: str,
    placement: str = "",
    errors: Sequence[Document] = (),
) -> Page:
    """Return the page of nodes. ``nodes``: each the document of a node's report with the keys
    ``audited_at``, ``last_good_audit_at``, ``records``, ``guests``, ``claims``, ``migrations`` and
    ``devices``, as the local API has them.
    """
    what = nodes[0]["name"] if len(nodes) == 1 else number_of(len(nodes), "node")
    return Page(
        title=what,
        source=source,
        made=moment(made_at),
        version=version,
        placement=placement,
        errors=tuple(errors),
        nodes=tuple(page_node(number, node) for number, node in enumerate(nodes)),
    )


def page_node(number: int, node: Document) -> PageNode:
    """Return one node of the page."""
    drift = tuple(node["drift"])
    counts = Counter(one["severity"] for one in drift)
    return PageNode(
        number=number,
        name=node["name"],
        uuid=node["uuid"],
        driver=node["driver"] or "",
        state=node["state"] or "unknown",
        audited=moment(node["audited_at"]),
        last_good_audit=moment(node["last_good_audit_at"]),
        severities={name: counts[name] for name in SEVERITIES if counts[name]},
        roots=provider_tree(node["tree"]),
        steps=tuple(map(_step, node["operations"])),
        drift=drift,
        errors=tuple(node["errors"]),
        machine=machine_of(node),
        guests=page_guests(node),
        claims=tuple(map(_promise, node["claims"])),
        moves=tuple(map(_move, node["migrations"])),
    )


def provider_tree(rows: Sequence[Document]) -> tuple[PageProvider, ...]:
    """Return the roots of the rows of a tree, parents first. Where no provider has a uuid yet, the
    rows after the first are its children.
    """
    below: dict[str | None, list[int]] = {}
    known = {row["uuid"] for row in rows if row["uuid"] is not None}
    for place, row in enumerate(rows):
        parent = row["parent"] if row["parent"] in known else None
        below.setdefault(parent, []).append(place)
    tops = below.get(None, [])
    if not known and tops:
        first, *others = (_provider(rows[place], ()) for place in tops)
        return (_with_children(first, tuple(others)),)

    def made(place: int) -> PageProvider:
        uuid = rows[place]["uuid"]
        beneath = below.get(uuid, []) if uuid is not None else []
        return _provider(rows[place], tuple(map(made, beneath)))

    return tuple(map(made, tops))


def _with_children(provider: PageProvider, children: tuple[PageProvider, ...]) -> PageProvider:
    return PageProvider(
        provider.name,
        provider.uuid,
        provider.generation,
        provider.owned,
        provider.bars,
        provider.traits,
        provider.aggregates,
        children,
    )


def _provider(row: Document, children: tuple[PageProvider, ...]) -> PageProvider:
    return PageProvider(
        name=row["name"],
        uuid=row["uuid"],
        generation=row["generation"],
        owned=row["owned"],
        bars=tuple(bar_of(name, record) for name, record in row["inventories"].items()),
        traits=tuple(row["traits"]),
        aggregates=tuple(row["aggregates"]),
        children=children,
    )


def bar_of(resource_class: str, record: Document) -> Bar:
    """Return the bar of one inventory record with its ``used`` amount."""
    room, used = capacity(record), record["used"]
    reserved, total = record["reserved"], record["total"]
    length = max(room + reserved, total, reserved + (used or 0), 1)
    return Bar(
        resource_class=resource_class,
        used=used,
        reserved=reserved,
        total=total,
        ratio=record["allocation_ratio"],
        capacity=room,
        reserved_part=_percent(reserved, length),
        used_part=_percent(used or 0, length),
        total_mark=_percent(total, length) if total < room + reserved else None,
    )


def _percent(amount: int, whole: int) -> float:
    return round(100 * amount / whole, 2)


def moment(seconds: float | None) -> str:
    """Return a time in UTC; empty if there is none."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _step(operation: Document) -> Step:
    provider = operation["provider"]
    return Step(
        op=operation["op"],
        provider=provider["name"] if provider else "",
        reason=operation["reason"],
        status=operation["status"],
        error=operation["error"] or "",
        before=_json(operation["before"]),
        after=_json(operation["after"]),
    )


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _promise(claim: Document) -> Promise:
    amounts = claim["amounts"]
    return Promise(
        id=claim["id"],
        instance=claim["instance"],
        purpose=claim["purpose"],
        half=claim["half"],
        state=claim["state"],
        amounts=(
            f"{amounts['vcpus']} CPUs, {amounts['memory_mb']} MiB memory, "
            f"{amounts['disk_mb']} MiB disk"
        ),
        since=moment(claim["created_at"]),
    )


def _move(migration: Document) -> PageMove:
    return PageMove(
        uuid=migration["uuid"],
        instance=migration["instance"],
        type=migration["type"],
        status=migration["status"],
        way=f"{migration['source_compute'] or '?'} → {migration['dest_compute'] or '?'}",
    )
