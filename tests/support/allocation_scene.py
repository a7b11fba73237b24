"""Where operations on allocations happen: two nodes and a shared store, consumers, and a client of
its own for each operation.
"""

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from agent.placement.allocations.candidates import AllocationRequest
from agent.placement.allocations.claim import Owner
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import Timeouts, Transport
from tests.support.other_client import PROJECT, USER
from tests.support.placement import PlacementServer
from tests.support.settled import clean
from tests.support.traffic import traffic

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
