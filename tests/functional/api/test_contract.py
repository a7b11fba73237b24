"""What an orchestrator may say of a guest and hear of a host beside amounts: networks, ports,
policies, halves of moves, progress, cells and pools.
"""

from dataclasses import replace
from typing import Any

import pytest

from agent.model.instance import Flavor, Instance
from agent.model.node_records import Migration
from agent.numa.host import NetworkAffinity
from agent.numa.host_policy import HostPolicy
from agent.tracker.stored_state import InstanceClaim, MoveClaim, digest
from tests.support.site import (
    CARD,
    FUNCTIONS,
    GPUS,
    claim_body,
    devices_body,
    instance_body,
    move_body,
)
from tests.support.tracking import F1, F3, FN, Host, device, guest, instance, rows, uuid_of
from tests.unit.render.reports import node, report

MOVE = uuid_of("move-i1")
NUMA_CARD, LONE = "0000:81:00.0", "0000:01:00.0"


def near(site, name: str = "HN") -> Host:
    """Two cells: physnet1 and a card are at the second, tunnels end on the first; a lone device is
    nowhere.
    """
    networks = NetworkAffinity({"physnet1": frozenset({1})}, frozenset({0}))
    host = site.world.numa(name)
    host.cells = replace(
        HostPolicy(
            frozenset({*range(4), *range(8, 12)}), frozenset({*range(4, 8), *range(12, 16)})
        ),
        networks=networks,
    )
    host.devices = (
        device(
            host, NUMA_CARD, numa_node=1, tags={"physical_network": "physnet1", "trusted": "true"}
        ),
        device(host, LONE, tags={"kind": "lone"}),
    )
    host.restart()
    host.audit(start=True)
    return site.serve(host)


def ports(**fields: Any) -> list[dict[str, Any]]:
    return [{"id": uuid_of("port"), "count": 1, "spec": {}, **fields}]


def held(site) -> dict[str, str]:
    """Of each device that is held what it was asked by."""
    return {one["address"]: one["request"] for one in site.api.client.devices() if one["holder"]}


# --- networks -------------------------------------------------------------------------------------


def test_a_guest_sits_where_its_networks_are(site):
    hn = near(site)
    cells = [
        site.call("POST", "/v1/claims", claim_body(hn, name, FN, networks=networks)).json["cells"][
            0
        ]["host_cell"]
        for name, networks in (
            ("n1", {"physnets": ["physnet1"]}),
            ("n2", {"tunneled": True}),
            ("n3", {"physnets": ["physnet1", "elsewhere"]}),
        )
    ]
    assert cells == [1, 0, 1]
    answer = site.refused(
        "resources.unavailable",
        409,
        "POST",
        "/v1/claims",
        claim_body(hn, "n4", FN, networks={"physnets": ["physnet1"]}),
    )
    assert answer.json["reasons"][0].startswith(
        "NUMA: no cells with room are local to physnet physnet1"
    )
    # Who floats is on no cell.
    assert (
        site.call(
            "POST", "/v1/claims", claim_body(hn, "n5", networks={"physnets": ["physnet1"]})
        ).status
        == 201
    )


@pytest.mark.parametrize("kind", ["live-migration", "migration", "evacuation"])
def test_a_guest_that_moves_goes_where_its_networks_are(site, kind):
    site.world.numa("HA").claim("i1", FN)
    hn = near(site)
    claims = site.call(
        "POST", "/v1/moves", move_body(hn, "i1", kind, networks={"physnets": ["physnet1"]})
    ).json["claims"]
    assert [
        cell["host_cell"] for one in claims if one["half"] == "new" for cell in one["cells"]
    ] == [1]


def test_a_request_without_networks_has_the_digest_that_older_agents_gave_it():
    asked = InstanceClaim(id=uuid_of("c"), node=uuid_of("HA"), instance=instance("i1", F1))
    assert digest(asked) == "c4a203a0df39dca28be17a7269cf37c3bf7b0d3b1e9a4b3c13a0037684e2b848"


def test_a_move_that_an_older_agent_was_asked_for_is_known_again_after_the_upgrade():
    moved = Instance(
        uuid="i",
        project_id="p",
        user_id="u",
        flavor=Flavor("1", "s", 1, 2048),
        host="A",
        node="na",
        vm_state="active",
    )
    made = Migration(
        uuid="x",
        instance="i",
        type="migration",
        status="accepted",
        source_compute="A",
        source_node="na",
    )
    asked = MoveClaim(
        id="m",
        type="migration",
        node="nb",
        instance=moved,
        migration=made,
        given_fields=frozenset({"uuid", "host"}),
    )
    assert digest(asked) == "14905ee8781fa49e4043a483a2be5c6e016906f95bdca025001e19bce781ab00"
    assert digest(replace(asked, host="B")) != digest(asked)


# --- devices --------------------------------------------------------------------------------------


def test_devices_for_a_port_are_of_its_network_and_as_near_as_its_policy_says(site):
    hn = near(site)
    wanted = ports(
        port={"physical_network": "physnet1", "vnic_type": "direct", "trusted": True},
        numa_policy="required",
    )
    made = site.call("POST", "/v1/claims", claim_body(hn, "n1", FN, devices=wanted)).json
    assert (made["cells"][0]["host_cell"], held(site)) == (1, {NUMA_CARD: uuid_of("port")})


@pytest.mark.parametrize(
    ("policy", "status"), [("required", 409), ("preferred", 201), ("legacy", 409), ("socket", 409)]
)
def test_a_device_that_is_attached_later_is_as_near_to_the_guests_cells_as_its_policy_says(
    site, policy, status
):
    hn = near(site)
    assert (
        site.call("POST", "/v1/claims", claim_body(hn, "i1", FN, networks={"tunneled": True})).json[
            "cells"
        ][0]["host_cell"]
        == 0
    )
    wanted = devices_body(hn, "i1", devices=ports(spec={"address": NUMA_CARD}, numa_policy=policy))
    answer = site.call("POST", "/v1/devices/claims", wanted)
    assert answer.status == status
    if status == 409:
        assert answer.json["reasons"] == [
            f"1 device with address={NUMA_CARD} wanted, 0 free near enough"
        ]


def test_a_device_that_is_attached_later_is_as_near_as_the_flavor_says(site):
    hn = near(site)
    flavor = replace(FN, extra_specs={**FN.extra_specs, "hw:pci_numa_affinity_policy": "preferred"})
    site.call("POST", "/v1/claims", claim_body(hn, "i1", flavor, networks={"tunneled": True}))
    assert site.call("POST", "/v1/devices/claims", devices_body(hn, "i1", NUMA_CARD)).status == 201


def test_any_of_the_alternatives_will_do(site, ha):
    wanted = ports(
        count=2, spec={"kind": "none"}, alternatives=[{"kind": "gpu"}, {"type": "type-PF"}]
    )
    assert site.call("POST", "/v1/claims", claim_body(ha, "i1", devices=wanted)).status == 201
    assert len(held(site)) == 2
    assert held(site).keys() <= {*GPUS, CARD}


def test_devices_are_those_of_the_providers_that_the_scheduler_took_them_from(site, ha):
    provider = ha.tracker.view(ha.node).host.device_providers
    wanted = ports(
        count=1, spec={"kind": "gpu"}, resource_class="CUSTOM_GPU", providers=[provider[GPUS[1]]]
    )
    site.call("POST", "/v1/claims", claim_body(ha, "i1", devices=wanted))
    assert held(site) == {GPUS[1]: uuid_of("port")}
    later = devices_body(
        ha,
        "i1",
        devices=ports(id=uuid_of("later"), spec={"kind": "gpu"}, providers=[provider[GPUS[1]]]),
    )
    site.refused("resources.unavailable", 409, "POST", "/v1/devices/claims", later)
    later["devices"][0]["providers"] = [provider[GPUS[0]]]
    assert site.call("POST", "/v1/devices/claims", later).status == 201


@pytest.mark.parametrize(
    ("vnic", "wanted"),
    [
        ("direct", {*FUNCTIONS}),
        ("direct-physical", {CARD}),
        ("vdpa", set()),
        ("remote-managed", set()),
    ],
)
def test_a_port_gets_a_device_of_its_type(site, ha, vnic, wanted):
    answer = site.call(
        "POST",
        "/v1/claims",
        claim_body(
            ha,
            "i1",
            devices=ports(spec={"product_id": "1563", "kind": ""}, port={"vnic_type": vnic}),
        ),
    )
    assert answer.status == (201 if wanted else 409), answer
    assert held(site).keys() <= wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 2, "providers": [uuid_of("p")]},
        {"spec": {"trusted": "true"}, "port": {"trusted": True}},
        {"alternatives": [{"type": "type-VF"}], "port": {"vnic_type": "vdpa"}},
    ],
)
def test_devices_that_contradict_themselves_are_refused(site, ha, wrong):
    site.refused(
        "request.devices", 400, "POST", "/v1/claims", claim_body(ha, "i1", devices=ports(**wrong))
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"numa_policy": "near"},
        {"port": {}},
        {"port": {"vnic_type": "normal"}},
        {"port": {"mac": "1"}},
        {"alternatives": {}},
    ],
)
def test_devices_that_make_no_sense_are_invalid(site, ha, wrong):
    site.refused(
        "request.invalid", 400, "POST", "/v1/claims", claim_body(ha, "i1", devices=ports(**wrong))
    )


# --- halves and progress of moves -----------------------------------------------------------------


@pytest.fixture
def migrating(site) -> Host:
    """HB, where i1 of HA is to come by a live migration."""
    site.world.plain("HA").claim("i1", F1)
    hb: Host = site.serve(site.world.plain("HB"))
    assert site.call("POST", "/v1/moves", move_body(hb, "i1", "live-migration")).status == 201
    return hb


def drop(site, half: str):
    """Drop a half, twice: the second time nothing changes."""
    first = site.call("POST", f"/v1/moves/{MOVE}/drop", {"half": half})
    assert first.status == 200, first
    before = rows(site.world)
    assert site.call("POST", f"/v1/moves/{MOVE}/drop", {"half": half}).json["repeated"]
    assert rows(site.world) == before
    return {one["half"]: one["state"] for one in first.json["claims"]}


def test_the_half_of_a_live_migration_that_was_rolled_back_is_dropped_alone(site, migrating):
    assert drop(site, "new") == {"old": "held", "new": "released"}
    assert migrating.usage == "512/1/2048"
    assert [one.half for one in migrating.claims("i1")] == ["old"]
    assert site.call("POST", f"/v1/moves/{MOVE}/abort").json["migration"]["status"] == "cancelled"
    assert [one.half for one in migrating.claims("i1")] == ["only"]


def test_the_old_half_goes_and_the_new_one_stays(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.call("POST", "/v1/moves", move_body(ha, "i1", "resize", F3))
    site.refused("state.wrong", 409, "POST", f"/v1/moves/{MOVE}/drop", {"half": "old"})
    site.call("POST", f"/v1/moves/{MOVE}/finish")
    site.refused("state.wrong", 409, "POST", f"/v1/moves/{MOVE}/drop", {"half": "new"})
    assert drop(site, "old")["new"] == "consumed"
    assert ha.usage == "8704/5/84992"
    assert site.call("POST", f"/v1/moves/{MOVE}/confirm").json["migration"]["status"] == "confirmed"


def test_what_is_no_move_or_no_half_is_not_dropped(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.refused(
        "claim.unknown", 404, "POST", f"/v1/moves/{uuid_of('claim-i1')}/drop", {"half": "new"}
    )
    site.refused("request.invalid", 400, "POST", f"/v1/moves/{MOVE}/drop", {"half": "only"})


def test_a_move_reports_how_far_it_has_come(site, migrating):
    for status in ("preparing", "running", "post-migrating"):
        for repeated in (False, True):
            answer = site.call("PATCH", f"/v1/moves/{MOVE}", {"status": status})
            assert (answer.json["migration"]["status"], answer.json["repeated"]) == (
                status,
                repeated,
            )
        assert migrating.usage == "2560/2/22528"
    site.refused("state.wrong", 409, "PATCH", f"/v1/moves/{MOVE}", {"status": "preparing"})
    site.refused("state.wrong", 409, "PATCH", f"/v1/moves/{MOVE}", {"status": "confirming"})
    site.refused("request.invalid", 400, "PATCH", f"/v1/moves/{MOVE}", {"status": "completed"})
    migrating.audit()
    assert site.call("POST", f"/v1/moves/{MOVE}/finish").json["migration"]["status"] == "completed"
    site.refused("state.wrong", 409, "PATCH", f"/v1/moves/{MOVE}", {"status": "running"})


def test_a_move_that_is_confirming_is_confirmed_then(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.call("POST", "/v1/moves", move_body(ha, "i1", "resize", F3))
    site.call("POST", f"/v1/moves/{MOVE}/finish")
    assert (
        site.call("PATCH", f"/v1/moves/{MOVE}", {"status": "confirming"}).json["migration"][
            "status"
        ]
        == "confirming"
    )
    assert site.call("POST", f"/v1/moves/{MOVE}/confirm").json["migration"]["status"] == "confirmed"


def test_hidden_twins_are_marked_and_unmarked(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1", instance=instance_body("i1", hidden=True)))
    target = f"/v1/instances/{guest('i1')}"
    for hidden in (True, False):
        found = site.call("GET", target).json
        assert found["hidden"] is hidden
        site.call("PATCH", target, {"hidden": not hidden}, {"If-Match": str(found["version"])})
    told = {"uuid": uuid_of("m"), "hidden": True, "cross_cell_move": True}
    moved = site.call("POST", "/v1/moves", move_body(ha, "i1", "resize", F3, migration=told)).json[
        "migration"
    ]
    assert (moved["hidden"], moved["cross_cell_move"]) == (True, True)


# --- what a scheduler's filters read of a host ----------------------------------------------------


def records(site, host: Host) -> Any:
    site.api.service.take_report(report(nodes=(node(name=host.name, uuid=host.node),)), whole=True)
    return site.call("GET", f"/v1/nodes/{host.node}").json["records"]


def test_a_node_shows_of_its_cells_all_that_a_fit_needs(site):
    hn = near(site)
    first, second = records(site, hn)["cells"]
    at = {cell: provider for provider, cell in hn.tracker.view(hn.node).host.cell_providers.items()}
    assert (first["siblings"], second["siblings"]) == ([[4, 5], [6, 7]], [[12, 13], [14, 15]])
    assert [
        (one["physnets"], one["tunneled"], one["socket"], one["distances"], one["provider"])
        for one in (first, second)
    ] == [
        ([], True, None, {}, at[0]),
        (["physnet1"], False, None, {}, at[1]),
    ]


def test_a_node_shows_its_pools_of_devices_and_how_many_of_each_are_free(site, ha):
    def pools() -> list[tuple[Any, ...]]:
        return [
            (one["type"], one["parent"], one["tags"], one["total"], one["free"])
            for one in records(site, ha)["pools"]
        ]

    functions, card, gpus = (
        ("type-VF", CARD, {}),
        ("type-PF", CARD, {}),
        [("type-PCI", one, {"kind": "gpu"}) for one in GPUS],
    )
    assert pools() == [(*card, 1, 1), (*functions, 2, 2), *((*one, 1, 1) for one in gpus)]
    site.call(
        "POST",
        "/v1/claims",
        claim_body(
            ha, "i1", devices=[{"id": uuid_of("p"), "count": 1, "spec": {"address": FUNCTIONS[0]}}]
        ),
    )
    assert pools() == [(*card, 1, 0), (*functions, 2, 1), *((*one, 1, 1) for one in gpus)]


def test_a_node_shows_who_manages_it_what_runs_there_and_what_is_free(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    found = records(site, ha)
    assert (
        found["host"],
        found["host_ip"],
        found["hypervisor_type"],
        found["hypervisor_version"],
    ) == ("HA", "192.0.2.1", "test", 0)
    assert found["free"] == {"memory_mb": 65536 - 2560, "vcpus": 32 - 2, "disk_mb": 1024000 - 22528}
    assert (found["stats"]["num_instances"], found["stats"]["io_workload"]) == (1, 1)
