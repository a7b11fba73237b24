"""Devices and claims of nothing but devices over the socket."""

from dataclasses import replace

import pytest

from tests.support.site import CARD, FUNCTIONS, GPUS, claim_body, devices_body
from tests.support.tracking import F3, guest, rows, uuid_of

CLAIM = f"/v1/devices/claims/{uuid_of('devices-i1')}"


@pytest.fixture
def hp(site, ha):
    """HA with the guests i1 and i2."""
    for name in ("i1", "i2"):
        site.call("POST", "/v1/claims", claim_body(ha, name))
    return ha


def states(site):
    """Of each device that is held the state."""
    return {one["address"]: one["state"] for one in site.api.client.devices() if one["holder"]}


def test_devices_come_in_pages_in_the_order_of_their_addresses(site, ha):
    addresses = sorted([CARD, *FUNCTIONS, *GPUS])
    first = site.call("GET", "/v1/devices?limit=3").json
    second = site.call("GET", f"/v1/devices?limit=3&marker={first['next']}").json
    assert [one["address"] for one in first["devices"] + second["devices"]] == addresses
    assert (first["next"], second["next"]) == (f"{ha.node}/{addresses[2]}", None)
    assert [one["address"] for one in site.api.client.devices()] == addresses


def test_devices_are_claimed_then_used_then_given_back(site, hp):
    made = site.call("POST", "/v1/devices/claims", devices_body(hp, "i1", *FUNCTIONS))
    assert (made.status, made.json["purpose"], made.json["repeated"]) == (201, "devices", False)
    assert made.json["amounts"] == {"memory_mb": 0, "vcpus": 0, "disk_mb": 0}
    assert states(site) == dict.fromkeys(FUNCTIONS, "claimed")
    assert site.call("POST", "/v1/devices/claims", devices_body(hp, "i1", *FUNCTIONS)).status == 200
    for repeated in (False, True):
        used = site.call("POST", f"{CLAIM}/allocate").json
        assert (used["state"], used["repeated"]) == ("consumed", repeated)
    assert states(site) == dict.fromkeys(FUNCTIONS, "allocated")
    for repeated in (False, True):
        freed = site.call("DELETE", CLAIM).json
        assert (freed["state"], freed["repeated"], freed["devices"]) == ("released", repeated, [])
    assert states(site) == {}
    site.refused("state.wrong", 409, "POST", f"{CLAIM}/allocate")


@pytest.mark.parametrize(
    ("state", "left"),
    [("claimed", {GPUS[0]: "allocated"}), ("allocated", {FUNCTIONS[0]: "claimed"})],
)
def test_what_an_instance_has_in_one_state_is_given_back(site, hp, state, left):
    site.call("POST", "/v1/devices/claims", devices_body(hp, "i1", GPUS[0]))
    site.call("POST", f"{CLAIM}/allocate")
    site.call(
        "POST", "/v1/devices/claims", devices_body(hp, "i1", FUNCTIONS[0], id=uuid_of("another"))
    )
    target = f"/v1/devices/claims?instance={guest('i1')}&state={state}"
    assert site.call("DELETE", target).json == {"released": 1}
    assert states(site) == left
    before = rows(site.world)
    assert site.call("DELETE", target).json == {"released": 0}
    assert site.call("DELETE", f"/v1/devices/claims?instance={guest('i2')}&state={state}").json == {
        "released": 0
    }
    assert rows(site.world) == before


def test_a_guests_own_devices_are_not_given_back_beside_it(site, ha):
    wanted = [{"id": uuid_of("gpu"), "count": 1, "spec": {"kind": "gpu"}}]
    site.call("POST", "/v1/claims", claim_body(ha, "i1", devices=wanted))
    assert site.call(
        "DELETE", f"/v1/devices/claims?instance={guest('i1')}&state=allocated"
    ).json == {"released": 0}
    for method, target in (("DELETE", ""), ("POST", "/allocate")):
        site.refused(
            "claim.unknown", 404, method, f"/v1/devices/claims/{uuid_of('claim-i1')}{target}"
        )
    assert states(site) == {GPUS[0]: "allocated"}


def test_a_second_holder_is_refused_with_the_reason(site, hp):
    site.call("POST", "/v1/devices/claims", devices_body(hp, "i1", FUNCTIONS[0]))
    for address in (FUNCTIONS[0], CARD):
        answer = site.refused(
            "resources.unavailable",
            409,
            "POST",
            "/v1/devices/claims",
            devices_body(hp, "i2", address),
        )
        assert answer.json["reasons"] == [f"1 device with address={address} wanted, 0 free"]


def test_an_id_belongs_to_one_request(site, hp):
    site.call("POST", "/v1/devices/claims", devices_body(hp, "i1", FUNCTIONS[0]))
    site.refused(
        "claim.id-taken", 409, "POST", "/v1/devices/claims", devices_body(hp, "i1", FUNCTIONS[1])
    )
    site.refused(
        "claim.id-taken",
        409,
        "POST",
        "/v1/claims",
        claim_body(hp, "i3", F3, id=uuid_of("devices-i1")),
    )


def test_devices_are_for_guests_that_are_here(site, ha):
    site.refused(
        "instance.unknown", 404, "POST", "/v1/devices/claims", devices_body(ha, "i1", FUNCTIONS[0])
    )
    site.refused(
        "instance.unknown",
        404,
        "DELETE",
        f"/v1/devices/claims?instance={guest('i1')}&state=claimed",
    )
    site.world.plain("HB").claim("i1", F3)
    site.refused(
        "instance.elsewhere",
        409,
        "POST",
        "/v1/devices/claims",
        devices_body(ha, "i1", FUNCTIONS[0]),
    )


@pytest.mark.parametrize(
    "target",
    [
        "",
        f"?instance={guest('i1')}",
        "?state=claimed",
        f"?instance={guest('i1')}&state=available",
        "?instance=i1&state=claimed",
    ],
)
def test_what_is_given_back_has_to_be_said(site, hp, target):
    site.refused("request.invalid", 400, "DELETE", f"/v1/devices/claims{target}")


def test_a_marker_is_a_node_and_an_address(site, hp):
    site.refused("request.invalid", 400, "GET", f"/v1/devices?marker={hp.node}")
    assert site.call("GET", f"/v1/devices?marker={hp.node}/f").json["devices"] == []


def test_a_claim_of_no_devices_is_refused(site, hp):
    site.refused("request.invalid", 400, "POST", "/v1/devices/claims", devices_body(hp, "i1"))


def test_a_device_that_was_cleaned_can_be_had_again(site, ha):
    ha.devices = tuple(
        replace(one, one_time_use=True) if one.address == GPUS[0] else one for one in ha.devices
    )
    ha.audit()
    site.call(
        "POST",
        "/v1/claims",
        claim_body(
            ha, "i1", devices=[{"id": uuid_of("gpu"), "count": 1, "spec": {"address": GPUS[0]}}]
        ),
    )
    site.refused("state.wrong", 409, "POST", "/v1/devices/cleaned", {"address": GPUS[0]})
    site.call("DELETE", f"/v1/claims/{uuid_of('claim-i1')}")
    assert [one["address"] for one in site.api.client.devices() if one["used"]] == [GPUS[0]]
    again = claim_body(
        ha, "i2", devices=[{"id": uuid_of("gpu"), "count": 1, "spec": {"address": GPUS[0]}}]
    )
    assert f"device {GPUS[0]} waits to be cleaned" in str(
        site.refused("resources.unavailable", 409, "POST", "/v1/claims", again).json["reasons"]
    )
    for node, repeated in ((None, False), (ha.name, True), (ha.node, True)):
        told = {"node": ha.node, "node_name": ha.name, "address": GPUS[0], "repeated": repeated}
        assert site.api.client.report_cleaned_device(GPUS[0], node) == told
    assert site.call("POST", "/v1/claims", again).status == 201


def test_only_a_device_that_is_there_can_have_been_cleaned(site, ha):
    site.refused("device.unknown", 404, "POST", "/v1/devices/cleaned", {"address": "0000:99:00.0"})
    site.refused(
        "node.unknown", 404, "POST", "/v1/devices/cleaned", {"address": GPUS[0], "node": "nowhere"}
    )
    site.refused("request.invalid", 400, "POST", "/v1/devices/cleaned", {"address": "gpu"})
