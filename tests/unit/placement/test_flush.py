"""The flush on a real Placement: whatever fails, what was done stays and is in the view."""

import dataclasses

import pytest

from agent.audit.flushing import predict_outcomes
from agent.errors import (
    ProviderIdentityConflict,
)
from agent.model.inventory import Allocation, completed
from agent.model.mirror import Journal, PlacementView
from agent.model.operation import (
    CreateProvider,
    DeleteAllocations,
    DeleteProvider,
    ProviderRef,
    RenameProvider,
    Reshape,
    SetAllocations,
    SetInventory,
    SetTraits,
)
from agent.model.report import Outcome
from agent.placement.client import PlacementClient
from agent.placement.consumers import follow, with_allocation
from agent.placement.exchange import Exchange
from agent.placement.flush import Flush
from agent.placement.merge import Target
from agent.placement.mirror import Freshness, refresh_view
from agent.placement.plan import make_plan
from tests.support import faults
from tests.unit.placement.conftest import transport_to
from tests.unit.placement.nodes import KNOWLEDGE, NAME, OTHER_UUID, ROOT, total

NAMES = [f"N{number}" for number in range(6)]
ALONE = dataclasses.replace(KNOWLEDGE, can_reshape=False)


@pytest.fixture(params=[1, 4])
def client(placement, request):
    """One request at a time, and several."""
    return PlacementClient(
        Exchange(transport_to(placement, request.param), "req-00000000-0000-4000-8000-000000000001")
    )


@pytest.fixture
def children(placement):
    """The uuids of six children, by name."""
    placement.other.create_provider(NAME, ROOT)
    return {name: placement.other.create_provider(name, parent=ROOT) for name in NAMES}


@pytest.fixture
def sent(placement, client):
    """Plans what an edit makes of the tree as it is, and sends it; the result, and the
    view before.
    """

    def send(edit, capabilities=ALONE, prepare=lambda: None, more=(), refused=()):
        view = refresh_view(client, PlacementView(), ROOT, 100.0, Freshness())
        tree = view.tree.subtree(ROOT) if view.tree.exists(ROOT) else view.tree.copy()
        edit(tree)
        plan = make_plan(
            view, Target(tree.freeze(), Journal(adopted=True), (), ()), capabilities, ROOT
        )
        plan = dataclasses.replace(plan, operations=(*plan.operations, *more))
        prepare()
        placement.clear()
        return Flush(client, plan, view, capabilities, ROOT, 200.0, refused=refused).run()

    return send


def stocked(tree):
    for name in NAMES:
        tree.update_inventory(name, {"VCPU": total(4)})
        tree.add_traits(name, "HW_NUMA_ROOT")


def statuses(flushed, kind):
    return {
        one.operation.provider.name: one.status
        for one in flushed.outcomes
        if isinstance(one.operation, kind)
    }


def as_in_placement(flushed, client):
    """The view after the flush is what Placement has."""
    true = refresh_view(client, PlacementView(), ROOT, 300.0, Freshness()).tree
    return [
        flushed.view.tree.data(one.uuid) == one
        for one in (true.data(uuid) for uuid in true.get_provider_uuids())
    ]


def test_each_write_is_doubted_by_itself(sent, children, placement):
    placement.faults.add(
        faults.read_timeout(), method="PUT", path=f"{children['N0']}/inventories", times=None
    )
    placement.faults.add(
        faults.refused(), method="PUT", path=f"{children['N5']}/inventories", times=None
    )
    flushed = sent(stocked)
    assert flushed.doubtful == {children["N0"]}


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_write_that_met_an_outage_is_in_doubt(status, sent, children, placement):
    placement.faults.add(
        faults.html(status), method="PUT", path=f"{children['N0']}/inventories", times=None
    )
    flushed = sent(lambda tree: tree.update_inventory("N0", {"VCPU": total(4)}))
    assert flushed.doubtful == {children["N0"]}
    assert not flushed.complete


def test_what_was_not_reached_is_skipped_when_the_agent_stops(sent, client, children, placement):
    stop = client.exchange.transport.cancelled.set
    placement.faults.add(
        faults.after(lambda _: stop()), method="PUT", path=f"{children['N3']}/inventories", times=1
    )
    flushed = sent(stocked)
    assert flushed.outage.kind == "cancelled"
    assert flushed.doubtful == set()
    assert statuses(flushed, SetInventory)["N3"] == "done"
    client.exchange.transport.cancelled.clear()
    assert all(as_in_placement(flushed, client)), "what was done before is in the view"
    assert not flushed.complete


def test_without_a_parent_nothing_below_it_is_tried(sent, placement):
    def build(tree):
        tree.new_root(NAME, ROOT)
        tree.new_child("N0", ROOT)

    placement.faults.add(faults.answer(400), method="POST", times=None)
    flushed = sent(build)
    assert [(one.operation.provider.name, one.status) for one in flushed.outcomes] == [
        (NAME, "failed"),
        ("N0", "skipped"),
    ]
    assert [type(one.operation) for one in flushed.outcomes] == [CreateProvider] * 2
    assert placement.count("POST") == 1


def test_a_provider_in_use_keeps_its_parent_and_lets_the_others_go(sent, children, placement):
    below = placement.other.create_provider("below", parent=children["N0"])
    placement.other.set_inventory(below, {"VGPU": 1})
    placement.other.claim({below: {"VGPU": 1}})
    flushed = sent(lambda tree: [tree.remove(name) for name in NAMES])
    deletes = statuses(flushed, DeleteProvider)
    assert (deletes.pop("below"), deletes.pop("N0"), set(deletes.values())) == (
        "failed",
        "skipped",
        {"done"},
    )
    assert flushed.held == {below: frozenset({"VGPU"})}
    assert set(flushed.view.tree.get_provider_uuids()) == {ROOT, children["N0"], below}


def test_many_inventories_go_in_one_request_and_one_by_one_without_the_role(
    sent, placement, children
):
    def grow(amount):
        return lambda tree: [tree.update_inventory(name, {"VCPU": total(amount)}) for name in NAMES]

    flushed = sent(grow(4), KNOWLEDGE)
    assert flushed.complete
    assert [str(one) for one in placement.requests] == [
        "POST /reshaper -> 204",
        f"GET /resource_providers?in_tree={ROOT} -> 200",
    ]
    placement.faults.add(faults.answer(403), path="^/reshaper", times=None)
    flushed = sent(grow(5), KNOWLEDGE)
    assert flushed.complete
    assert not flushed.capabilities.can_reshape
    assert placement.count("PUT") == len(NAMES)


def outcomes(flushed):
    return [
        (one.operation.op, one.operation.provider.name, one.status)
        for one in flushed.outcomes
        if one.operation.provider
    ]


def paths(placement, method):
    """The last words of the paths that were asked for."""
    return [
        one.path.removeprefix("/resource_providers/")
        for one in placement.requests
        if one.method == method
    ]


def test_a_provider_that_is_to_lose_its_inventory_and_is_in_use_keeps_its_traits(
    sent, placement, client, children
):
    sent(stocked)
    placement.other.claim({children["N2"]: {"VCPU": 1}})

    def edit(tree):
        for name in ("N1", "N2"):
            tree.update_inventory(name, {})
            tree.update_traits(name, [])

    flushed = sent(edit)
    assert statuses(flushed, SetInventory) == {"N1": "done", "N2": "failed"}
    assert statuses(flushed, SetTraits) == {"N1": "done", "N2": "skipped"}
    assert placement.other.traits(children["N2"]) == {"HW_NUMA_ROOT"}


def test_a_provider_that_is_to_have_other_inventory_and_is_in_use_gets_its_traits(
    sent, placement, client, children
):
    sent(stocked)
    placement.other.claim({children["N2"]: {"VCPU": 1}})

    def edit(tree):
        tree.update_inventory("N2", {"PCPU": total(1)})
        tree.update_traits("N2", [])

    flushed = sent(edit)
    assert statuses(flushed, SetInventory) == {"N2": "failed"}
    assert statuses(flushed, SetTraits) == {"N2": "done"}


def reshape_of(children, *emptied):
    """A reshape that takes all inventories of ``emptied``."""
    return Reshape(
        old_inventories={children[name]: {"VCPU": total(4)} for name in emptied},
        inventories={children[name]: {} for name in emptied},
        old_allocations={},
        allocations={},
        reason="",
    )


def test_a_reshape_that_waits_for_something_keeps_what_it_was_to_empty(
    sent, placement, client, children
):
    sent(stocked)
    refused = RenameProvider(
        provider=ProviderRef(children["N0"], "N0"), old_name="before", reason=""
    )
    reshape = reshape_of(children, "N0", "N1")
    flushed = sent(
        lambda tree: [tree.remove(name) for name in ("N1", "N2")],
        KNOWLEDGE,
        more=[reshape],
        refused=[refused],
    )
    assert statuses(flushed, DeleteProvider) == {"N1": "skipped", "N2": "done"}
    assert flushed.outcomes[-1] == Outcome(reshape, "skipped")
    assert paths(placement, "POST") == []


# --- allocations ----------------------------------------------------------------------------------


def holding(placement, children, name):
    """A consumer of a CPU, and the operation that frees it."""
    consumer = placement.other.claim({children[name]: {"VCPU": 1}})
    found = placement.other.allocations(consumer)
    held = Allocation(
        consumer,
        {uuid: one["resources"] for uuid, one in found["allocations"].items()},
        found["project_id"],
        found["user_id"],
        found["consumer_generation"],
    )
    return consumer, DeleteAllocations(old=held, reason="")


@pytest.mark.parametrize("lost", [True, False])
def test_nothing_is_taken_from_consumers_of_a_tree_that_was_not_written(
    sent, placement, client, children, lost
):
    sent(stocked)
    _, free = holding(placement, children, "N0")

    def prepare():
        if lost:
            placement.faults.add(faults.cut(applied=False), method="PUT", times=None)
        else:
            placement.other.set_traits(children["N1"], [])

    flushed = sent(
        lambda tree: tree.add_traits("N1", "HW_CPU_HYPERTHREADING"), more=[free], prepare=prepare
    )
    assert (flushed.outage is not None, flushed.conflict is not None) == (lost, not lost)
    assert flushed.outcomes[-1] == Outcome(free, "skipped")
    assert not any("/allocations/" in one.path for one in placement.requests)


# --- what a dry run shows -------------------------------------------------------------------------


@pytest.fixture
def predicted(placement, client):
    """Plans what an edit makes of the tree as it is, and predicts the outcomes: those, the errors;
    checks that nothing was written.
    """

    def predict(edit, owned=(), capabilities=ALONE):
        view = refresh_view(client, PlacementView(), ROOT, 100.0, Freshness())
        tree = view.tree.subtree(ROOT) if view.tree.exists(ROOT) else view.tree.copy()
        edit(tree)
        plan = make_plan(
            view, Target(tree.freeze(), Journal(adopted=True), (), ()), capabilities, ROOT
        )
        placement.clear()
        outcomes, errors = predict_outcomes(client, plan, capabilities, ROOT, owned)
        assert len(outcomes) == len(plan.operations)
        assert placement.writes() == []
        return {
            (one.operation.op, one.operation.provider.name): (one.status, one.error)
            for one in outcomes
            if one.operation.provider
        }, errors

    return predict


def test_a_dry_run_asks_nothing_about_a_root(predicted, placement):
    placement.other.create_provider(NAME)
    outcomes, errors = predicted(lambda tree: tree.new_root(NAME, ROOT))
    assert (outcomes, errors) == ({("create-provider", NAME): ("planned", None)}, [])
    assert placement.requests == []


@pytest.mark.parametrize("owned", [True, False])
def test_a_dry_run_shows_that_a_child_of_the_agent_comes_back(predicted, placement, owned):
    placement.other.create_provider(NAME, ROOT)
    placement.other.create_provider("moved", OTHER_UUID)
    known = {OTHER_UUID} if owned else ()
    outcomes, errors = predicted(lambda tree: tree.new_child("moved", ROOT, OTHER_UUID), known)
    if owned:
        assert (outcomes, errors) == ({("reparent-provider", "moved"): ("planned", None)}, [])
    else:
        assert [status for status, _ in outcomes.values()] == ["failed"]
        assert [type(error) for error in errors] == [ProviderIdentityConflict]


def test_names_are_made_only_for_what_can_be_sent(sent, placement, client, children):
    def edit(tree):
        tree.new_child("new", ROOT)
        for name in ("new", "N0"):
            tree.update_inventory(name, {f"CUSTOM_OF_{name.upper()}": total(1)})
            tree.add_traits(name, f"CUSTOM_TRAIT_OF_{name.upper()}")

    placement.faults.add(faults.answer(400), method="POST", path="^/resource_providers", times=None)
    flushed = sent(edit)
    assert {
        one.operation.name: one.status for one in flushed.outcomes if not one.operation.provider
    } == {
        "CUSTOM_OF_N0": "done",
        "CUSTOM_OF_NEW": "skipped",
        "CUSTOM_TRAIT_OF_N0": "done",
        "CUSTOM_TRAIT_OF_NEW": "skipped",
    }
    assert (flushed.capabilities.classes, flushed.capabilities.traits) == (
        {"CUSTOM_OF_N0"},
        {"CUSTOM_TRAIT_OF_N0"},
    )
    assert placement.other.traits(children["N0"]) == {"CUSTOM_TRAIT_OF_N0"}
    assert statuses(flushed, SetInventory) == {"new": "skipped", "N0": "done"}


# --- who is known to hold what, through readings and writes (the mirror's and the flush's part on a real Placement) ---


N0, N1 = "00000000-7d1e-4a8b-9c46-000000000010", "ffff0000-7d1e-4a8b-9c46-000000000011"
A, B = "aaaaaaaa-9b1d-4a9c-8a0e-0d6b6c1f7a11", "bbbbbbbb-9b1d-4a9c-8a0e-0d6b6c1f7a11"
HELD = {ROOT: {A: {"VCPU": 1}, B: {"VCPU": 2}}, N0: {A: {"PCPU": 1}}}
SOME = {"VCPU": completed({"total": 8})}


def ref(uuid):
    return ProviderRef(uuid, f"provider {uuid}")


def after(operation, held=HELD):
    known = dict(held)
    follow(known, operation)
    return known


def allocation(consumer, **resources):
    return Allocation(consumer, resources, "p", "u", 1)


def test_a_consumer_that_was_read_again_is_known_as_it_is_now():
    assert with_allocation(HELD, A, {ROOT: {"VCPU": 3}, "elsewhere": {"VCPU": 1}}) == {
        ROOT: {A: {"VCPU": 3}, B: {"VCPU": 2}},
        N0: {},
    }
    assert with_allocation(HELD, A, {}) == {ROOT: {B: {"VCPU": 2}}, N0: {}}
    # Of a provider that was not asked who holds something of it, it is not known who else does.
    assert with_allocation({N0: {}}, B, {ROOT: {"VCPU": 1}, N0: {"PCPU": 1}}) == {
        N0: {B: {"PCPU": 1}}
    }


def test_a_new_provider_and_one_without_inventory_have_no_consumers():
    assert after(CreateProvider(provider=ref(N1), parent=ROOT, reason="")) == {**HELD, N1: {}}
    assert after(SetInventory(provider=ref(N1), old={}, new=SOME, reason="")) == {**HELD, N1: {}}


def test_other_contents_change_no_consumer():
    assert after(SetInventory(provider=ref(ROOT), old=SOME, new={}, reason="")) == HELD
    assert after(SetInventory(provider=ref(N1), old=SOME, new={}, reason="")) == HELD
    assert (
        after(SetTraits(provider=ref(ROOT), old=frozenset(), new=frozenset({"T"}), reason=""))
        == HELD
    )


def test_of_what_is_gone_nothing_is_known():
    assert after(DeleteProvider(provider=ref(N0), inventory={}, reason="")) == {ROOT: HELD[ROOT]}


def test_after_a_reshape_who_moved_is_known_where_he_is_and_the_others_are_where_they_were():
    moved = {A: allocation(A, **{N1: {"PCPU": 1}, ROOT: {"VCPU": 1}, "unasked": {"VCPU": 1}})}
    reshape = Reshape(
        reason="",
        old_inventories={},
        inventories={N0: SOME, N1: SOME},
        old_allocations={},
        allocations=moved,
    )
    assert after(reshape) == {ROOT: HELD[ROOT], N0: {}, N1: {A: {"PCPU": 1}}}


def test_what_was_taken_from_a_consumer_is_not_held():
    old = allocation(A, **{ROOT: {"VCPU": 1}, N0: {"PCPU": 1}, "elsewhere": {"VCPU": 1}})
    assert after(DeleteAllocations(old=old, reason="")) == {ROOT: {B: {"VCPU": 2}}, N0: {}}
    assert after(
        SetAllocations(old=old, new={"elsewhere": {"VCPU": 1}, N0: {"PCPU": 1}}, reason="")
    ) == {ROOT: {B: {"VCPU": 2}}, N0: HELD[N0]}


@pytest.fixture
def view(placement, client):
    placement.other.create_provider(NAME, ROOT)
    placement.other.create_provider("N0", N0, ROOT)
    return dataclasses.replace(
        refresh_view(client, PlacementView(), ROOT, 1.0, Freshness()),
        consumers=HELD,
        unknown_since={A: 0.5},
    )


def test_a_provider_that_moved_has_to_be_asked_again(placement, client, view):
    placement.other.set_inventory(N0, {"PCPU": 4})
    seen = refresh_view(client, view, ROOT, 2.0, Freshness())
    assert seen.consumers == {ROOT: HELD[ROOT]}
    assert seen.unknown_since == {A: 0.5}
    assert refresh_view(client, seen, ROOT, 3.0, Freshness()) is seen


def test_a_provider_that_is_suspect_or_overdue_has_to_be_asked_again(client, view):
    assert refresh_view(client, view, ROOT, 2.0, Freshness(), [N0]).consumers == {ROOT: HELD[ROOT]}
    assert refresh_view(client, view, ROOT, 1e9, Freshness(reread=10.0)).consumers != HELD


def test_a_complete_reading_forgets_who_holds_what_but_not_since_when_nobody_knows_whom(
    client, view
):
    seen = refresh_view(client, view, ROOT, 2.0, Freshness(everything=True))
    assert (seen.consumers, seen.unknown_since) == ({}, {A: 0.5})


def test_a_provider_that_somebody_deleted_is_forgotten(placement, client, view):
    placement.other.delete_provider(N0)
    assert N0 not in refresh_view(client, view, ROOT, 2.0, Freshness()).consumers
