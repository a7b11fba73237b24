"""An agent whose Placement is away goes on promising room, and waits for nothing; it tells Placement
of everything once it is back.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import pytest

from agent.api.client import ApiClient, Document
from agent.model.names import ProviderUuid
from agent.store.records import Records
from agent.store.store import open_read_only
from tests.support.compute_host import PERIOD, UNITS, ComputeHost, host_file
from tests.support.faults import cut
from tests.support.http_placement import HttpPlacement
from tests.support.orchestrator import PLAIN, Guest, ask
from tests.support.placement import PROJECT, USER
from tests.support.proxy import FaultProxy
from tests.support.service_manager import until
from tests.support.tracking import F1

pytestmark = pytest.mark.long

CLAIMS = 60
"""How many are made in one state of Placement."""
LONGEST = 20.0
"""Seconds that no single claim takes on the busiest machine; one that waits for an answer that does not come takes longer."""
GRACE = 60.0
"""Seconds that the audit itself may take, on a machine that is very busy."""


@pytest.fixture
def host(http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path) -> Iterator[ComputeHost]:
    """A host that reaches Placement through ``proxy`` only, well."""
    host = ComputeHost(tmp_path / "a", "agent-a", "node-a", http_placement.credentials(proxy.url))
    host.start()
    host.wait_until_well()
    yield host
    host.kill()


@contextmanager
def hanging(placement: HttpPlacement) -> Iterator[None]:
    """Inside, Placement takes connections and says nothing."""
    placement.suspend()
    yield
    placement.resume()


def claim(host: ComputeHost) -> Callable[[ApiClient], Document]:
    """The call that claims room for a new guest."""
    wanted = {
        "id": str(uuid4()),
        "node": host.identity,
        "instance": {"uuid": str(uuid4()), "project_id": PROJECT, "user_id": USER},
        "flavor": asdict(F1),
    }
    return lambda client: client.create_claim(wanted)


def seconds_of_a_claim(host: ComputeHost) -> float:
    """How long a claim takes; it is given back at once, so that all are made on the same node."""
    make = claim(host)
    begun = time.perf_counter()
    made = make(host.client)
    taken = time.perf_counter() - begun
    host.client.abort_claim(made["id"])
    return taken


@contextmanager
def cutting(proxy: FaultProxy) -> Iterator[None]:
    """Inside, Placement closes every connection without an answer."""
    proxy.faults.add(cut(), times=None)
    yield
    proxy.faults.clear()


@pytest.mark.parametrize("restarted", [False, True], ids=["as it runs", "started while it is away"])
def test_claims_ask_nothing_of_a_placement_that_is_away(
    host: ComputeHost, proxy: FaultProxy, restarted: bool
) -> None:
    with cutting(proxy):
        if restarted:
            host.crash()
            ask(host, claim(host))
        until(lambda: proxy.requests)
        proxy.clear()
        slowest = max(seconds_of_a_claim(host) for _ in range(CLAIMS))
        # Audits go on trying; one that a claim asked for or waited for would come with each.
        assert proxy.count() < CLAIMS / 2
    assert slowest < LONGEST


@pytest.mark.parametrize("restarted", [False, True], ids=["as it runs", "started while it hangs"])
def test_no_claim_waits_for_an_answer_of_placement(
    host: ComputeHost, http_placement: HttpPlacement, proxy: FaultProxy, restarted: bool
) -> None:
    with hanging(http_placement):
        if restarted:
            host.crash()
            ask(host, claim(host))
        proxy.clear()
        end, samples = time.monotonic() + PERIOD + 1, [seconds_of_a_claim(host)]
        # Until the agent has asked Placement something.
        while time.monotonic() < end or not proxy.requests:
            samples.append(seconds_of_a_claim(host))
    assert max(samples) < LONGEST


def is_dirty(host: ComputeHost) -> bool:
    """Whether the host's records are to be published yet."""
    with open_read_only(host.command.store) as store, Records(store).reading() as reading:
        found = reading.node(ProviderUuid(host.identity))
    assert found is not None
    return found.dirty


@pytest.mark.parametrize("restarted", [False, True], ids=["as it runs", "started while it is away"])
def test_all_is_published_within_a_period_of_its_return(
    host: ComputeHost, http_placement: HttpPlacement, proxy: FaultProxy, restarted: bool
) -> None:
    leaving, staying, coming = (
        Guest(http_placement, PLAIN, random.Random(number)) for number in range(3)
    )
    for guest in (leaving, staying):
        guest.build(host)
    until(lambda: host.is_well() and not is_dirty(host), lambda: host.log[-4000:])
    with proxy.down():
        if restarted:
            host.crash()
        # The scheduler still reaches Placement.
        coming.build(host)
        leaving.end()
        host.file.write_text(host_file(host.node, units=20))
        until(
            lambda: f"cannot connect to {proxy.url}" in host.trouble,
            lambda: host.trouble or "it is well",
        )
        assert is_dirty(host)
    until(lambda: host.is_well() and not is_dirty(host), lambda: host.log[-4000:], PERIOD + GRACE)
    assert http_placement.other.inventory(host.identity)[UNITS]["total"] == 20
    held = {
        uuid: one["allocations"]
        for uuid, one in http_placement.dump()["consumers"].items()
        if one["allocations"]
    }
    assert held == {**staying.allocations, **coming.allocations}
    assert host.bugs == []


def test_an_agent_that_has_never_seen_placement_makes_claims(
    http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path
) -> None:
    host = ComputeHost(tmp_path / "a", "agent-a", "node-a", http_placement.credentials(proxy.url))
    try:
        with proxy.down():
            host.start()
            until(lambda: host.has_identity)
            ask(host, claim(host))
            assert http_placement.other.tree(host.identity) == []
        until(
            lambda: host.is_well() and not is_dirty(host), lambda: host.log[-4000:], PERIOD + GRACE
        )
        assert http_placement.other.inventory(host.identity)[UNITS]["total"] == 16
    finally:
        host.kill()
