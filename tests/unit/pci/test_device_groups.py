"""What Placement is asked for devices."""

import pytest

from agent.pci.device_request import Alternative, device_groups
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup

ID = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
IDS = {"vendor_id": "8086", "product_id": "154c"}
MANAGED = "COMPUTE_MANAGED_PCI_DEVICE"


def test_every_device_has_a_group_of_its_own():
    groups = device_groups(ID, 3, Alternative(**IDS))
    assert [group.suffix for group in groups] == [f"{ID}-0", f"{ID}-1", f"{ID}-2"]
    assert all(group.resources == {"CUSTOM_PCI_8086_154C": 1} for group in groups)


def test_class_and_traits_of_the_alias():
    (group,) = device_groups(
        ID, 1, Alternative(**IDS, resource_class="VGPU", traits=frozenset({"CUSTOM_A"}))
    )
    assert (group.resources, group.required, group.forbidden) == (
        {"VGPU": 1},
        {MANAGED, "CUSTOM_A"},
        set(),
    )


@pytest.mark.parametrize(
    ("said", "required", "forbidden"),
    [
        (None, {MANAGED}, set()),
        (True, {MANAGED, "HW_PCI_LIVE_MIGRATABLE"}, set()),
        (False, {MANAGED}, {"HW_PCI_LIVE_MIGRATABLE"}),
    ],
)
def test_live_migration_is_required_or_forbidden_as_the_alias_says(said, required, forbidden):
    (group,) = device_groups(ID, 1, Alternative(**IDS, live_migratable=said))
    assert (group.required, group.forbidden) == (required, forbidden)


def test_trait_is_never_both_required_and_forbidden():
    (group,) = device_groups(
        ID,
        1,
        Alternative(**IDS, live_migratable=False, traits=frozenset({"HW_PCI_LIVE_MIGRATABLE"})),
    )
    assert group.required & group.forbidden == set()


def test_alias_that_names_no_class_asks_placement_for_nothing():
    assert device_groups(ID, 2, Alternative(vendor_id="8086")) == ()


def test_groups_make_a_query_that_placement_takes():
    groups = [
        RequestGroup(group.suffix, group.resources, group.required, group.forbidden)
        for group in device_groups(ID, 11, Alternative(**IDS, live_migratable=False))
    ]
    query = CandidateQuery(groups, policy="none")
    assert list(query.problems()) == []
    assert f"resources{ID}-10=CUSTOM_PCI_8086_154C%3A1" in query.encoded()
