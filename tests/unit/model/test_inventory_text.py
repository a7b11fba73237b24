import pytest

from agent.model.inventory import completed, inventory_changes

VCPU = completed({"total": 16, "max_unit": 16})


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        ({}, {}, []),
        ({"VCPU": VCPU}, {"VCPU": VCPU}, []),
        ({}, {"VCPU": VCPU}, ["+VCPU 16"]),
        ({}, {"VCPU": completed({"total": 16})}, ["+VCPU 16"]),
        (
            {},
            {"VCPU": {**VCPU, "reserved": 2, "allocation_ratio": 4.0}},
            ["+VCPU 16 (reserved 2, ratio 4.0)"],
        ),
        ({}, {"VCPU": {**VCPU, "max_unit": 4}}, ["+VCPU 16 (max_unit 4)"]),
        ({"VCPU": VCPU}, {}, ["-VCPU"]),
        (
            {"VCPU": VCPU},
            {"VCPU": {**VCPU, "total": 18, "max_unit": 18}},
            ["VCPU total 16 -> 18, max_unit 16 -> 18"],
        ),
        (
            {"VCPU": {"total": 1}},
            {"VCPU": {"total": 1, "reserved": 0}},
            ["VCPU reserved unset -> 0"],
        ),
        ({"VCPU": VCPU}, {"VCPU": {"total": 16}}, []),
        (
            {"B": VCPU, "C": VCPU},
            {"A": VCPU, "C": {**VCPU, "reserved": 1}},
            ["+A 16", "-B", "C reserved 0 -> 1"],
        ),
    ],
)
def test_what_differs_between_two_inventories(old, new, texts):
    assert list(inventory_changes(old, new)) == texts


def test_the_arrow_is_the_callers():
    assert list(inventory_changes({"VCPU": VCPU}, {"VCPU": {**VCPU, "reserved": 1}}, "→")) == [
        "VCPU reserved 0 → 1"
    ]
