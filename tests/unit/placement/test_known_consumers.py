"""Who is known to hold what, through readings and writes (the mirror's and the flush's part on a
real Placement).
"""

import dataclasses

import pytest

from agent.model.inventory import Allocation, completed
from agent.model.mirror import PlacementView
from agent.model.operation import (
    CreateProvider,
    DeleteAllocations,
    DeleteProvider,
    ProviderRef,
    Reshape,
    SetAllocations,
    SetInventory,
    SetTraits,
)
from agent.placement.consumers import follow, with_allocation
from agent.placement.mirror import Freshness, refresh_view
from tests.unit.placement.nodes import NAME, ROOT

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
