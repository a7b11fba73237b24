"""Instances over the socket: their records, what becomes of them, and what they have in
Placement.
"""

import pytest

from tests.support import faults
from tests.support.site import claim_body, move_body
from tests.support.tracking import F1, F3, Host, guest, rows, uuid_of

I1 = f"/v1/instances/{guest('i1')}"
SHARED = uuid_of("shared")


@pytest.fixture
def i1(site, ha):
    """HA with i1; its record as it is shown."""
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    return site.call("GET", I1).json


def patch(site, changes, version):
    return site.call("PATCH", I1, changes, {"If-Match": f'"{version}"'})


# --- records --------------------------------------------------------------------------------------


def test_the_version_is_the_etag(site, i1):
    answer = site.call("GET", I1)
    assert answer.headers["etag"] == f'"{i1["version"]}"'
    changed = site.call("PATCH", I1, {"vm_state": "active"}, {"If-Match": answer.headers["etag"]})
    assert (changed.status, changed.json["vm_state"], changed.json["version"]) == (
        200,
        "active",
        i1["version"] + 1,
    )
    assert (
        changed.headers["etag"] == f'"{i1["version"] + 1}"' == site.call("GET", I1).headers["etag"]
    )
    (claim,) = site.api.client.claims()
    assert claim["state"] == "consumed"


def test_a_change_of_an_older_version_is_refused(site, i1):
    patch(site, {"task_state": "spawning"}, i1["version"])
    site.refused(
        "record.changed", 412, "PATCH", I1, {"task_state": None}, {"If-Match": f'"{i1["version"]}"'}
    )
    assert site.call("GET", I1).json["task_state"] == "spawning"


def test_a_change_of_no_version_is_refused(site, i1):
    site.refused("request.version-missing", 428, "PATCH", I1, {"vm_state": "active"})


@pytest.mark.parametrize("version", ["*", 'W/"1"', '"-1"', '"01"', '"1", "2"', '""', '"x"'])
def test_a_version_that_is_none_is_refused(site, i1, version):
    answer = site.refused(
        "request.invalid", 400, "PATCH", I1, {"vm_state": "active"}, {"If-Match": version}
    )
    assert [(one["in"], one["pointer"]) for one in answer.json["errors"]] == [
        ("header", "/If-Match")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"vm_state": "dancing"},
        {"vm_state": None},
        {"task_state": "dancing"},
        {"deleted": "yes"},
        {"host": "HB"},
        {"version": 1},
        [],
        None,
    ],
)
def test_a_state_that_there_is_not_is_refused(site, i1, changes):
    site.refused("request.invalid", 400, "PATCH", I1, changes, {"If-Match": f'"{i1["version"]}"'})


def test_the_same_state_again_changes_nothing(site, i1):
    before = rows(site.world)
    assert patch(site, {"vm_state": i1["vm_state"], "task_state": None}, i1["version"]).json == i1
    assert rows(site.world) == before


@pytest.mark.parametrize(
    "changes", [{"deleted": True}, {"vm_state": "deleted"}, {"vm_state": "shelved_offloaded"}]
)
def test_a_guest_that_is_gone_gives_everything_back(site, ha, i1, changes):
    assert ha.usage == "2560/2/22528"
    assert patch(site, changes, i1["version"]).status == 200
    assert ha.usage == "512/1/2048"
    assert list(site.api.client.claims()) == []


def test_a_guest_on_no_host_can_be_told_to_be_deleted(site, ha, i1):
    site.call("DELETE", f"/v1/claims/{uuid_of('claim-i1')}")
    known = site.call("GET", I1).json
    assert known["host"] is None
    assert patch(site, {"deleted": True}, known["version"]).json["deleted"]


def test_a_guest_that_nobody_knows_is_unknown(site, ha):
    site.refused("instance.unknown", 404, "GET", I1)
    site.refused("instance.unknown", 404, "PATCH", I1, {"vm_state": "active"}, {"If-Match": '"1"'})


def test_a_guest_of_another_host_is_not_changed_here(site, ha):
    site.world.plain("HB").claim("i1", F1)
    version = site.call("GET", I1).json["version"]
    site.refused(
        "instance.elsewhere", 409, "PATCH", I1, {"vm_state": "active"}, {"If-Match": f'"{version}"'}
    )


def test_instances_come_in_pages_and_are_this_hosts(site, ha):
    site.world.plain("HB").claim("i9", F1)
    uuids = sorted(
        site.call("POST", "/v1/claims", claim_body(ha, f"i{number}")).json["instance"]
        for number in range(3)
    )
    page = site.call("GET", "/v1/instances?limit=2").json
    assert ([one["uuid"] for one in page["instances"]], page["next"], page["damaged"]) == (
        uuids[:2],
        uuids[1],
        [],
    )
    assert [one["uuid"] for one in site.api.client.instances()] == uuids


def test_a_record_that_makes_no_sense_is_told_beside_the_others(site, ha, i1):
    site.call("POST", "/v1/claims", claim_body(ha, "i2"))
    with site.world.store.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE instance SET flavor = 'nonsense' WHERE uuid = ?", (guest("i2"),)
        )
    page = site.call("GET", "/v1/instances").json
    assert [one["uuid"] for one in page["instances"]] == [guest("i1")]
    assert len(page["damaged"]) == 1
    assert guest("i2") in page["damaged"][0]
    site.refused("store.unusable", 503, "GET", f"/v1/instances/{guest('i2')}")


def test_a_resize_shows_both_flavors(site, ha, i1):
    site.call("POST", "/v1/moves", move_body(ha, "i1", "resize", F3))
    shown = site.call("GET", I1).json
    assert (shown["flavor"]["id"], shown["old_flavor"]["id"], shown["new_flavor"]["id"]) == (
        "f1",
        "f1",
        "f3",
    )


# --- allocations ----------------------------------------------------------------------------------


@pytest.fixture
def allocated(site, ha):
    """i1 with an allocation on HA and a child of it, on HB, and on shared storage."""
    other = site.placement.other
    for name, uuid, parent in (
        ("HA", ha.node, None),
        ("HA_PMEM", uuid_of("HA_PMEM"), ha.node),
        ("HB", uuid_of("HB"), None),
        ("shared", SHARED, None),
    ):
        other.create_provider(name, uuid, parent)
        other.set_inventory(uuid, {"VCPU": 8, "CUSTOM_PMEM": 8, "DISK_GB": 100})
    held = {
        ha.node: {"VCPU": 1},
        uuid_of("HA_PMEM"): {"CUSTOM_PMEM": 1},
        uuid_of("HB"): {"VCPU": 1},
        SHARED: {"DISK_GB": 5},
    }
    other.claim(held, guest("i1"))
    return held


def holds(site):
    """What i1 has in Placement."""
    found = site.placement.dump()["consumers"].get(guest("i1"))
    return found["allocations"] if found else None


def test_an_evacuated_guest_lets_go_of_this_hosts_nodes_and_keeps_the_rest(site, ha, allocated):
    target = f"{I1}/allocation?scope=node"
    assert site.call("DELETE", target).status == 204
    assert holds(site) == {uuid: allocated[uuid] for uuid in (uuid_of("HB"), SHARED)}
    before = site.placement.dump()
    assert site.call("DELETE", target).status == 204
    assert site.placement.dump() == before


def test_a_guest_that_leaves_one_node_of_a_host_keeps_what_it_has_of_the_others(
    site, ha, allocated
):
    ha.devices = None
    beside, target = ha.beside("HA2"), f"{I1}/allocation?scope=node"
    site.placement.other.create_provider("HA2", beside.node)
    site.placement.other.set_inventory(beside.node, {"VCPU": 8})
    held = {**allocated, beside.node: {"VCPU": 1}}
    site.placement.other.claim(held, guest("i1"))
    answer = site.refused("allocation.several-trees", 409, "DELETE", target)
    assert all(one in answer.json["detail"] for one in (ha.node, beside.node))
    site.refused("node.unknown", 404, "DELETE", f"{target}&node={uuid_of('HB')}")
    assert holds(site) == held
    for _ in range(2):
        assert site.call("DELETE", f"{target}&node={beside.node}").status == 204
        assert holds(site) == allocated
    # Now there is no other that could be meant.
    assert site.call("DELETE", target).status == 204
    assert holds(site) == {uuid: allocated[uuid] for uuid in (uuid_of("HB"), SHARED)}


def test_a_guest_lets_go_of_nodes_that_an_agent_has_not_audited_yet(site, ha, allocated):
    ha.restart()
    site.serve(ha)
    assert site.call("DELETE", f"{I1}/allocation?scope=node").status == 204
    assert holds(site) == {uuid: allocated[uuid] for uuid in (uuid_of("HB"), SHARED)}


def test_an_agent_that_never_audited_a_node_does_not_say_that_a_guest_let_go_of_it(site, allocated):
    site.serve(Host("HX", site.world.records, site.world.time, site.world.plain("HY").facts))
    site.refused("node.not-ready", 503, "DELETE", f"{I1}/allocation?scope=node")
    assert holds(site) == allocated


def test_a_shelved_guest_lets_go_of_everything(site, ha, allocated):
    target = f"{I1}/allocation?scope=all"
    for _ in range(2):
        assert site.call("DELETE", target).status == 204
        assert not holds(site)


def test_an_allocation_that_somebody_else_changes_is_read_again(site, ha, allocated):
    changed = {**allocated, SHARED: {"DISK_GB": 6}}
    site.placement.faults.add(
        faults.before(lambda _: site.placement.other.claim(changed, guest("i1"))),
        method="PUT",
        path="/allocations/",
    )
    assert site.call("DELETE", f"{I1}/allocation?scope=node").status == 204
    assert holds(site) == {uuid_of("HB"): {"VCPU": 1}, SHARED: {"DISK_GB": 6}}


def test_a_placement_that_is_away_is_told(site, ha, allocated):
    before = site.placement.dump()
    site.placement.faults.add(faults.refused(), times=None)
    for scope in ("node", "all"):
        site.refused("placement.unreachable", 504, "DELETE", f"{I1}/allocation?scope={scope}")
    site.placement.faults.clear()
    assert site.placement.dump() == before


@pytest.mark.parametrize("query", ["", "?scope=", "?scope=host", "?scope=all&scope=node"])
def test_how_much_is_to_go_has_to_be_said(site, ha, query):
    site.refused("request.invalid", 400, "DELETE", f"{I1}/allocation{query}")
