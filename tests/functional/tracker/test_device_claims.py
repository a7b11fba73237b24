"""Claims of devices: resource tracking 8.3, with the devices of a host as its driver would show
them.
"""

from dataclasses import replace

import pytest

from agent.model.devices import DeviceRequest
from agent.model.node_records import RecordChanges
from agent.pci.choice import free_devices
from agent.tracker.claims import allocate_devices
from agent.tracker.moves import finish
from agent.tracker.stored_state import DeviceClaim, PlannedChange
from tests.support.broken_store import Moment, breakable, fail
from tests.support.tracking import F1, FG, Host, World, device, guest, refused, rows, uuid_of

GPU = (DeviceRequest("gpu", 1, {"kind": "gpu"}),)
ADDRESSES = {
    "G0": "0000:80:00.0",
    "G1": "0000:81:00.0",
    "G2": "0000:82:00.0",
    "P0": "0000:05:00.0",
    "V1": "0000:05:10.0",
    "V2": "0000:05:10.1",
    "V3": "0000:05:10.2",
    "V4": "0000:05:10.3",
}
NAMES = {address: name for name, address in ADDRESSES.items()}


def gpu(host: Host, name: str, **fields: object) -> None:
    """Plug a GPU in."""
    assert host.devices is not None
    host.devices += (device(host, ADDRESSES[name], tags={"kind": "gpu"}, **fields),)


def unplug(host: Host, *names: str) -> None:
    """Take devices out."""
    assert host.devices is not None
    host.devices = tuple(device for device in host.devices if NAMES[device.address] not in names)


@pytest.fixture
def hp(world: World) -> Host:
    """A plain host with two GPUs and a network card of four virtual functions."""
    host = world.plain("HP")
    card = device(host, ADDRESSES["P0"], "type-PF")
    host.devices = (
        card,
        *(device(host, ADDRESSES[f"V{number}"], "type-VF", card.address) for number in range(1, 5)),
    )
    gpu(host, "G0")
    gpu(host, "G1")
    host.audit()
    return host


@pytest.fixture
def attached(hp: Host) -> Host:
    """The same with the guests i1 and i2, who have no devices."""
    hp.claim("i1", F1)
    hp.claim("i2", F1)
    return hp


def attach(host: Host, name: str, *devices: str, id: str | None = None) -> PlannedChange:
    """Claim certain devices for a guest that is there."""
    wanted = tuple(DeviceRequest(device, 1, {"address": ADDRESSES[device]}) for device in devices)
    return host.tracker.claim_devices(
        DeviceClaim(
            id=claim_id(name, *devices, id=id), node=host.node, instance=guest(name), devices=wanted
        )
    )


def claim_id(name: str, *devices: str, id: str | None = None) -> str:
    """What :func:`attach` calls its claim."""
    return uuid_of(id or f"{name}-{'-'.join(devices)}")


def free(host: Host) -> set[str]:
    """The devices that somebody can have."""
    return {NAMES[device.address] for device in free_devices(host.tracker.view(host.node).devices)}


def held(host: Host) -> dict[str, tuple[str, str]]:
    """Of each device that is held: the guest and the state."""
    state = host.tracker.view(host.node)
    names = {guest(name): name for name in ("g1", "g2", "g3", "i1", "i2")}
    return {
        NAMES[device.address]: (names[state.claims[device.holder].instance], device.state)
        for device in state.devices.values()
        if device.holder is not None
    }


VFS = {"V1", "V2", "V3", "V4"}


def test_a_guest_gets_a_device_with_its_room(hp: Host) -> None:
    hp.claim("g1", FG, devices=GPU)
    assert held(hp) == {"G0": ("g1", "allocated")}
    assert free(hp) & {"G0", "G1"} == {"G1"}
    assert hp.usage == "4608/3/22528"


def test_a_card_is_out_of_reach_while_a_function_of_it_is_held(attached: Host) -> None:
    attach(attached, "i1", "V1")
    assert held(attached) == {"V1": ("i1", "claimed")}
    assert free(attached) & {"P0", *VFS} == {"V2", "V3", "V4"}
    attached.tracker.change(claim_id("i1", "V1"), allocate_devices)
    assert held(attached) == {"V1": ("i1", "allocated")}
    assert free(attached) & {"P0", *VFS} == {"V2", "V3", "V4"}
    attached.tracker.abort(claim_id("i1", "V1"))
    assert free(attached) >= {"P0", *VFS}


def test_the_last_function_frees_the_card(attached: Host) -> None:
    attach(attached, "i1", "V1")
    attach(attached, "i2", "V2")
    attached.tracker.abort(claim_id("i1", "V1"))
    assert "P0" not in free(attached)
    attached.tracker.abort(claim_id("i2", "V2"))
    assert "P0" in free(attached)


def test_a_card_is_refused_together_with_a_function_of_it(world: World, attached: Host) -> None:
    with refused(world, "resources.unavailable"):
        attach(attached, "i1", "P0", "V1")
    with refused(world, "resources.unavailable"):
        attach(attached, "i1", "V1", "P0")


def test_the_functions_are_out_of_reach_while_the_card_is_held(
    world: World, attached: Host
) -> None:
    attach(attached, "i1", "P0")
    assert free(attached) & {"P0", *VFS} == set()
    with refused(world, "resources.unavailable"):
        attach(attached, "i2", "V3")
    attached.tracker.abort(claim_id("i1", "P0"))
    assert free(attached) >= {"P0", *VFS}


def test_two_claims_in_a_row_are_both_kept_and_allocated(attached: Host) -> None:
    attach(attached, "i1", "V1")
    attach(attached, "i1", "V2")
    assert held(attached) == {"V1": ("i1", "claimed"), "V2": ("i1", "claimed")}
    attached.tracker.change(claim_id("i1", "V1"), allocate_devices)
    attached.tracker.change(claim_id("i1", "V2"), allocate_devices)
    assert held(attached) == {"V1": ("i1", "allocated"), "V2": ("i1", "allocated")}
    # What is attached takes no memory, CPU or disk.
    assert attached.usage == "4608/3/43008"


def test_a_repeated_drop_leaves_the_device_with_its_new_holder(
    world: World, attached: Host
) -> None:
    attach(attached, "i1", "V1")
    assert attached.tracker.free_devices(attached.node, guest("i1"), None) == 1
    attach(attached, "i2", "V1")
    before = rows(world)
    assert attached.tracker.free_devices(attached.node, guest("i1"), None) == 0
    assert attached.tracker.abort(claim_id("i1", "V1")).repeated
    assert rows(world) == before
    assert held(attached) == {"V1": ("i2", "claimed")}


@pytest.mark.parametrize("moment", ["write", "second-device", "commit"])
def test_of_two_devices_none_is_held_if_the_second_cannot_be_saved(
    world: World, attached: Host, moment: Moment
) -> None:
    breakable(attached).break_at(moment, fail)
    with refused(world, "store.unusable"):
        attach(attached, "i1", "V1", "V2")
    assert held(attached) == {}
    assert attached.usage == "4608/3/43008"
    attach(attached, "i1", "V1", "V2")
    assert held(attached) == {"V1": ("i1", "claimed"), "V2": ("i1", "claimed")}


def test_a_held_device_that_vanished_is_kept_until_it_is_freed(hp: Host) -> None:
    hp.claim("g1", FG, devices=GPU)
    unplug(hp, "G0")
    hp.audit()
    assert held(hp) == {"G0": ("g1", "allocated")}
    assert [
        NAMES[device.address]
        for device in hp.tracker.view(hp.node).devices.values()
        if not device.present
    ] == ["G0"]
    assert "G0" not in free(hp)
    hp.update("g1", vm_state="deleted", deleted=True)
    assert ADDRESSES["G0"] not in hp.tracker.view(hp.node).devices
    hp.audit()
    assert ADDRESSES["G0"] not in hp.tracker.view(hp.node).devices
    assert hp.usage == "512/1/2048"


def test_a_held_device_that_comes_back_is_its_holders_still(hp: Host) -> None:
    hp.claim("g1", FG, devices=GPU)
    unplug(hp, "G0")
    hp.audit()
    gpu(hp, "G0")
    hp.audit()
    assert held(hp) == {"G0": ("g1", "allocated")}
    hp.abort("g1")
    assert "G0" in free(hp)


def test_a_held_device_that_changed_is_described_anew_once_it_is_free(hp: Host) -> None:
    hp.claim("g1", FG, devices=GPU)
    unplug(hp, "G0")
    gpu(hp, "G0", numa_node=1)
    hp.audit()
    assert hp.tracker.view(hp.node).devices[ADDRESSES["G0"]].numa_node is None
    hp.abort("g1")
    hp.audit()
    assert hp.tracker.view(hp.node).devices[ADDRESSES["G0"]].numa_node == 1


def test_a_device_that_was_plugged_in_can_be_had_after_an_audit(world: World, hp: Host) -> None:
    hp.claim("g1", FG, devices=GPU)
    hp.claim("g2", FG, devices=GPU)
    with refused(world, "resources.unavailable"):
        hp.claim("g3", FG, devices=GPU)
    gpu(hp, "G2")
    hp.audit()
    hp.claim("g3", FG, devices=GPU)
    assert held(hp)["G2"] == ("g3", "allocated")


def test_the_devices_of_a_guest_that_is_not_here_are_freed(hp: Host, hb: Host) -> None:
    hp.claim("g1", FG, devices=GPU)
    attach(hp, "g1", "V1")
    found = hp.instance("g1")
    assert found is not None
    gone = replace(found, host=hb.name, node=hb.node)
    with hp.records.transaction([hp.node]) as transaction:
        transaction.write(RecordChanges(instances=(gone,), also_on=(hp.node,)))
    hp.audit()
    assert held(hp) == {}
    assert free(hp) == {"G0", "G1", "P0", *VFS}
    assert hp.usage == "512/1/2048"


def test_the_devices_of_a_guest_that_is_on_its_way_here_are_kept(hp: Host, hb: Host) -> None:
    hb.claim("g1", FG)
    hb.update("g1", vm_state="active", task_state="migrating")
    hp.move("g1", "live-migration", devices=GPU)
    attach(hp, "g1", "V1")
    hp.audit()
    assert held(hp) == {"G0": ("g1", "claimed"), "V1": ("g1", "claimed")}
    hp.tracker.change(hp.move_id("g1"), finish)
    hp.audit()
    assert held(hp) == {"G0": ("g1", "allocated"), "V1": ("g1", "allocated")}


def test_a_guest_that_is_gone_gives_what_was_attached_back(attached: Host) -> None:
    attach(attached, "i1", "V1")
    attached.update("i1", vm_state="deleted", deleted=True)
    assert held(attached) == {}
    attach(attached, "i2", "V1")
    attached.abort("i2")
    assert held(attached) == {}
    assert attached.usage == "512/1/2048"
