"""The mirror on a real Placement: one request a pass, reading in full only what moved."""

import dataclasses

import pytest

from agent.errors import GenerationConflict
from agent.model.mirror import Ownership, PlacementView
from agent.placement.mirror import Freshness, refresh_view
from tests.support import faults
from tests.unit.placement.nodes import NAME, ROOT, STORAGE, THEIR_AGGREGATE, total

N0 = "00000000-7d1e-4a8b-9c46-000000000010"
N1 = "ffff0000-7d1e-4a8b-9c46-000000000011"
N2 = "5f9c2a34-7d1e-4a8b-9c46-000000000012"
STRUCTURE = f"GET /resource_providers?in_tree={ROOT} -> 200"
NEVER = Freshness(sharing=0)


@pytest.fixture
def other(placement):
    other = placement.other
    other.create_provider(NAME, ROOT)
    other.create_provider("N0", N0, ROOT)
    other.create_provider("N1", N1, ROOT)
    other.set_inventory(ROOT, {"VCPU": 8})
    other.set_traits(N0, ["HW_NUMA_ROOT"])
    return other


@pytest.fixture
def look(placement, client, other):
    """Refresh a view; says what was asked."""

    def refresh(view=None, now=100.0, freshness=NEVER, **more):
        placement.clear()
        return refresh_view(client, view or PlacementView(), ROOT, now, freshness, **more), [
            str(one) for one in placement.requests
        ]

    return refresh


def deep(*providers):
    return [
        f"GET /resource_providers/{one}/{what} -> 200"
        for one in providers
        for what in ("inventories", "aggregates", "traits")
    ]


def test_the_view_is_the_same_object_if_nothing_moved(look):
    view, _ = look()
    assert look(view, now=9999.0) == (view, [STRUCTURE])
    assert look(view)[0] is view


def test_rows_that_are_there_already_need_no_request(look, client):
    rows = client.tree(ROOT)
    view, asked = look(rows=rows)
    assert asked == deep(ROOT, N0, N1)
    assert look(view, rows=rows) == (view, [])


def test_a_provider_in_the_place_of_another_is_read(look, other):
    view, _ = look()
    other.delete_provider(N1)
    other.create_provider("N1", N2, ROOT)
    seen, asked = look(view)
    assert asked == [STRUCTURE, *deep(N2)]
    assert seen.read_at.keys() == {ROOT, N0, N2}


# --- going back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [{}, {N1: Ownership()}])
def test_a_provider_that_somebody_deleted_is_read_as_structure_alone(look, other, caplog, own):
    view, _ = look()
    other.delete_provider(N1)
    other.claim({ROOT: {"VCPU": 1}})
    seen, asked = look(view, own=own)
    assert asked == [STRUCTURE, *deep(ROOT)]
    assert seen.tree.get_provider_uuids() == [ROOT, N0]
    assert seen.read_at.keys() == {ROOT, N0}
    assert "went back" not in caplog.text
    assert ("somebody deleted providers of the agent's (N1)" in caplog.text) == bool(own)


def test_one_of_ours_that_the_agent_itself_deleted_is_not_told(look, other, caplog):
    view, _ = look()
    other.delete_provider(N1)
    deleted = dataclasses.replace(
        view, read_at={one: at for one, at in view.read_at.items() if one != N1}
    )
    assert look(deleted, own={N1: Ownership()})[1] == [STRUCTURE]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("known", "own"),
    [
        (
            {"traits": frozenset({"HW_CPU_X86_AVX2"})},
            Ownership(traits=frozenset({"HW_CPU_X86_AVX2"})),
        ),
        (
            {"aggregates": frozenset({THEIR_AGGREGATE})},
            Ownership(aggregates=frozenset({THEIR_AGGREGATE})),
        ),
        ({"inventory": {"VCPU": total(9)}}, Ownership(classes=frozenset({"VCPU"}))),
    ],
)
def test_ours_that_are_gone_beside_older_contents_drop_the_whole_view_whatever_the_generations_say(
    look, other, caplog, known, own
):
    view, _ = look()
    before = view.tree.copy()
    before.replace(dataclasses.replace(before.provider(ROOT), **known))
    view = dataclasses.replace(view, tree=before.freeze(), consumers={ROOT: {}, N0: {}})
    other.delete_provider(N1)
    other.claim({ROOT: {"VCPU": 1}})
    seen, asked = look(view, own={N1: Ownership(), ROOT: own})
    assert asked == [STRUCTURE, *deep(ROOT), *deep(N0)]
    assert (
        "placement state went back or was changed outside (N1, node-a); everything is read again"
        in caplog.text
    )
    assert seen.consumers == {}
    assert seen.tree.provider(ROOT).inventory["VCPU"]["total"] == 8
    # The same is no older database while nothing of ours is gone, or when what is gone is somebody
    # else's.
    caplog.clear()
    assert look(view, own={ROOT: own})[1] == [STRUCTURE, *deep(ROOT)]
    assert caplog.text == ""


# --- age ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "read"), [(499.0, []), (501.0, [N0]), (1001.0, [ROOT]), (-5000.0, [])]
)
def test_what_was_read_long_ago_is_read_again_each_at_its_own_time_and_few_at_once(look, age, read):
    view, _ = look()
    if read == [ROOT]:
        view = dataclasses.replace(view, read_at={**view.read_at, N0: 100.0 + age})
    assert look(view, now=100.0 + age, freshness=Freshness(sharing=0, reread=1000))[1] == [
        STRUCTURE,
        *deep(*read),
    ]


@pytest.mark.parametrize(("providers", "read"), [(20, 1), (21, 2)])
def test_a_twentieth_of_a_tree_is_read_at_once_by_its_age(look, other, providers, read):
    for number in range(2, providers - 1):
        other.create_provider(f"N{number}", parent=ROOT)
    rereading = Freshness(sharing=0, reread=1000)
    view, _ = look(freshness=rereading)
    _, asked = look(view, now=5000.0, freshness=rereading)
    assert len(asked) == 1 + 3 * read


# --- consistency ----------------------------------------------------------------------------------


def test_a_provider_that_goes_away_while_it_is_read_is_a_conflict(look, placement, other):
    placement.faults.add(
        faults.before(lambda _: other.delete_provider(N1)),
        method="GET",
        path=f"{N1}/inventories",
        times=1,
    )
    with pytest.raises(GenerationConflict, match="went away while it was read"):
        look()


# --- sharing --------------------------------------------------------------------------------------


@pytest.fixture
def storage(other):
    other.create_provider("storage", STORAGE)
    other.set_inventory(STORAGE, {"DISK_GB": total(100)})
    other.set_traits(STORAGE, ["MISC_SHARES_VIA_AGGREGATE"])
    other.set_aggregates(STORAGE, [THEIR_AGGREGATE])
    other.set_aggregates(N0, [THEIR_AGGREGATE])
    return other


def test_aggregates_that_nothing_shares_are_forgotten_with_the_last_of_them(look, other):
    other.set_aggregates(N0, [THEIR_AGGREGATE])
    view, _ = look()
    assert (view.sharing_read_at, view.sharing_aggregates) == (100.0, {THEIR_AGGREGATE})
    other.set_aggregates(N0, [])
    alone, _ = look(view)
    assert (alone.sharing_read_at, alone.sharing_aggregates) == (None, frozenset())


def test_a_root_from_outside_that_is_called_by_the_uuid_of_our_own_is_left_out(look, storage):
    storage.rename(STORAGE, N0)
    view, _ = look()
    assert [one.name for one in view.tree.providers()] == [NAME, "N0", "N1"]
