"""What every scenario must leave behind: the final-state checks (a) to (h), in one call."""

import logging
import re
import sqlite3
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from agent.placement.allocations.candidates import AllocationRequest
from agent.placement.allocations.claim import Owner
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import Timeouts, Transport
from agent.tree.desired_tree import agent_trait
from tests.support.agent import IDENTITY, AgentUnderTest
from tests.support.exchange import traffic, without_their_version
from tests.support.placement import PROJECT, USER, Placement, PlacementServer

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


# ---
# Where operations on allocations happen: two nodes and a shared store, consumers, and a client of
# its own for each operation.


R = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
N0 = "5f9c2a34-7d1e-4a8b-9c46-000000000010"
PF0 = "5f9c2a34-7d1e-4a8b-9c46-0000000000f0"
H = "5f9c2a34-7d1e-4a8b-9c46-000000000002"
SS = "5f9c2a34-7d1e-4a8b-9c46-000000000030"
A = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
C = "c0000000-0000-4000-8000-00000000000c"
D = "c0000000-0000-4000-8000-00000000000d"
M = "c0000000-0000-4000-8000-0000000000aa"
NAMES = {R: "R", N0: "N0", PF0: "PF0", H: "H", SS: "SS", A: "A", C: "c", D: "d", M: "m"}
OWNER = Owner(PROJECT, USER)

Holdings = Mapping[str, Mapping[str, int]]


def request(holdings: Holdings, version: str = "1.36", **more: Any) -> AllocationRequest:
    """What Placement would offer for these amounts."""
    return AllocationRequest(
        {
            "allocations": {
                uuid: {"resources": dict(amounts)} for uuid, amounts in holdings.items()
            },
            **more,
        },
        version,
    )


def record(
    holdings: Holdings, generation: int, project: str = PROJECT, user: str = USER
) -> dict[str, Any]:
    """A consumer as ``Placement.dump`` shows it."""
    return {
        "generation": generation,
        "project_id": project,
        "user_id": user,
        "allocations": {uuid: dict(some) for uuid, some in holdings.items()},
    }


def client_of(
    placement: PlacementServer, cancelled: threading.Event | None = None
) -> PlacementClient:
    """A client for one operation."""
    transport = Transport(
        placement.adapter(),
        timeouts=Timeouts(5, 5, 5),
        max_in_flight=1,
        cancelled=cancelled or threading.Event(),
    )
    return PlacementClient(Exchange(transport, "req-00000000-0000-4000-8000-000000000001"))


class Scene:
    """R -> N0 -> PF0 and the root H, with SS sharing its disk with both roots."""

    _snapshot: ClassVar[sqlite3.Connection | None] = None
    """Made once a process, because the requests take most of a short test's time."""

    def __init__(self, placement: PlacementServer, log: pytest.LogCaptureFixture) -> None:
        self.placement, self.log, self.other = placement, log, placement.other
        self.cancelled = threading.Event()
        if Scene._snapshot is None:
            self._create_providers()
            Scene._snapshot = placement.snapshot()
        else:
            placement.restore(Scene._snapshot)
        self.begin()

    def _create_providers(self) -> None:
        other = self.other
        for uuid, parent, inventory in (
            (R, None, {"VCPU": 16, "PCPU": 8, "MEMORY_MB": 16384}),
            (N0, R, {"HUGE": 8}),
            (PF0, N0, {"SRIOV_NET_VF": 4}),
            (H, None, {"VCPU": 16, "PCPU": 8, "MEMORY_MB": 16384}),
            (SS, None, {"DISK_GB": 1000}),
        ):
            other.create_provider(NAMES[uuid], uuid, parent)
            other.set_inventory(
                uuid,
                {name.replace("HUGE", "CUSTOM_HUGE"): amount for name, amount in inventory.items()},
            )
        other.set_traits(SS, ["MISC_SHARES_VIA_AGGREGATE"])
        for uuid in (R, H, SS):
            other.set_aggregates(uuid, [A])

    def begin(self) -> None:
        """From here on every request and every change counts."""
        self.before = self.placement.dump()
        self.placement.clear()

    def given(self, *consumers: tuple[str, Holdings]) -> None:
        """What consumers hold at first."""
        for consumer, holdings in consumers:
            self.other.claim(holdings, consumer)
        self.begin()

    @property
    def client(self) -> PlacementClient:
        """A client for one operation."""
        return client_of(self.placement, self.cancelled)

    def seen(self) -> list[str]:
        """The requests since the beginning."""
        return traffic(self.placement.requests, NAMES)

    def settled(
        self,
        consumers: Mapping[str, Mapping[str, Any] | None] | None = None,
        moved: Mapping[str, int] | None = None,
    ) -> None:
        """Check all that is left: ``consumers`` as given (``None``: gone) and every other as
        before; and so every provider, but for generations ``moved`` by so much; versions and log
        are clean.
        """
        left, changed = self.placement.dump(), consumers or {}
        expected = {**self.before["consumers"], **changed}
        assert left["consumers"] == {uuid: one for uuid, one in expected.items() if one is not None}
        for uuid, one in self.before["providers"].items():
            assert left["providers"][uuid] == {
                **one,
                "generation": one["generation"] + (moved or {}).get(uuid, 0),
            }, NAMES[uuid]
        assert left["providers"].keys() == self.before["providers"].keys()
        clean(self.placement, self.log)
