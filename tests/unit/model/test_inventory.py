import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.inventory import (
    DEFAULTS,
    MAX_INT,
    Allocation,
    capacity,
    changed,
    completed,
    inventory_changes,
    problems,
    without_empty,
)
from tests.unit.model.trees import N0, ROOT, STORAGE

FULL = {
    "total": 16,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 16,
    "step_size": 1,
    "allocation_ratio": 4.0,
}
RECORDS = st.fixed_dictionaries(
    {"total": st.integers(1, 64)},
    optional={"reserved": st.integers(0, 64), "allocation_ratio": st.sampled_from([1, 1.0, 4.0])},
)
INVENTORIES = st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "CUSTOM_A"]), RECORDS)


def wrong(name="VCPU", **fields):
    return list(problems(name, {**FULL, **fields}))


# --- comparison (placement.md 2.3) ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "proposed", "is_changed"),
    [
        ({}, {}, False),
        ({"VCPU": FULL}, {}, True),
        ({"VCPU": FULL}, {"VCPU": FULL, "PCPU": {"total": 1}}, True),
        ({"VCPU": FULL}, {"PCPU": FULL}, True),
        ({"VCPU": {"total": 16}}, {"VCPU": {"total": 16, "reserved": 0}}, True),
        ({"VCPU": FULL}, {"VCPU": {"total": 17}}, True),
        ({"VCPU": FULL}, {"VCPU": {"total": 16}}, False),
        ({"VCPU": FULL}, {"VCPU": {}}, False),
        ({"VCPU": FULL}, {"VCPU": {**FULL, "allocation_ratio": 4}}, False),
        ({"VCPU": {"total": 1}}, {"VCPU": {"total": 1.0}}, False),
    ],
)
def test_what_counts_as_changed(current, proposed, is_changed):
    assert changed(current, proposed) is is_changed


@given(INVENTORIES, INVENTORIES)
def test_completed_records_compare_the_same_both_ways(one, other):
    one, other = (
        {name: completed(record) for name, record in each.items()} for each in (one, other)
    )
    assert changed(one, other) is changed(other, one) is (one != other)


# --- completion -----------------------------------------------------------------------------------


def test_what_is_missing_comes_from_the_server_and_then_from_the_defaults():
    assert completed({"total": 17}, {"total": 16, "allocation_ratio": 2.0}) == {
        **DEFAULTS,
        "total": 17,
        "allocation_ratio": 2.0,
    }
    assert completed({"total": 17}) == {**DEFAULTS, "total": 17}


# --- what can be sent -----------------------------------------------------------------------------


def test_a_record_without_a_total_is_not_taken_for_a_total_of_0():
    sparse = {"VCPU": {"reserved": 2}}
    assert without_empty(sparse) == sparse
    assert completed(sparse["VCPU"], FULL) == {**FULL, "reserved": 2}
    assert list(problems("VCPU", completed(sparse["VCPU"]))) == [
        f"VCPU: total is None, not a whole number from 1 to {MAX_INT}"
    ]


@pytest.mark.parametrize(
    ("record", "amount"),
    [
        (FULL, 64),
        ({**FULL, "reserved": 2}, 56),
        ({"total": 3, "allocation_ratio": 1.5}, 4),
        ({"total": 7}, 7),
    ],
)
def test_capacity_is_what_is_not_reserved_times_the_ratio_rounded_down(record, amount):
    assert capacity(record) == amount


# --- problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reserved": 16},
        {"allocation_ratio": 0},
        {"total": MAX_INT, "max_unit": MAX_INT},
        {"allocation_ratio": 1},
    ],
)
def test_a_record_that_placement_takes(fields):
    assert wrong(**fields) == []


@pytest.mark.parametrize("value", [0, -1, 4.0, True, "4", None, MAX_INT + 1])
@pytest.mark.parametrize("field", ["total", "min_unit", "max_unit", "step_size"])
def test_an_amount_is_a_whole_number_from_1(field, value):
    assert wrong(**{field: value}) == [
        f"VCPU: {field} is {value!r}, not a whole number from 1 to {MAX_INT}"
    ]


@pytest.mark.parametrize("value", [-1, 0.5, False, None])
def test_reserved_is_a_whole_number_from_0(value):
    assert wrong(reserved=value) == [
        f"VCPU: reserved is {value!r}, not a whole number from 0 to {MAX_INT}"
    ]


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 1e39, "4.0", True, None])
def test_a_ratio_is_a_number_from_0(value):
    (text,) = wrong(allocation_ratio=value)
    assert text == f"VCPU: allocation_ratio is {value!r}, not a number from 0 to 3.40282e+38"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"reserved": 20}, "VCPU: reserved 20 is above total 16"),
        ({"min_unit": 3, "max_unit": 2}, "VCPU: min_unit 3 is above max_unit 2"),
        ({"step_size": 32}, "VCPU: step_size 32 is above max_unit 16"),
        ({"totl": 1, "a": 2}, "VCPU: unknown field a, totl"),
    ],
)
def test_what_the_server_would_take_and_nobody_could_use(fields, text):
    assert wrong(**fields) == [text]


def test_all_problems_of_a_record_are_named_at_once():
    assert len(wrong(name="vcpu", total=0, step_size="x", allocation_ratio=-1, unit=1)) == 5
    assert len(wrong(reserved=20, min_unit=30, step_size=40)) == 3


@pytest.mark.parametrize("name", ["vcpu", "CUSTOM-A", "", "VCPU\n"])
def test_a_class_has_a_proper_name(name):
    assert wrong(name) == [f"resource class {name!r} is not made of A-Z, 0-9 and _"]


# --- more ---


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


# --- more ---


CONSUMER = "c0000000-0000-4000-8000-000000000001"
HELD = Allocation(
    CONSUMER, {ROOT: {"VCPU": 2, "MEMORY_MB": 512}, STORAGE: {"DISK_GB": 10}}, "project", "user", 4
)


def test_a_driver_sees_the_generations_of_the_providers_and_placement_does_not():
    read = dataclasses.replace(HELD, provider_generations={ROOT: 7})
    assert read.as_driver_dict()["allocations"] == {
        ROOT: {"resources": {"VCPU": 2, "MEMORY_MB": 512}, "generation": 7},
        STORAGE: {"resources": {"DISK_GB": 10}},
    }
    assert read.as_body() == HELD.as_body() == HELD.as_driver_dict()


def test_the_edited_record_keeps_owner_and_generation_of_the_server():
    record = HELD.as_driver_dict()
    record["allocations"][N0] = {
        "resources": {"VCPU": record["allocations"][ROOT]["resources"].pop("VCPU")}
    }
    record |= {"project_id": "somebody", "user_id": "else", "consumer_generation": 99}
    moved = HELD.edited(record)
    assert moved == dataclasses.replace(
        HELD, resources={ROOT: {"MEMORY_MB": 512}, STORAGE: {"DISK_GB": 10}, N0: {"VCPU": 2}}
    )
    record["allocations"][N0]["resources"]["VCPU"] = 7
    assert moved.resources[N0] == {"VCPU": 2}
