"""Assigned units, which Placement only counts: resource tracking 8.4."""

import pytest

from agent.model.devices import AssignableUnit
from agent.model.names import child_uuid
from tests.support.tracking import F1, FM, PMEM, Host, World, guest, pmem_of, refused


@pytest.fixture
def hm(world: World) -> Host:
    """A plain host with two persistent-memory namespaces."""
    return world.pmem()


def held(host: Host) -> dict[str, str]:
    """Of each unit that is held: the guest that has it."""
    state = host.tracker.view(host.node)
    names = {guest(name): name for name in ("m1", "m2", "m3")}
    return {
        unit.identifier: names[state.claims[unit.holder].instance]
        for unit in state.units.values()
        if unit.holder is not None
    }


def take(host: Host, name: str, count: int = 1) -> None:
    """Claim room for a guest with so many namespaces."""
    host.claim(name, FM, allocations=pmem_of(host, count))


def test_units_are_taken_in_order_and_none_twice(world: World, hm: Host) -> None:
    take(hm, "m1")
    take(hm, "m2")
    assert held(hm) == {"ns_0": "m1", "ns_1": "m2"}
    assert hm.usage == "4608/3/22528"
    with refused(world, "resources.unavailable") as caught:
        take(hm, "m3")
    assert caught.value.data["reasons"] == [f"1 unit of {PMEM} wanted, none free"]
    assert hm.instance("m3") is None
    assert hm.usage == "4608/3/22528"


def test_a_guest_that_wants_two_gets_both_or_none(world: World, hm: Host) -> None:
    take(hm, "m1")
    with refused(world, "resources.unavailable") as caught:
        take(hm, "m2", 2)
    assert caught.value.data["reasons"] == [f"2 units of {PMEM} wanted, 1 free"]
    hm.abort("m1")
    take(hm, "m2", 2)
    assert held(hm) == {"ns_0": "m2", "ns_1": "m2"}


def test_classes_without_units_are_only_counted(hm: Host) -> None:
    hm.claim("m1", F1, allocations={hm.node: {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}})
    assert held(hm) == {}


def test_a_unit_is_held_from_its_claim_on(hm: Host) -> None:
    take(hm, "m1")
    hm.audit()
    assert held(hm) == {"ns_0": "m1"}
    hm.restart()
    hm.audit(start=True)
    assert held(hm) == {"ns_0": "m1"}
    take(hm, "m2")
    assert held(hm) == {"ns_0": "m1", "ns_1": "m2"}


@pytest.mark.parametrize(
    "left",
    [
        (AssignableUnit(PMEM, "ns_1"),),
        (AssignableUnit("CUSTOM_OTHER", "ns_0"),),
        (AssignableUnit(PMEM, "ns_0", "_PMEM"),),
        (),
    ],
    ids=["one", "class", "provider", "all"],
)
def test_a_held_unit_that_is_gone_is_drift_and_stays_held(
    hm: Host, left: tuple[AssignableUnit, ...]
) -> None:
    take(hm, "m1")
    hm.restart()
    (drift,) = hm.audit(start=True, units=left).drift
    assert (drift.kind, drift.consumer) == ("held-device", guest("m1"))
    assert "ns_0" in drift.detail
    assert PMEM in drift.detail
    assert held(hm) == {"ns_0": "m1"}
    # With the unit configured again nothing is wrong.
    units = (AssignableUnit(PMEM, "ns_0"), AssignableUnit(PMEM, "ns_1"))
    assert hm.audit(units=units).drift == ()
    assert held(hm) == {"ns_0": "m1"}


def test_a_held_unit_that_is_gone_while_the_agent_runs_is_never_offered_again(
    world: World, hm: Host
) -> None:
    take(hm, "m1")
    hm.audit(units=(AssignableUnit(PMEM, "ns_1"),))
    assert held(hm) == {"ns_0": "m1"}
    hm.abort("m1")
    assert [unit.identifier for unit in hm.tracker.view(hm.node).units.values()] == ["ns_1"]
    take(hm, "m2")
    with refused(world, "resources.unavailable"):
        take(hm, "m3")


def test_units_that_could_not_be_read_are_not_gone(hm: Host) -> None:
    take(hm, "m1")
    hm.restart()
    hm.audit(start=True, units=None, incomplete={"units": "the file is locked"})
    assert held(hm) == {"ns_0": "m1"}


def test_units_of_a_host_that_never_showed_any_are_refused(world: World) -> None:
    hm = world.plain("HM")
    with refused(world, "resources.unavailable") as caught:
        take(hm, "m1")
    assert caught.value.data["reasons"] == [f"1 unit of {PMEM} wanted, none free"]
    hm.audit(units=(AssignableUnit(PMEM, "ns_0"),))
    take(hm, "m1")
    assert held(hm) == {"ns_0": "m1"}


def test_units_of_another_host_are_skipped(world: World, hm: Host) -> None:
    source = world.pmem("HS")
    take(source, "m1")
    source.update("m1", vm_state="active", task_state="rebuilding")
    hm.move("m1", "evacuation", allocations={**pmem_of(source), **pmem_of(hm)})
    assert held(hm) == {"ns_0": "m1"}
    assert held(source) == {"ns_0": "m1"}
    assert hm.usage == source.usage == "2560/2/12288"


def test_units_of_a_child_are_those_of_its_provider(world: World) -> None:
    hm = world.plain("HM")
    hm.audit(units=(AssignableUnit(PMEM, "ns_0", "_PMEM"),))
    child = child_uuid(hm.node, "_PMEM")
    hm.claim("m1", FM, allocations={hm.node: {"VCPU": 1}, child: {PMEM: 1}})
    assert held(hm) == {"ns_0": "m1"}
    with refused(world, "resources.unavailable"):
        hm.claim("m2", FM, allocations={child: {PMEM: 1}})
