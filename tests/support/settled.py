"""What every scenario must leave behind: the final-state checks (a) to (h), in one call."""

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.tree.desired_tree import agent_trait
from tests.support.agent import IDENTITY, AgentUnderTest
from tests.support.microversions import without_their_version
from tests.support.other_client import PROJECT, USER
from tests.support.placement import Placement

AGENT_TRAIT = agent_trait(IDENTITY)
ROOT_TRAITS = frozenset({"COMPUTE_NODE", "OWNER_NOVA", AGENT_TRAIT})
"""What the agent keeps on every root."""

SECRETS = ("test-user", PROJECT, USER)
"""The token of the test's sessions, and whose consumers there are."""

QUERY = re.compile(r"\?\S+")
LONGEST_LINE = 600
"""No line about one provider is longer; one with a whole tree is."""


@dataclass(frozen=True)
class Want:
    """A provider as it should be: all its records with their six fields, its parent by name
    (``None``: a root).
    """

    inventory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parent: str | None = None
    traits: Collection[str] = ()
    aggregates: Collection[str] = ()


def node(
    inventory: Mapping[str, Mapping[str, Any]], *traits: str, aggregates: Collection[str] = ()
) -> Want:
    """A node's root: ``traits`` beside those that the agent keeps there."""
    return Want(inventory, None, ROOT_TRAITS | set(traits), aggregates)


def settled(
    agent: AgentUnderTest,
    placement: Placement,
    log: pytest.LogCaptureFixture,
    want: Mapping[str, Want],
    *,
    before: Mapping[str, Any] | None = None,
    gone: Collection[str] = (),
    consumers: Mapping[str, Any] | None = None,
    reads: int | tuple[int, int] = 1,
    state: str = "in-sync",
) -> None:
    """Check everything; the last thing that a test does, because the following cycles are in the
    log afterwards.

    ``want`` has the providers that were involved, by name, and ``gone`` those that vanished; every
    other is exactly as in ``before``, a ``placement.dump()``, its generation included, and so is
    every consumer unless ``consumers`` are given. ``reads``: how many requests the next cycle costs
    and, if that is another number, the first of a new process; ``state``: in which they leave the
    nodes.
    """
    left = placement.dump()
    _providers(left, want, before or {"providers": {}}, gone)
    expected = (before or {"consumers": {}})["consumers"] if consumers is None else consumers
    assert left["consumers"] == expected
    clean(placement, log)
    _quiet(agent, placement, left, reads if isinstance(reads, tuple) else (reads, reads), state)
    clean(placement, log)


def clean(placement: Placement, log: pytest.LogCaptureFixture) -> None:
    """Checks (f) and (h) alone, for a test whose next cycle cannot be quiet because what is wrong
    is tried again.
    """
    _versions(placement)
    _silent(log.records)


def _providers(
    left: Mapping[str, Any],
    want: Mapping[str, Want],
    before: Mapping[str, Any],
    gone: Collection[str],
) -> None:
    names = {uuid: one["name"] for uuid, one in left["providers"].items()}
    involved = {
        one["name"]: Want(
            one["inventories"], names.get(one["parent"]), set(one["traits"]), set(one["aggregates"])
        )
        for one in left["providers"].values()
        if one["name"] in want
    }
    assert involved == {
        name: Want(one.inventory, one.parent, set(one.traits), set(one.aggregates))
        for name, one in want.items()
    }
    others = {uuid: one for uuid, one in left["providers"].items() if one["name"] not in want}
    assert others == {
        uuid: one for uuid, one in before["providers"].items() if one["name"] not in {*want, *gone}
    }


def _versions(placement: Placement) -> None:
    """No request without the microversion that it needs, or without a global request id."""
    assert without_their_version(placement.requests) == []
    assert [
        str(one) for one in placement.requests if not (one.request_id or "").startswith("req-")
    ] == []


def _quiet(
    agent: AgentUnderTest,
    placement: Placement,
    left: Mapping[str, Any],
    reads: tuple[int, int],
    state: str,
) -> None:
    """The next cycle of the process writes nothing, nor does the first of a new one."""
    for following, allowed in zip((agent.period, agent.report), reads, strict=True):
        placement.clear()
        report = following()
        assert [str(one) for one in placement.writes()] == []
        assert placement.count() == allowed, placement.lines()
        assert {one.state for one in report.nodes} == {state}
        assert placement.dump() == left


TRACEBACK = "whose traceback is logged this once:\n"


def _silent(records: Iterable[logging.LogRecord]) -> None:
    """No secret and no whole tree in what the agent logged."""
    lines = [
        record.getMessage()
        for record in records
        if record.name.partition(".")[0] in ("agent", "drivers")
    ]
    assert [line for line in lines if any(secret in line for secret in SECRETS)] == []
    # A query may be long: it names providers and aggregates, and has nothing of what is in them.
    assert [
        line for line in lines if len(QUERY.sub("", line.partition(TRACEBACK)[0])) > LONGEST_LINE
    ] == []
    # Lines of a traceback are indented, so that nobody takes them for lines of the log.
    below = [line.split("\n")[1:] for line in lines]
    assert [line for some in below for line in some if not line.startswith("    ")] == []
    assert [line for line in lines if "\n" in line and TRACEBACK not in line] == []
