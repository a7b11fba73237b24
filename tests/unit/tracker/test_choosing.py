"""Which units a guest gets."""

from agent.tracker.reserving import choose_units
from tests.unit.store.record_samples import unit
from tests.unit.tracker.samples import ELSEWHERE, HERE


def test_units_are_taken_in_the_order_of_their_names() -> None:
    units = [unit(HERE, name) for name in ("ns_2", "ns_0", "ns_1")]
    chosen, reasons = choose_units(units, {HERE.uuid: {"CUSTOM_PMEM": 2}})
    assert ([unit.identifier for unit in chosen], reasons) == (["ns_0", "ns_1"], [])


def test_units_that_are_held_or_gone_are_not_taken() -> None:
    units = [
        unit(HERE, "ns_0", holder="claim"),
        unit(HERE, "ns_1", present=False),
        unit(HERE, "ns_2"),
    ]
    chosen, reasons = choose_units(units, {HERE.uuid: {"CUSTOM_PMEM": 2}})
    assert (chosen, reasons) == ([], ["2 units of CUSTOM_PMEM wanted, 1 free"])


def test_what_is_not_assigned_here_is_skipped() -> None:
    wanted = {HERE.uuid: {"VCPU": 4, "MEMORY_MB": 4096}, ELSEWHERE.uuid: {"CUSTOM_PMEM": 3}}
    assert choose_units([unit(HERE, "ns_0")], wanted) == ([], [])


def test_every_class_that_is_short_is_named() -> None:
    units = [
        unit(HERE, "a", resource_class="CUSTOM_A", holder="claim"),
        unit(HERE, "b", resource_class="CUSTOM_B", holder="claim"),
    ]
    _, reasons = choose_units(units, {HERE.uuid: {"CUSTOM_B": 1, "CUSTOM_A": 1}})
    assert reasons == [
        "1 unit of CUSTOM_A wanted, none free",
        "1 unit of CUSTOM_B wanted, none free",
    ]
