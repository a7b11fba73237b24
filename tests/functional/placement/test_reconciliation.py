"""Reconciliation of allocations on a real Placement, rule by rule."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import ReshapeNeeded, StoreError
from agent.model.facts import Domain, HostFacts
from agent.model.finding import Drift
from agent.model.instance import Instance, VmState
from agent.model.names import ConsumerUuid, ProviderUuid, child_uuid
from agent.model.operation import DeleteAllocations, SetAllocations
from agent.model.provider_tree import ProviderTree
from agent.model.report import NodeReport
from agent.placement import clock
from agent.tracker.stored_state import InstanceClaim, InstanceUpdate
from agent.tree.policy import Policy
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import (
    NAME,
    ROOT,
    AgentUnderTest,
    ScriptedDriver,
    new_uuid,
    operations,
    shaped,
    total,
)
from tests.support.consumer_book import FLAVOR, Book
from tests.support.placement import PlacementServer

HAS = {"VCPU": total(16), "MEMORY_MB": total(65536), "DISK_GB": total(1000)}
CELL = child_uuid(ROOT, "N0")
F1 = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
SHAPE = shaped(HAS, {"N0": (NAME, {"PCPU": total(8)})})
HOUR = 3600.0
EVACUATION = new_uuid()


@pytest.fixture
def node(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """``node-a`` on host-1 with a cell below it, in sync."""
    agent = host(SHAPE)
    assert agent.cycle(start=True).state == "changed"
    placement.clear()
    return agent


@pytest.fixture
def book(node: AgentUnderTest) -> Book:
    """The records of host-1."""
    return Book(node.folder, ROOT)


@pytest.fixture
def hb(placement: PlacementServer) -> str:
    """Another host's provider."""
    provider = placement.other.create_provider("node-hb")
    placement.other.set_inventory(provider, {"VCPU": 16, "MEMORY_MB": 65536, "DISK_GB": 1000})
    return provider


Claims = Callable[..., str]


def built(node: AgentUnderTest, guest: str, claim: str, vm_state: VmState = "building") -> None:
    """The agent is asked for the room of a guest, and told how its build goes on."""
    described = Instance(uuid=ConsumerUuid(guest), project_id="p", user_id="u", flavor=FLAVOR)
    node.tracking.tracker.claim(
        InstanceClaim(id=claim, node=ProviderUuid(ROOT), instance=described)
    )
    node.tracking.tracker.update(ConsumerUuid(guest), InstanceUpdate(vm_state=vm_state))


@pytest.fixture
def claims(placement: PlacementServer) -> Claims:
    """Claims F1 for a consumer: on the node, or on the providers given."""

    def claim(*providers: str, consumer: str | None = None) -> str:
        return placement.other.claim(dict.fromkeys(providers or (ROOT,), F1), consumer)

    return claim


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock to so many hours from now."""
    now = clock.now()
    return lambda hours: monkeypatch.setattr(clock, "now", lambda: now + hours * HOUR)


def kept(placement: PlacementServer, report: NodeReport, consumer: str) -> list[Drift]:
    """What is said of the allocations of a consumer that is as it was."""
    assert placement.other.allocations(consumer)["allocations"]
    assert (report.state, report.outcomes, placement.writes()) == ("in-sync", (), [])
    return [
        one
        for one in report.drift
        if one.consumer == consumer and one.kind == "orphaned-allocation"
    ]


def warned(told: list[Drift], *words: str) -> bool:
    (one,) = told
    return (one.kind, one.severity) == ("orphaned-allocation", "warning") and all(
        word in one.detail for word in words
    )


def gone(placement: PlacementServer, consumer: str) -> bool:
    return not placement.other.allocations(consumer)["allocations"]


# --- what stays -----------------------------------------------------------------------------------


def test_row_a1_a_tracked_instance_is_kept(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.tracked(one := claims())
    assert kept(placement, node.cycle(), one) == []


@pytest.mark.parametrize("status", ["accepted", "pre-migrating", "finished", "confirming", "error"])
def test_row_a2_s_96_the_migration_of_a_move_that_goes_on_or_failed_is_kept(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, status: str
) -> None:
    book.migration(m4 := claims(), new_uuid(), status=status)
    assert kept(placement, node.cycle(), m4) == []


def test_row_a3_a_consumer_that_no_record_knows_is_kept_and_told(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    at: Callable[[float], None],
) -> None:
    book.tracked(claims())
    stranger = claims()
    for hours in (0, 25, 1000):
        at(hours)
        (told,) = kept(placement, node.cycle(), stranger)
        assert (told.kind, told.severity) == ("orphaned-allocation", "info")
        assert "VCPU 1" in told.detail


@pytest.mark.parametrize(
    ("there", "words"),
    [({"host": None, "node": None}, None), ({"host": "host-b", "node": new_uuid()}, "host-b(")],
)
def test_row_a5_s_95_a_deleted_hidden_instance_is_kept(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    there: dict[str, Any],
    words: str | None,
) -> None:
    book.instance(i9 := claims(), deleted=True, hidden=True, **there)
    told = kept(placement, node.cycle(), i9)
    assert warned(told, words) if words else told == []


def test_row_a6_s_97_an_instance_without_a_host_is_kept(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(one := claims(), host=None, node=None, task_state="scheduling")
    assert kept(placement, node.cycle(), one) == []


def test_what_an_aborted_build_left_is_told_with_the_command_that_removes_it(
    node: AgentUnderTest, placement: PlacementServer, claims: Claims, at: Callable[[float], None]
) -> None:
    built(node, one := claims(), new_uuid())
    assert node.cycle().drift == ()
    placement.clear()
    node.tracking.tracker.abort(
        node.tracking.tracker.view(ProviderUuid(ROOT)).claims_of(ConsumerUuid(one))[0].id
    )
    # It may be about to be built again.
    (told,) = kept(placement, node.cycle(), one)
    assert (told.severity, f"agent allocation remove-tree {one} {ROOT}" in told.remedy) == (
        "info",
        True,
    )
    at(1)
    assert warned(kept(placement, node.cycle(), one), "(building)", "VCPU 1", "has no claim")


def test_row_a7_s_97_an_untracked_instance_that_is_being_made_is_kept_quietly(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(one := claims(), vm_state="building", task_state="spawning")
    assert kept(placement, node.cycle(), one) == []


def test_row_a8_s_97_an_untracked_instance_that_does_nothing_is_kept_with_one_warning(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(one := claims(ROOT), vm_state="deleted")
    assert warned(kept(placement, node.cycle(), one), "deleted", "VCPU 1")


def test_row_a9_s_97_an_instance_of_another_host_is_kept_with_a_warning(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    book.instance(one := claims(ROOT, hb), host="host-b", node=hb)
    assert warned(kept(placement, node.cycle(), one), f"host-b({hb})")


def test_row_a10_s_97_an_instance_of_this_hosts_other_node_is_kept_with_a_warning(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(one := claims(), node=(node_b := new_uuid()))
    assert warned(kept(placement, node.cycle(), one), "another node of this host", node_b)


def test_a_consumer_of_many_providers_is_judged_once(
    node: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    one = placement.other.claim({ROOT: {"MEMORY_MB": 2048}, CELL: {"PCPU": 2}})
    book.instance(one)
    assert warned(kept(placement, node.cycle(), one), "MEMORY_MB 2048", "PCPU 2")


def test_what_holds_something_of_a_foreign_provider_alone_is_not_judged(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    theirs = placement.other.create_provider("bandwidth", parent=ROOT)
    placement.other.set_inventory(theirs, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000})
    one = placement.other.claim({theirs: {"NET_BW_EGR_KILOBIT_PER_SEC": 100}})
    book.instance(one, deleted=True)
    assert kept(placement, node.cycle(), one) == []


# --- what goes ------------------------------------------------------------------------------------


def test_row_a4_s_94_the_allocation_of_a_deleted_instance_is_removed(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    tracked, i9 = claims(), claims()
    book.tracked(tracked)
    book.instance(i9, deleted=True)
    report = node.cycle()
    assert report.state == "changed"
    ((operation,), drift) = operations(report), report.drift
    assert isinstance(operation, DeleteAllocations)
    assert (operation.before, operation.after, operation.reason) == (
        {i9: {ROOT: F1}},
        None,
        "the instance is deleted",
    )
    assert drift == ()
    assert gone(placement, i9)
    assert placement.other.allocations(tracked)["allocations"]
    (write,) = placement.writes()
    assert (write.method, write.path) == ("PUT", f"/allocations/{i9}")
    assert (write.body["allocations"], write.body["consumer_generation"]) == ({}, 1)
    assert node.cycle().state == "in-sync"


def test_row_a4_a_hidden_record_of_an_instance_that_is_deleted_only_later_protects_it_until_then(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(one := claims(), deleted=True, hidden=True, host=None, node=None)
    assert kept(placement, node.cycle(), one) == []
    book.instance(one, deleted=True)
    assert node.cycle().state == "changed"
    assert gone(placement, one)


def test_a_conflict_is_counted_the_others_are_handled_and_the_next_pass_tries_again(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    first, busy, last = sorted(claims() for _ in range(3))
    for one in (first, busy, last):
        book.instance(one, deleted=True)
    placement.faults.add(
        faults.before(lambda _: placement.other.claim({ROOT: {"VCPU": 2}}, busy)),
        method="PUT",
        path=f"/allocations/{busy}$",
    )
    report = node.cycle()
    assert (report.state, report.attempts) == ("degraded", 1)
    assert {one.operation.before.popitem()[0]: one.status for one in report.outcomes} == {
        first: "done",
        busy: "failed",
        last: "done",
    }
    assert [one.code for one in report.errors] == ["placement.conflict"]
    assert busy in report.errors[0].message
    assert len(placement.writes()) == 3
    assert gone(placement, first)
    assert gone(placement, last)
    assert placement.other.allocations(busy)["allocations"][ROOT]["resources"] == {"VCPU": 2}
    assert node.cycle().state == "changed"
    assert gone(placement, busy)


@pytest.mark.parametrize(
    "status", ["confirmed", "reverted", "completed", "done", "failed", "cancelled"]
)
def test_row_a11_s_96_the_allocation_of_a_migration_that_is_over_is_removed(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, status: str
) -> None:
    book.migration(m4 := claims(), new_uuid(), status=status)
    report = node.cycle()
    assert report.state == "changed"
    assert [one.reason.endswith(f"is over ({status})") for one in operations(report)] == [True]
    assert gone(placement, m4)


@pytest.mark.parametrize("status", ["reverted", "failed", "cancelled"])
def test_row_a11_a_migration_that_came_to_nothing_keeps_what_is_all_that_its_guest_has(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, status: str
) -> None:
    book.tracked(guest := new_uuid())
    book.migration(m4 := claims(), guest, status=status)
    report = node.cycle()
    assert kept(placement, report, m4) == []
    (told,) = report.drift
    assert (told.kind, told.consumer) == ("missing-allocation", guest)
    assert m4 in told.detail
    # Once the guest has its own again, the left-over goes.
    claims(consumer=guest)
    assert node.cycle().state == "changed"
    assert gone(placement, m4)


def test_row_a11_a_resize_on_the_same_node_that_came_to_nothing_keeps_what_its_guest_gets_back(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.tracked(guest := new_uuid())
    book.migration(m4 := claims(), guest, status="reverted")
    placement.other.claim({ROOT: {name: 2 * amount for name, amount in F1.items()}}, guest)
    report = node.cycle()
    assert kept(placement, report, m4) == []
    assert [(one.kind, one.consumer) for one in report.drift] == [("allocation-mismatch", guest)]
    placement.other.move(m4, guest)
    assert node.cycle().drift == ()


def test_row_a11_the_hidden_twin_of_a_migration_is_kept(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.migration(
        m4 := claims(), new_uuid(), status="confirmed", hidden=True, cross_cell_move=True
    )
    assert kept(placement, node.cycle(), m4) == []


def test_row_a3_s_95_an_unknown_consumer_goes_after_the_grace_in_a_later_audit_if_that_is_enabled(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    at: Callable[[float], None],
) -> None:
    node.policy = Policy(purge_after=24 * HOUR)
    node.stop()
    stranger = claims()
    at(100)
    node.cycle()
    at(101)
    (told,) = kept(placement, node.cycle(), stranger)
    assert told.severity == "info"
    # Also over a restart, which forgets nothing.
    node.stop()
    at(100 + 25)
    report = node.cycle()
    (operation,) = operations(report)
    assert isinstance(operation, DeleteAllocations)
    assert "25 hours" in operation.reason
    assert gone(placement, stranger)


def test_row_a3_one_audit_alone_never_removes_an_unknown_consumer(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    at: Callable[[float], None],
) -> None:
    node.policy = Policy(purge_after=0.0)
    node.stop()
    stranger = claims()
    at(1)
    assert kept(placement, node.cycle(), stranger)
    at(2)
    assert node.cycle().state == "changed"
    assert gone(placement, stranger)


def test_what_another_service_has_here_is_never_purged(
    node: AgentUnderTest,
    placement: PlacementServer,
    claims: Claims,
    hb: str,
    at: Callable[[float], None],
) -> None:
    node.policy = Policy(purge_after=0.0)
    node.stop()
    # On another host too, of which nothing is removed.
    held = {root: {"VCPU": 1} for root in (ROOT, hb)}
    typed = {
        kind: placement.other.claim(held, kind=kind) for kind in ("INSTANCE", "MIGRATION", "VOLUME")
    }
    untyped = claims()
    at(1)
    node.cycle()
    for hours in (2, 3):
        at(hours)
        report = node.cycle()
        (told,) = [one for one in report.drift if one.consumer == typed["VOLUME"]]
        assert "of type VOLUME" in told.detail
        assert f"agent allocation remove-tree {typed['VOLUME']} {ROOT}" in told.remedy
    assert gone(placement, untyped)
    for kind, left in ("INSTANCE", {hb}), ("MIGRATION", {hb}), ("VOLUME", {ROOT, hb}):
        path = f"/allocations/{typed[kind]}"
        found = placement.other.call("GET", path, version="1.38").json()
        assert (found["allocations"].keys(), found["consumer_type"]) == (left, kind)


def test_row_a3_a_consumer_that_a_record_knows_meanwhile_begins_anew(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    at: Callable[[float], None],
) -> None:
    node.policy = Policy(purge_after=24 * HOUR)
    node.stop()
    one = claims()
    at(1)
    node.cycle()
    book.instance(one, host=None, node=None)
    at(20)
    assert warned(kept(placement, node.cycle(), one), "on no host")
    book.forget(one)
    for hours in (26, 49):
        at(hours)
        assert kept(placement, node.cycle(), one)


@pytest.mark.parametrize("status", ["running", "finished", "error"])
def test_what_the_move_of_a_deleted_guest_holds_goes_in_the_audit_that_ends_it(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, status: str
) -> None:
    guest, m4 = claims(), claims()
    book.instance(guest, deleted=True)
    book.migration(m4, guest, status=status, type="resize")
    assert node.cycle().state == "changed"
    assert gone(placement, guest)
    assert gone(placement, m4)
    assert node.cycle().state == "in-sync"


def test_what_an_instance_without_a_host_left_here_goes_once_it_is_told_to_be_deleted(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(one := claims(), host=None, node=None, vm_state="error")
    assert ["on no host" in told.detail for told in kept(placement, node.cycle(), one)] == [True]
    node.tracking.tracker.update(ConsumerUuid(one), InstanceUpdate(deleted=True))
    assert node.cycle().state == "changed"
    assert gone(placement, one)


# --- what the others have of a consumer -----------------------------------------------------------


def held_by(placement: PlacementServer, consumer: str) -> dict[str, Any]:
    return {
        one: held["resources"]
        for one, held in placement.other.allocations(consumer)["allocations"].items()
    }


def test_purging_an_unknown_consumer_takes_nothing_that_it_holds_on_other_hosts(
    node: AgentUnderTest,
    placement: PlacementServer,
    claims: Claims,
    hb: str,
    at: Callable[[float], None],
) -> None:
    node.policy = Policy(purge_after=24 * HOUR)
    node.stop()
    stranger = claims(ROOT, hb)
    at(0)
    node.cycle()
    at(25)
    assert [type(one) for one in operations(node.cycle())] == [SetAllocations]
    assert held_by(placement, stranger) == {hb: F1}


def test_of_a_deleted_instance_that_this_host_only_had_its_allocation_elsewhere_stays(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    book.instance(i9 := claims(ROOT, hb), deleted=True, host="host-b", node=hb)
    book.instance(nobodys := claims(ROOT, hb), deleted=True, host=None, node=None)
    assert node.cycle().state == "changed"
    assert held_by(placement, i9) == held_by(placement, nobodys) == {hb: F1}


def test_a_deleted_instance_of_this_host_holds_nothing_anywhere(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    book.instance(i9 := claims(ROOT, hb), deleted=True)
    assert node.cycle().state == "changed"
    assert gone(placement, i9)


def test_of_a_migration_that_is_over_what_it_holds_on_other_hosts_stays(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    book.migration(m4 := claims(ROOT, hb), new_uuid(), status="confirmed")
    assert node.cycle().state == "changed"
    assert held_by(placement, m4) == {hb: F1}


def test_what_is_left_on_shared_storage_alone_goes_with_what_is_over(
    node: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    store = placement.other.create_provider("store")
    placement.other.set_inventory(store, {"DISK_GB": 1000})
    placement.other.set_traits(store, {"MISC_SHARES_VIA_AGGREGATE"})
    aggregate = new_uuid()
    for uuid in (store, ROOT):
        placement.other.set_aggregates(uuid, {aggregate})
    both = {ROOT: {"VCPU": 1}, store: {"DISK_GB": 20}}
    book.instance(i9 := placement.other.claim(both), deleted=True, host=None, node=None)
    book.migration(m4 := placement.other.claim(both), new_uuid(), status="confirmed")
    assert node.cycle().state == "changed"
    assert gone(placement, i9)
    assert gone(placement, m4)


# --- evacuations ----------------------------------------------------------------------------------


@pytest.fixture
def evacuated(book: Book, claims: Claims, hb: str) -> str:
    """i1, with something on this node, its cell and where it is now, evacuated from
    here to there.
    """
    i1 = claims(ROOT, hb)
    book.instance(i1, host="host-b", node=hb)
    book.migration(
        EVACUATION, i1, type="evacuation", status="done", dest_compute="host-b", dest_node=hb
    )
    return i1


def test_what_an_evacuated_instance_left_here_is_taken_out_of_its_allocation(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    placement.other.claim({ROOT: F1, CELL: {"PCPU": 1}, hb: F1}, evacuated)
    report = node.cycle()
    assert report.state == "changed"
    (operation,) = operations(report)
    assert isinstance(operation, SetAllocations)
    assert operation.before == {evacuated: {ROOT: F1, CELL: {"PCPU": 1}, hb: F1}}
    assert operation.after == {evacuated: {hb: F1}}
    assert f"host-b({hb})" in operation.reason
    assert {
        one: held["resources"]
        for one, held in placement.other.allocations(evacuated)["allocations"].items()
    } == {hb: F1}
    assert node.cycle().state == "in-sync"


def test_what_an_evacuated_instance_has_only_here_is_no_leftover_because_it_may_be_on_its_way_back(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    placement.other.claim({ROOT: F1}, evacuated)
    for _ in range(2):
        assert warned(kept(placement, node.cycle(), evacuated), "host-b(")
    # Nor is it one later: the evacuation has nothing to prove any more.
    placement.other.claim({ROOT: F1, hb: F1}, evacuated)
    assert warned(kept(placement, node.cycle(), evacuated), "host-b(")


def test_a_share_beside_one_in_a_cell_of_the_node_where_the_instance_is_counted_is_a_leftover(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    cell = placement.other.create_provider("node-hb-N0", parent=hb)
    placement.other.set_inventory(cell, {"VCPU": 16})
    placement.other.claim({ROOT: F1, cell: {"VCPU": 1}}, evacuated)
    assert node.cycle().state == "changed"
    assert held_by(placement, evacuated) == {cell: {"VCPU": 1}}


def test_an_evacuation_proves_its_leftover_once_so_that_a_guest_that_is_evacuated_back_keeps_its_share(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    assert node.cycle().state == "changed"
    assert held_by(placement, evacuated) == {hb: F1}
    # The scheduler sends it back, and nobody has claimed it yet.
    placement.other.claim({ROOT: F1, hb: F1}, evacuated)
    placement.clear()
    for again in (node.cycle, node.once):
        assert warned(kept(placement, again(), evacuated), "host-b(")


def test_an_evacuated_instance_that_was_seen_to_hold_nothing_here_keeps_what_it_gets_later(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    placement.other.claim({hb: F1}, evacuated)
    assert node.cycle().state == "in-sync"
    node.stop()
    placement.other.claim({ROOT: F1, hb: F1}, evacuated)
    placement.clear()
    assert warned(kept(placement, node.cycle(), evacuated), "host-b(")


def test_an_evacuation_that_ends_after_a_pass_has_counted_proves_its_leftover_in_the_same_pass(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    i1 = claims(ROOT, hb)
    book.tracked(i1)

    def ends(_: object) -> None:
        book.release(i1)
        book.migration(
            EVACUATION, i1, type="evacuation", status="done", dest_compute="host-b", dest_node=hb
        )
        book.instance(i1, host="host-b", node=hb)

    # What is counted here was read before this, the records of the consumers are after it.
    rule = placement.faults.add(
        faults.before(ends), method="GET", path=f"/resource_providers/{ROOT}/allocations"
    )
    assert node.cycle().state == "changed"
    assert rule.hits == 1
    assert held_by(placement, i1) == {hb: F1}


def test_an_evacuated_instance_that_came_back_and_left_again_leaves_no_leftover_of_the_old_evacuation(
    node: AgentUnderTest, placement: PlacementServer, book: Book, evacuated: str, hb: str
) -> None:
    book.instance(evacuated)
    node.cycle()
    book.instance(evacuated, host="host-b", node=hb)
    assert warned(kept(placement, node.cycle(), evacuated), "host-b(")


def test_a_process_that_dies_while_it_removes_a_leftover_removes_no_share_of_a_guest_that_comes_back(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    def die(_: object) -> None:
        raise KeyboardInterrupt

    placement.faults.add(faults.after(die), method="PUT", path=f"/allocations/{evacuated}$")
    with pytest.raises(KeyboardInterrupt):
        node.cycle()
    node.stop()
    placement.other.claim({ROOT: F1, hb: F1}, evacuated)
    placement.clear()
    assert warned(kept(placement, node.cycle(), evacuated), "host-b(")


def test_a_process_that_dies_before_it_removes_a_leftover_removes_it_the_next_time(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str
) -> None:
    def die(_: object) -> None:
        raise KeyboardInterrupt

    placement.faults.add(faults.before(die), method="PUT", path=f"/allocations/{evacuated}$")
    with pytest.raises(KeyboardInterrupt):
        node.cycle()
    node.stop()
    assert held_by(placement, evacuated).keys() == {ROOT, hb}
    assert node.cycle().state == "changed"
    assert held_by(placement, evacuated) == {hb: F1}


@pytest.mark.parametrize("applied", [False, True])
def test_a_removal_of_a_leftover_whose_outcome_is_unknown_proves_it_once(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str, hb: str, applied: bool
) -> None:
    placement.faults.add(
        faults.cut(applied=applied), method="PUT", path=f"/allocations/{evacuated}$"
    )
    placement.faults.add(
        faults.refused(), method="GET", path=f"/allocations/{evacuated}$", times=None, skip=1
    )
    assert node.cycle().state == "degraded"
    placement.faults.clear()
    if applied:
        placement.other.claim({ROOT: F1, hb: F1}, evacuated)
        placement.clear()
        assert warned(kept(placement, node.cycle(), evacuated), "host-b(")
    else:
        assert node.cycle().state == "changed"
        assert held_by(placement, evacuated) == {hb: F1}


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "stores of their own"])
def test_a_guest_that_was_evacuated_twice_leaves_no_share_at_its_first_host_once_the_second_one_is_clean(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    evacuated: str,
    hb: str,
    shared: bool,
) -> None:
    hc = placement.other.create_provider("node-hc")
    placement.other.set_inventory(hc, {"VCPU": 16, "MEMORY_MB": 65536, "DISK_GB": 1000})
    if shared:
        second = {
            "source_compute": "host-b",
            "source_node": hb,
            "dest_compute": "host-c",
            "dest_node": hc,
        }
        book.migration(new_uuid(), evacuated, type="evacuation", status="done", **second)
        book.instance(evacuated, host="host-c", node=hc)
    # The second host was repaired first, and took its share back.
    placement.other.claim({ROOT: F1, hc: F1}, evacuated)
    assert node.cycle().state == "changed"
    assert held_by(placement, evacuated) == {hc: F1}
    # Once: the scheduler sends it here from there.
    placement.other.claim({ROOT: F1, hc: F1}, evacuated)
    placement.clear()
    assert len(kept(placement, node.cycle(), evacuated)) == 1


def test_while_the_evacuation_goes_on_the_allocation_stays(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    i1 = claims(ROOT, hb)
    book.tracked(i1)
    book.migration(
        new_uuid(),
        i1,
        type="evacuation",
        status="pre-migrating",
        dest_compute="host-b",
        dest_node=hb,
    )
    assert kept(placement, node.cycle(), i1) == []
    # Nor if the agent counts it no more.
    book.release(i1)
    book.instance(i1, task_state="rebuild_spawning")
    assert kept(placement, node.cycle(), i1) == []


def doing(book: Book, i1: str, hb: str) -> None:
    """It is being sent somewhere: the allocation may be the one that was just made for here."""
    book.instance(i1, host="host-b", node=hb, task_state="resize_prep")


def on_its_way(book: Book, i1: str, hb: str) -> None:
    book.migration(new_uuid(), i1, status="accepted", source_compute="host-b", source_node=hb)


def failed_here(book: Book, i1: str, hb: str) -> None:
    book.migration(
        new_uuid(),
        i1,
        status="error",
        source_compute="host-b",
        source_node=hb,
        dest_compute="host-1",
        dest_node=ROOT,
    )


def other_source(book: Book, i1: str, hb: str) -> None:
    book.migration(EVACUATION, i1, source_compute="host-c")


def other_kind(book: Book, i1: str, hb: str) -> None:
    book.migration(EVACUATION, i1, type="live-migration", status="completed")


@pytest.mark.parametrize("doubt", [doing, on_its_way, failed_here, other_source, other_kind])
def test_what_may_be_coming_back_or_was_not_evacuated_from_here_stays(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    evacuated: str,
    hb: str,
    doubt: Callable[[Book, str, str], None],
) -> None:
    doubt(book, evacuated, hb)
    assert warned(kept(placement, node.cycle(), evacuated), "host-b(")


def test_a_copy_that_the_hypervisor_still_shows_keeps_its_allocation(
    node: AgentUnderTest, placement: PlacementServer, evacuated: str
) -> None:
    facts = node.driver.facts_of
    node.driver.facts_of = lambda name: replace(
        facts(name), domains=(Domain(ConsumerUuid(evacuated), "i1", 2048),)
    )
    assert warned(kept(placement, node.cycle(), evacuated), "host-b(")
    node.driver.facts_of = lambda name: replace(
        facts(name), incomplete={"domains": "libvirt did not answer"}
    )
    assert node.cycle().outcomes == ()
    node.driver.facts_of = lambda name: replace(facts(name), domains=())
    assert node.cycle().state == "changed"


def test_a_guest_that_is_here_with_an_allocation_on_two_hosts_is_told_until_one_of_them_is_gone(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    hb: str,
    at: Callable[[float], None],
) -> None:
    guest, other = claims(), claims()
    book.tracked(guest)
    book.tracked(other)
    facts = node.driver.facts_of
    node.driver.facts_of = lambda name: replace(
        facts(name),
        domains=tuple(Domain(ConsumerUuid(uuid), "a", 2048) for uuid in (guest, other)),
    )
    for _ in range(3):
        assert node.cycle().drift == ()
    # As nova claims the destination of an evacuation; a guest is built meanwhile.
    claims(ROOT, hb, consumer=guest)
    claims()

    def told(report: NodeReport) -> list[tuple[str, str | None]]:
        return [(one.kind, one.consumer) for one in report.drift if one.severity == "warning"]

    # Told by a process that runs, and by each that begins.
    for again in (node.cycle, node.once, node.cycle, node.cycle):
        assert told(again()) == [("allocation-mismatch", guest)]
    placement.clear()
    assert told(node.cycle()) == [("allocation-mismatch", guest)]
    assert placement.count() == 1
    claims(ROOT, consumer=guest)
    assert told(node.cycle()) == []
    claims(ROOT, hb, consumer=guest)
    assert told(node.cycle()) == [("allocation-mismatch", guest)]
    # While it moves it may have both.
    book.instance(guest, task_state="migrating")
    assert told(node.cycle()) == []
    book.instance(guest, task_state=None)
    placement.other.release(guest)
    claims(ROOT, consumer=guest)
    at(1)
    assert told(node.cycle()) == []


# --- what is missing or other ---------------------------------------------------------------------


def test_a_tracked_instance_without_allocation_is_told(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.tracked(one := new_uuid())
    (told,) = node.cycle().drift
    assert (told.kind, told.severity, told.consumer) == ("missing-allocation", "warning", one)
    claims(consumer=one)
    assert node.cycle().drift == ()


def test_an_allocation_that_came_after_the_tree_was_read_is_not_missed(
    node: AgentUnderTest, placement: PlacementServer, claims: Claims
) -> None:
    one = new_uuid()

    def comes(_: object) -> None:
        claims(consumer=one)
        built(node, one, new_uuid(), "active")

    node.cycle()
    rule = placement.faults.add(faults.after(comes), method="GET", path="in_tree")
    assert (node.cycle().drift, rule.hits) == ((), 1)
    assert node.cycle().drift == ()


@pytest.mark.long
def test_what_stays_wrong_is_asked_for_again_later_each_time(
    node: AgentUnderTest, placement: PlacementServer, book: Book, at: Callable[[float], None]
) -> None:
    for _ in range(20):
        book.tracked(placement.other.claim({ROOT: {"MEMORY_MB": 1024}}))
        book.tracked(new_uuid())
    asked = []
    for minute in range(60):
        at(minute / 60)
        placement.clear()
        assert len(node.cycle().drift) == 40
        asked.append(
            len([one for one in placement.requests if one.path.startswith("/allocations/")])
        )
    assert asked[0] == 40
    assert max(asked[1:]) <= 8
    # Each within ten minutes, a few of them at a time.
    assert sum(asked[30:]) <= 40 * 3


def test_an_instance_that_is_only_being_made_is_not_missed(
    node: AgentUnderTest, book: Book
) -> None:
    book.tracked(new_uuid(), state="held")
    book.tracked(new_uuid(), purpose="devices")
    assert node.cycle().drift == ()


def test_amounts_other_than_the_claims_are_told(
    node: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    one = placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 2048}, CELL: {"PCPU": 1}})
    book.tracked(one)
    (told,) = node.cycle().drift
    assert (told.kind, told.severity, told.consumer) == ("allocation-mismatch", "warning", one)
    assert (
        told.detail
        == f"instance {one} holds PCPU 1, VCPU 2 instead of VCPU 1; DISK_GB 0 instead of 20"
    )


def test_amounts_that_were_given_back_without_moving_a_generation_are_not_told_to_be_wrong(
    node: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    """After a revert on one host: what the guest would have had is gone, which no
    generation shows.
    """
    one = placement.other.claim({ROOT: F1, CELL: {"PCPU": 2}})
    book.tracked(one)
    assert [told.kind for told in node.cycle().drift] == ["allocation-mismatch"]
    placement.other.claim({ROOT: F1}, one)
    assert node.cycle().drift == ()


def test_an_allocation_that_was_deleted_behind_the_agents_back_is_missed_within_consumers_refresh(
    node: AgentUnderTest, placement: PlacementServer, book: Book, at: Callable[[float], None]
) -> None:
    book.tracked(one := placement.other.claim({ROOT: F1}))
    book.tracked(
        other := placement.other.claim(
            {ROOT: {"MEMORY_MB": 2048, "DISK_GB": 20}, CELL: {"PCPU": 1}}
        )
    )
    assert node.cycle().drift == ()
    for guest in (one, other):
        placement.other.release(guest)
    assert node.cycle().drift == ()
    seen: set[str | None] = set()
    for minutes in range(1, 11):
        at(minutes / 60)
        placement.clear()
        seen = {told.consumer for told in node.cycle().drift if told.kind == "missing-allocation"}
        # Each is asked for itself before it is told, what memory still has of the second guest in
        # its cell among it.
        assert len(placement.requests) <= 4
        if len(seen) == 2:
            break
    assert seen == {one, other}


def test_what_a_stranger_that_left_held_of_a_child_is_not_told_for_ever_because_somebody_came_to_the_root(
    node: AgentUnderTest, placement: PlacementServer, book: Book, at: Callable[[float], None]
) -> None:
    book.tracked(placement.other.claim({ROOT: F1}))
    stranger = placement.other.claim({ROOT: {"VCPU": 1}, CELL: {"PCPU": 1}})
    assert [told.consumer for told in node.cycle().drift] == [stranger]
    placement.other.release(stranger)
    other = placement.other.claim({ROOT: {"VCPU": 1}})
    node.cycle()
    at(0.01)
    node.cycle()
    assert [told.consumer for told in node.cycle().drift] == [other]


def test_dedicated_and_shared_cpus_count_together(
    node: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    one = placement.other.claim({ROOT: {"MEMORY_MB": 2048, "DISK_GB": 20}, CELL: {"PCPU": 1}})
    book.tracked(one)
    assert node.cycle().drift == ()


def test_classes_that_the_tree_does_not_offer_are_not_compared(
    host: Host, placement: PlacementServer
) -> None:
    agent = host(shaped({"CUSTOM_METAL": total(1)}))
    agent.cycle(start=True)
    Book(agent.folder, ROOT).tracked(placement.other.claim({ROOT: {"CUSTOM_METAL": 1}}))
    assert agent.cycle().drift == ()


def test_while_a_move_goes_on_the_migration_has_the_half_of_the_source(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims, hb: str
) -> None:
    held, guest = claims(ROOT), claims(hb)
    book.instance(guest, host="host-b", node=hb, vm_state="resized")
    book.migration(
        held, guest, status="finished", type="resize", dest_compute="host-b", dest_node=hb
    )
    book.claim(guest, half="old", migration=held)
    assert node.cycle().drift == ()
    assert placement.other.allocations(held)["allocations"]


def test_a_resize_on_the_same_host_has_both_halves(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    held, guest = claims(), claims()
    book.instance(guest, task_state="resize_migrating")
    book.migration(held, guest, dest_compute="host-1", dest_node=ROOT)
    book.claim(guest, half="old", migration=held)
    book.claim(guest, half="new", migration=held, state="held", purpose="move")
    assert node.cycle().drift == ()
    book.release(guest, "new")
    assert [one.kind for one in node.cycle().drift] == ["allocation-mismatch"]


class MovingVcpu(ScriptedDriver):
    """Moves VCPU from the root to the cell, once."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Any) -> None:
        if allocations is None and not self.calls:
            raise ReshapeNeeded
        self.calls += 1
        shaped(
            {name: record for name, record in HAS.items() if name != "VCPU"},
            {"N0": (NAME, {"PCPU": total(8), "VCPU": HAS["VCPU"]})},
        )(tree)
        for one in (allocations or {}).values():
            one["allocations"][CELL] = one["allocations"].pop(ROOT)


class Slow(ScriptedDriver):
    """Takes a while to shape the tree."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Any) -> None:
        time.sleep(0.1)
        super().shape(tree, facts, allocations)


def test_the_time_of_a_plan_is_not_that_of_reading_the_tree(host: Host) -> None:
    report = host(driver=Slow(shaped({"VCPU": total(16)}))).once()
    assert (report.state, report.seconds["plan"] >= 0.1) == ("changed", True)


# --- what it reads, and when ----------------------------------------------------------------------


def test_what_a_guest_was_promised_and_what_it_holds_go_in_one_pass(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    evacuated: str,
    hb: str,
) -> None:
    book.tracked(i9 := claims())
    book.instance(i9, deleted=True)
    book.claim(evacuated)
    shown = operations(node.once(dry_run=True))
    assert {one.op: next(iter(one.before)) for one in shown} == {
        "delete-allocations": i9,
        "set-allocations": evacuated,
    }
    assert placement.writes() == []
    report = node.cycle()
    assert (report.state, operations(report)) == ("changed", shown)
    assert (report.usage.claims, report.usage.memory_mb_used) == (0, 0)
    assert gone(placement, i9)
    assert placement.other.allocations(evacuated)["allocations"].keys() == {hb}


def test_what_is_held_on_a_node_without_records_is_told_until_its_command_is_carried_out(
    node: AgentUnderTest,
    placement: PlacementServer,
    claims: Claims,
    at: Callable[[float], None],
) -> None:
    leftover = claims()
    for again in (node.cycle, node.cycle, node.once):
        (told,) = kept(placement, again(), leftover)
        assert f"agent allocation remove-tree {leftover} {ROOT}" in told.remedy
        asked = [one.path for one in placement.requests if one.path.endswith("/allocations")]
        # Once, because nobody moved a generation since.
        assert asked == [f"/resource_providers/{ROOT}/allocations"]
    placement.other.release(leftover)
    at(1)
    assert node.cycle().drift == ()


def test_an_allocation_that_is_older_than_the_store_is_told_within_the_refresh(
    node: AgentUnderTest,
    host: Host,
    placement: PlacementServer,
    claims: Claims,
    at: Callable[[float], None],
) -> None:
    leftover = claims()
    node.stop()
    again = host(SHAPE, folder="another")
    assert [one.drift for one in (again.cycle(), again.cycle())] == [(), ()]
    at(1)
    (told,) = kept(placement, again.cycle(), leftover)
    assert leftover in told.detail


def test_the_pass_that_makes_the_nodes_record_judges_nobody(
    host: Host, placement: PlacementServer, node: AgentUnderTest, claims: Claims
) -> None:
    node.stop()
    again = host(SHAPE, folder="another")
    Book(again.folder, ROOT).instance(i9 := claims(), deleted=True)
    assert kept(placement, again.cycle(), i9) == []
    assert again.cycle().state == "changed"
    assert gone(placement, i9)


def test_what_let_go_without_moving_a_generation_is_not_written(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    i9 = claims()
    book.tracked(i9)
    assert node.cycle().drift == ()
    placement.other.release(i9)
    book.instance(i9, deleted=True)
    placement.clear()
    for asked in (1, 0):
        assert node.cycle().state == "in-sync"
        # A write of nothing would leave an invisible record that refuses the next claim.
        assert placement.writes() == []
        assert len([one for one in placement.requests if one.path == f"/allocations/{i9}"]) == asked
        placement.clear()


def test_a_failure_to_read_the_consumers_is_told_and_the_tree_is_served(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(i9 := claims(), deleted=True)
    node.driver.script = shaped(HAS | {"VGPU": total(1)}, {"N0": (NAME, {"PCPU": total(8)})})
    placement.faults.add(
        faults.answer(500), method="GET", path=f"/resource_providers/{ROOT}/allocations$"
    )
    report = node.cycle()
    assert (
        report.state,
        [one.op for one in operations(report)],
        [one.code for one in report.errors],
    ) == ("degraded", ["set-inventory"], ["placement.refused"])
    assert not gone(placement, i9)
    assert [one.op for one in operations(node.cycle())] == ["delete-allocations"]


def test_records_that_cannot_be_read_are_told_and_the_tree_is_served(
    node: AgentUnderTest,
    placement: PlacementServer,
    book: Book,
    claims: Claims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the store is away", "bring it back")

    book.instance(claims(), deleted=True)
    monkeypatch.setattr(node.tracking.consumer_records, "read", fail)
    node.driver.script = shaped(HAS, {"N0": (NAME, {"PCPU": total(4)})})
    report = node.cycle()
    assert (
        report.state,
        [one.op for one in operations(report)],
        [one.code for one in report.errors],
    ) == ("degraded", ["set-inventory"], ["store.unusable"])


def test_a_consumer_that_was_tried_is_not_tried_again_when_the_tree_needs_another_attempt(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    placement.other.claim({CELL: {"PCPU": 1}}, guest := claims())
    book.tracked(guest)
    book.instance(busy := claims(), deleted=True)
    placement.faults.add(
        faults.before(lambda _: placement.other.claim({ROOT: {"VCPU": 2}}, busy)),
        method="PUT",
        path=f"/allocations/{busy}$",
    )
    # What the cell loses is in use, so that it is planned once more, as something to hold.
    node.driver.script = shaped(HAS, {"N0": (NAME, {})})
    report = node.cycle()
    assert (report.attempts, [one.kind for one in report.drift if one.kind == "held-device"]) == (
        2,
        ["held-device"],
    )
    assert [one.path for one in placement.writes()].count(f"/allocations/{busy}") == 1
    node.cycle()
    assert gone(placement, busy)


def test_beside_a_reshape_nothing_is_removed_until_the_next_pass(
    node: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    book.instance(i9 := placement.other.claim({ROOT: {"VCPU": 1}}), deleted=True)
    node.stop()
    node.driver = MovingVcpu()
    report = node.cycle(start=True)
    assert "reshape" in [one.op for one in operations(report)]
    assert "delete-allocations" not in [one.op for one in operations(report)]
    assert not gone(placement, i9)
    assert [one.op for one in operations(node.cycle())] == ["delete-allocations"]
    assert gone(placement, i9)


def test_a_lost_answer_to_a_removal_is_looked_for(
    node: AgentUnderTest, placement: PlacementServer, book: Book, claims: Claims
) -> None:
    book.instance(i9 := claims(), deleted=True)
    placement.faults.add(faults.cut(applied=True), method="PUT", path=f"/allocations/{i9}$")
    assert node.cycle().state == "changed"
    assert gone(placement, i9)
