"""An exception that nobody foresaw, in any step of a claim: it is answered, nothing is left half
done, and the next claim is well.
"""

from typing import Any

import pytest

import agent.store.records
import agent.tracker.claims
import agent.tracker.operation_runner
import agent.tracker.reserving
import agent.tracker.tracker
from agent.store.records import Transaction
from agent.store.store import Store
from agent.tracker.node_state import NodeState
from agent.tracker.operation_runner import OperationRunner
from tests.functional.test_exceptions_anywhere import EXCEPTIONS
from tests.support.site import Site, claim_body
from tests.support.tracking import FN, Host, device, rows, uuid_of

pytestmark = pytest.mark.long

GPU = "0000:80:00.0"
BEFORE_THE_COMMIT: dict[str, tuple[Any, str]] = {
    "what is known of the claim": (agent.tracker.operation_runner, "read_stored_state"),
    "the nodes that it concerns": (agent.tracker.operation_runner, "claimed_nodes"),
    "the plan": (agent.tracker.claims, "claim_instance"),
    "what the guest gets": (agent.tracker.claims, "reserve"),
    "the guest's cells": (agent.tracker.reserving, "guest_topology"),
    "the fit": (agent.tracker.reserving, "fit"),
    "the units": (agent.tracker.reserving, "choose_units"),
    "the transaction's beginning": (Transaction, "lock"),
    "the version of the node": (Transaction, "node_versions"),
    "the write": (Transaction, "write"),
    "the first row": (agent.store.records.INSTANCES, "write"),
    "the claim's row": (agent.store.records.CLAIMS, "write"),
    "the devices' rows": (agent.store.records.DEVICES, "write"),
    "the last row": (agent.store.records.UNITS, "write"),
    "the next state": (NodeState, "after"),
}
AFTER_THE_COMMIT: dict[str, tuple[Any, str]] = {
    "what is to be published": (OperationRunner, "_changed"),
    "a look at the store's file": (Store, "_check_file"),
}


class Trap:
    """Raises ``exception`` where a step begins (or at the ``turn``-th time, from 1), once."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        owner: Any,
        name: str,
        exception: type[Exception],
        turn: int = 1,
    ) -> None:
        self.left = turn
        original = getattr(owner, name)

        def raising(*given: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise exception("in a claim")
            return original(*given, **options)

        patch.setattr(owner, name, raising)


@pytest.fixture
def host(site: Site) -> Host:
    """A host of two cells with a device, on which a guest is already."""
    found = site.serve(site.world.numa())
    found.devices = (device(found, GPU, tags={"kind": "gpu"}),)
    found.audit()
    assert site.call("POST", "/v1/claims", claim_body(found, "i0", FN)).status == 201
    return found


def body(host: Host, name: str) -> dict[str, Any]:
    return claim_body(
        host,
        name,
        FN,
        devices=[{"id": uuid_of(f"gpu-{name}"), "count": 1, "spec": {"kind": "gpu"}}],
    )


def everything_of(host: Host) -> Any:
    """What memory has of the node, but for when it was written."""
    return (
        host.usage,
        host.pinned(0),
        host.pinned(1),
        {one.address: one.holder for one in host.tracker.view(host.node).devices.values()},
    )


def claim_fails(site: Site, host: Host, exception: type[Exception]) -> None:
    refused = site.call("POST", "/v1/claims", body(host, "i1"))
    assert (refused.status, refused.code) == (500, "agent.bug"), refused
    assert exception.__name__ in refused.json["detail"]


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("step", BEFORE_THE_COMMIT)
def test_an_exception_in_a_claim_leaves_nothing_of_it_and_the_next_one_is_well(
    step: str, exception: type[Exception], site: Site, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, free = rows(site.world), everything_of(host)
    with monkeypatch.context() as patch:
        trap = Trap(patch, *BEFORE_THE_COMMIT[step], exception)
        claim_fails(site, host, exception)
        assert trap.left == 0
    assert site.call("GET", f"/v1/claims/{uuid_of('claim-i1')}").status == 404
    assert rows(site.world) == before
    assert everything_of(host) == free
    made = site.call("POST", "/v1/claims", body(host, "i1"))
    assert (made.status, made.json["repeated"]) == (201, False)
    assert [one["address"] for one in made.json["devices"]] == [GPU]


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("step", AFTER_THE_COMMIT)
def test_a_claim_that_is_durable_when_an_exception_comes_is_whole_and_repeating_it_says_so(
    step: str, exception: type[Exception], site: Site, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = everything_of(host)
    with monkeypatch.context() as patch:
        owner, name = AFTER_THE_COMMIT[step]
        # The file is looked at before the reading, before the transaction and after it.
        trap = Trap(
            patch,
            host.tracker._runner if name == "_changed" else owner,
            name,
            exception,
            turn=3 if name == "_check_file" else 1,
        )
        claim_fails(site, host, exception)
        assert trap.left == 0
    assert everything_of(host) != free
    again = site.call("POST", "/v1/claims", body(host, "i1"))
    assert (again.status, again.json["repeated"], again.json["state"]) == (200, True, "held")
    assert [one["address"] for one in again.json["devices"]] == [GPU]
    assert site.call("DELETE", f"/v1/claims/{uuid_of('claim-i1')}").status == 200
    assert everything_of(host) == free
