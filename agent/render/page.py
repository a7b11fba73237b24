"""The view model of the page: what a report shows of nodes, computed from their documents. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent.model.names import number_of
from agent.render.page_guests import (
    PageGuest,
    allocation_words,
    page_guests,
    provider_holders,
)
from agent.render.page_machine import PageMachine, machine_of
from agent.render.page_tree import PageProvider, bars_of, provider_tree

Document = Mapping[str, Any]

NODES_IN_FULL = 20
"""Beyond this number of nodes, the page is a table, and shows one node at a time."""
SEVERITIES = ("warning", "info")


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
    audited: str
    last_good_audit: str
    severities: Mapping[str, int]
    """Severity to the number of differences; only those that occur."""
    roots: tuple[PageProvider, ...]
    steps: tuple[Step, ...]
    drift: tuple[Document, ...]
    errors: tuple[Document, ...]
    machine: PageMachine | None
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
    of each provider.
    """
    shown = tuple(page_node(number, node) for number, node in enumerate(nodes))
    return Page(
        title=shown[0].name if len(shown) == 1 else number_of(len(shown), "node"),
        source=source,
        made=moment(made_at),
        version=version,
        placement=placement,
        errors=tuple(errors),
        nodes=shown,
    )


def page_node(number: int, node: Document) -> PageNode:
    """Return one node of the page."""
    drift = tuple(node["drift"])
    counts = Counter(found["severity"] for found in drift)
    return PageNode(
        number=number,
        name=node["name"],
        uuid=node["uuid"],
        driver=node["driver"] or "",
        state=node["state"] or "unknown",
        audited=moment(node["audited_at"]),
        last_good_audit=moment(node["last_good_audit_at"]),
        severities={name: counts[name] for name in SEVERITIES if counts[name]},
        roots=provider_tree(node["tree"], provider_holders(node)),
        steps=tuple(map(_step, node["operations"])),
        drift=drift,
        errors=tuple(node["errors"]),
        machine=machine_of(node),
        guests=page_guests(node),
        claims=tuple(map(_promise, node["claims"])),
        moves=tuple(_move(node, migration) for migration in node["migrations"]),
    )


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


def _move(node: Document, migration: Document) -> PageMove:
    names = {row["uuid"]: row["name"] for row in node["tree"]}
    return PageMove(
        uuid=migration["uuid"],
        instance=migration["instance"],
        type=migration["type"],
        status=migration["status"],
        way=f"{migration['source_compute'] or '?'} → {migration['dest_compute'] or '?'}",
        allocation=allocation_words(node, migration["uuid"], names),
    )
