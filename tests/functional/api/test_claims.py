"""Claims of room for new guests over the socket. Every answer is held to openapi.yaml, every
refusal leaves the database as it was.
"""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from agent.api.record_views import RecordViews
from agent.model.node_records import RecordChanges
from agent.tracker.stored_state import InstanceClaim
from tests.support.broken_store import UnsoundRecords, counted
from tests.support.site import (
    GPUS,
    PMEM_UNIT,
    allocated,
    claim_body,
    flavor_body,
    instance_body,
)
from tests.support.tracking import F1, F3, FN, Host, domain, guest, instance, rows, uuid_of

HUGE = 2**31


def claim_of(name: str) -> str:
    return f"/v1/claims/{uuid_of(f'claim-{name}')}"


def gpu(count: int = 1) -> list[dict[str, object]]:
    return [{"id": uuid_of("gpu"), "count": count, "spec": {"kind": "gpu"}}]


# --- what is promised -----------------------------------------------------------------------------


def test_a_claim_shows_all_that_it_got(site, ha):
    body = claim_body(
        ha, "i1", allocations=allocated(ha, VCPU=1, MEMORY_MB=2048, **PMEM_UNIT), devices=gpu()
    )
    answer = site.call("POST", "/v1/claims", body)
    claim = answer.json
    assert (answer.status, claim["repeated"], claim["state"], claim["half"], claim["purpose"]) == (
        201,
        False,
        "held",
        "only",
        "instance",
    )
    assert claim["amounts"] == {"memory_mb": 2048, "vcpus": 1, "disk_mb": 20480}
    assert [(one["address"], one["state"], one["request"]) for one in claim["devices"]] == [
        (GPUS[0], "allocated", uuid_of("gpu"))
    ]
    assert [one["identifier"] for one in claim["units"]] == ["ns_0"]
    assert ha.usage == "2560/2/22528"
    assert ha.changed == [ha.node]


def test_a_claim_on_cells_shows_its_pins(site):
    hn = site.serve(site.world.numa())
    claim = site.call("POST", "/v1/claims", claim_body(hn, "n1", FN)).json
    assert claim["cells"] == [
        {
            "host_cell": 0,
            "memory_mb": 4096,
            "page_size_kib": 4,
            "shared": [],
            "pins": {"0": 4, "1": 5},
            "emulator": [],
        }
    ]
    assert hn.pinned(0) == {4, 5}


def test_the_answer_to_a_claim_is_the_record_which_is_not_read_again(site, ha):
    body = claim_body(
        ha, "i1", allocations=allocated(ha, VCPU=1, MEMORY_MB=2048, **PMEM_UNIT), devices=gpu(2)
    )
    with counted() as sent:
        claimed = site.call("POST", "/v1/claims", body).json
    # After the last row only the mark of the transaction is written.
    last = max(place for place, text in enumerate(sent) if text.startswith(("INSERT", "UPDATE")))
    assert [text for text in sent[last:] if text.startswith("SELECT")] == []
    assert claimed.pop("repeated") is False
    assert claimed == site.call("GET", claim_of("i1")).json
    hn = site.serve(site.world.numa())
    claimed = site.call("POST", "/v1/claims", claim_body(hn, "n1", FN)).json
    assert claimed.pop("repeated") is False
    assert claimed == site.call("GET", claim_of("n1")).json


def test_a_claim_of_a_new_guest_is_one_transaction_of_four_statements(site, ha):
    with counted() as sent:
        site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    assert [text.split()[:3] for text in sent] == [
        ["SELECT", "compute_node.version,", "claim.id,"],
        ["INSERT", "INTO", "instance"],
        ["UPDATE", "compute_node", "SET"],
        ["INSERT", "INTO", "claim"],
        ["COMMIT"],
    ]


def test_the_statements_of_a_claim_are_compiled_once(site, ha):
    compiled = []

    def allow(_action, table, *_more):
        compiled.append(table)
        return sqlite3.SQLITE_OK

    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    with closing(site.world.store._engine.raw_connection()) as connection:
        connection.driver_connection.set_authorizer(allow)
    for name in ("i2", "i3"):
        compiled.clear()
        assert site.call("POST", "/v1/claims", claim_body(ha, name)).status == 201
    assert set(compiled) <= {"COMMIT"}


def test_the_same_claim_again_is_the_same_and_another_of_its_id_is_refused(site, ha):
    body = claim_body(ha, "i1")
    first = site.call("POST", "/v1/claims", body)
    before = rows(site.world)
    again = site.call("POST", "/v1/claims", dict(reversed(body.items())))
    assert (again.status, again.json) == (200, {**first.json, "repeated": True})
    assert rows(site.world) == before
    site.refused("claim.id-taken", 409, "POST", "/v1/claims", {**body, "flavor": flavor_body(F3)})


def test_a_claim_is_the_same_however_its_numbers_are_written(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1", limits={"memory_mb": 65536}))
    written = claim_body(ha, "i1", limits={"memory_mb": 65536.0})
    assert site.call("POST", "/v1/claims", written).status == 200


def test_what_a_caller_says_of_a_guest_is_kept(site, ha):
    told = {
        "os_type": "linux",
        "vm_state": "active",
        "task_state": "spawning",
        "image_properties": {"hw_disk_bus": "virtio"},
        "volume_backed": True,
    }
    claim = site.call(
        "POST", "/v1/claims", claim_body(ha, "i1", instance=instance_body("i1", **told))
    ).json
    assert claim["amounts"]["disk_mb"] == 0
    shown = site.call("GET", f"/v1/instances/{guest('i1')}").json
    assert {name: shown[name] for name in told} == told
    assert (shown["host"], shown["node"], shown["launched_on"]) == ("HA", ha.node, "HA")


def test_limits_of_cells_are_kept(site):
    hn = site.serve(site.world.numa())
    body = claim_body(hn, "n1", replace(F1, memory_mb=16384, extra_specs={"hw:numa_nodes": "1"}))
    ratios = {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 0.5}
    site.refused(
        "resources.unavailable", 409, "POST", "/v1/claims", {**body, "limits": {"numa": ratios}}
    )
    assert (
        site.call(
            "POST",
            "/v1/claims",
            {**body, "limits": {"numa": {**ratios, "ram_allocation_ratio": 1}}},
        ).status
        == 201
    )


# --- how it is given back -------------------------------------------------------------------------


def test_a_claim_is_given_back_once(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1", devices=gpu()))
    gone = site.call("DELETE", claim_of("i1"))
    assert (gone.status, gone.json["state"], gone.json["repeated"], gone.json["devices"]) == (
        200,
        "released",
        False,
        [],
    )
    before = rows(site.world)
    again = site.call("DELETE", claim_of("i1"))
    assert (again.status, again.json) == (200, {**gone.json, "repeated": True})
    assert rows(site.world) == before
    assert ha.usage == "512/1/2048"
    assert site.call("GET", claim_of("i1")).json["state"] == "released"


def test_a_claim_that_was_given_back_is_not_promised_again_by_its_id(site, ha):
    body = claim_body(ha, "i1")
    site.call("POST", "/v1/claims", body)
    site.call("DELETE", claim_of("i1"))
    site.refused("claim.released", 409, "POST", "/v1/claims", body)
    site.refused("claim.id-taken", 409, "POST", "/v1/claims", {**body, "flavor": flavor_body(F3)})
    assert ha.usage == "512/1/2048"
    assert site.call("POST", "/v1/claims", {**body, "id": uuid_of("another")}).status == 201


@pytest.mark.parametrize("vm_state", ["active", "paused", "stopped", "shelved", "resized"])
def test_the_room_of_a_guest_that_was_built_is_not_given_away_by_deleting_its_claim(
    site, ha, vm_state
):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    ha.update("i1", vm_state=vm_state)
    answer = site.refused("state.wrong", 409, "DELETE", claim_of("i1"))
    assert vm_state in answer.json["detail"]
    ha.update("i1", vm_state="error")
    if vm_state != "active":
        assert site.call("DELETE", claim_of("i1")).status == 200
        return
    # It was there.
    site.refused("state.wrong", 409, "DELETE", claim_of("i1"))
    ha.update("i1", deleted=True)
    assert ha.usage == "512/1/2048"
    assert site.call("DELETE", claim_of("i1")).json["repeated"]


@pytest.mark.parametrize("state", ["running", "paused", "stopped"])
def test_the_room_of_a_guest_that_the_hypervisor_runs_is_not_given_away_by_deleting_its_claim(
    site, ha, state
):
    """Nobody has told that it was built."""
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    ha.audit(domains=(domain("i1", 2048, 1, state=state),))
    if state != "stopped":
        answer = site.refused("state.wrong", 409, "DELETE", claim_of("i1"))
        assert "runs on the hypervisor" in answer.json["detail"]
        assert ha.usage == "2560/2/22528"
        ha.audit(domains=())
    assert site.call("DELETE", claim_of("i1")).json["state"] == "released"


def test_a_claim_that_never_was_is_unknown(site, ha):
    for method in ("GET", "DELETE"):
        site.refused("claim.unknown", 404, method, claim_of("nobody"))


# --- lists ----------------------------------------------------------------------------------------


def test_claims_come_in_pages(site, ha):
    ids = sorted(
        site.call("POST", "/v1/claims", claim_body(ha, f"i{number}")).json["id"]
        for number in range(5)
    )
    first = site.call("GET", "/v1/claims?limit=2").json
    second = site.call("GET", f"/v1/claims?limit=2&marker={first['next']}").json
    third = site.call("GET", f"/v1/claims?limit=2&marker={second['next']}").json
    assert [[one["id"] for one in page["claims"]] for page in (first, second, third)] == [
        ids[:2],
        ids[2:4],
        ids[4:],
    ]
    assert third["next"] is None
    assert [one["id"] for one in site.api.client.claims()] == ids


def test_claims_can_be_those_of_one_node_or_instance(site):
    ha = site.serve(site.world.plain("HA"))
    other = ha.beside("HA2")
    for host, name in ((ha, "i1"), (ha, "i2"), (other, "i3")):
        site.call("POST", "/v1/claims", claim_body(host, name))

    def of(**query: str) -> set[str]:
        return {one["instance"] for one in site.api.client.claims(**query)}

    assert of() == {guest("i1"), guest("i2"), guest("i3")}
    assert of(node=other.node) == {guest("i3")}
    assert of(instance=guest("i1")) == {guest("i1")}
    assert of(instance=guest("i1"), node=other.node) == set()
    assert of(node=uuid_of("nowhere")) == set()


def test_another_hosts_claims_are_not_listed(site, ha):
    site.world.plain("HB").claim("i9", F1)
    assert list(site.api.client.claims()) == []


# --- refusals: each its own problem, and nothing written ------------------------------------------


def changed(**places: object) -> dict[str, object]:
    """What a test changes in a sound claim; a dot leads inwards."""
    return {place.replace("__", "."): value for place, value in places.items()}


def with_changes(body: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    for place, value in changes.items():
        *path, last = place.split(".")
        inner: dict[str, object] = body
        for part in path:
            inner = inner[part]  # type: ignore[assignment]
        inner[last] = value
    return body


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        (changed(flavor__memory_mb=-1), "/flavor/memory_mb"),
        (changed(flavor__memory_mb=HUGE), "/flavor/memory_mb"),
        (changed(flavor__vcpus=0), "/flavor/vcpus"),
        (changed(flavor__vcpus=1.5), "/flavor/vcpus"),
        (changed(flavor__vcpus=True), "/flavor/vcpus"),
        (changed(flavor__vcpus="1"), "/flavor/vcpus"),
        (changed(flavor__root_gb=10**30), "/flavor/root_gb"),
        (changed(flavor__extra_specs={"a": 1}), "/flavor/extra_specs"),
        (changed(flavor__extra_specs={"a": "\x00"}), "/flavor/extra_specs"),
        (changed(flavor__id=""), "/flavor/id"),
        (changed(flavor__more=1), "/flavor"),
        (changed(flavor=None), "/flavor"),
        (changed(instance__vm_state="dancing"), "/instance/vm_state"),
        (changed(instance__task_state="dancing"), "/instance/task_state"),
        (changed(instance__vm_state=None), "/instance/vm_state"),
        (changed(instance__uuid="i1"), "/instance/uuid"),
        (changed(instance__uuid=guest("i1").upper()), "/instance/uuid"),
        (changed(instance__version=3), "/instance"),
        (changed(instance__flavor=flavor_body(F1)), "/instance"),
        (changed(instance__node="HA"), "/instance/node"),
        (changed(instance__launched_on="HB"), "/instance"),
        (changed(instance__project_id="a\nb"), "/instance/project_id"),
        (changed(id="1"), "/id"),
        (changed(node="HA"), "/node"),
        (changed(node=None), "/node"),
        (changed(more=1), ""),
        (changed(limits={"memory_mb": -1}), "/limits/memory_mb"),
        (changed(limits={"numa": {"cpu_allocation_ratio": 1}}), "/limits/numa"),
        (
            changed(limits={"numa": {"cpu_allocation_ratio": 0, "ram_allocation_ratio": 1}}),
            "/limits/numa/cpu_allocation_ratio",
        ),
        (changed(allocations={"HA": {"resources": {"VCPU": 1}}}), "/allocations"),
        (
            changed(allocations={uuid_of("HA"): {"resources": {"VCPU": 0}}}),
            "/allocations",
        ),
        (
            changed(allocations={uuid_of("HA"): {"resources": {"vcpu": 1}}}),
            "/allocations",
        ),
        (changed(devices=[{"id": uuid_of("gpu"), "count": 0, "spec": {}}]), "/devices/0/count"),
        (changed(devices=[{"id": uuid_of("gpu"), "count": 10**9, "spec": {}}]), "/devices/0/count"),
        (changed(devices=[{"id": uuid_of("gpu"), "count": 1}]), "/devices/0"),
        (changed(devices=gpu() * 101), "/devices"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_body_that_makes_no_sense_is_told_with_the_place(site, ha, changes, pointer):
    answer = site.refused(
        "request.invalid", 400, "POST", "/v1/claims", with_changes(claim_body(ha, "i1"), changes)
    )
    assert [one["pointer"] for one in answer.json["errors"]] == [pointer]


def test_an_unknown_node_is_unknown(site, ha):
    site.refused(
        "node.unknown", 404, "POST", "/v1/claims", claim_body(ha, "i1", node=uuid_of("HX"))
    )


def test_another_hosts_node_is_elsewhere(site, ha):
    site.refused(
        "node.elsewhere", 409, "POST", "/v1/claims", claim_body(site.world.plain("HB"), "i1")
    )


def test_a_claim_on_another_hosts_node_is_not_said_to_be_unknown(site, ha):
    there = site.world.plain("HB")
    there.claim("i1", F1)
    site.refused("node.elsewhere", 409, "DELETE", f"/v1/claims/{uuid_of('claim-i1')}")
    (claim,) = there.claims("i1")
    assert claim.open


def test_a_node_that_the_driver_does_not_offer_is_unavailable(site, ha):
    ha.usage_step.set_listed_nodes([])
    site.refused("node.unavailable", 409, "POST", "/v1/claims", claim_body(ha, "i1"))


def test_a_node_that_was_not_audited_yet_is_not_ready(site, ha):
    ha.restart()
    site.serve(ha)
    answer = site.refused("node.not-ready", 503, "POST", "/v1/claims", claim_body(ha, "i1"))
    assert answer.headers["retry-after"] == "1"


def test_a_degraded_node_promises_nothing_new(site):
    hn = site.serve(site.world.numa())
    hn.claim("n1", FN)
    hn.claim("n2", FN)
    first, second = (hn.claims(name)[0] for name in ("n1", "n2"))
    with hn.records.transaction([hn.node]) as transaction:
        transaction.write(RecordChanges(claims=(replace(second, cells=first.cells),)))
    answer = site.refused("node.degraded", 409, "POST", "/v1/claims", claim_body(hn, "n3", FN))
    assert "CPUs [4, 5] are pinned already" in answer.json["detail"]


def test_a_guest_that_another_host_has_is_elsewhere(site, ha):
    site.world.plain("HB").claim("i1", F1)
    site.refused(
        "instance.elsewhere", 409, "POST", "/v1/claims", claim_body(ha, "i1", id=uuid_of("other"))
    )
    site.refused(
        "instance.elsewhere",
        409,
        "POST",
        "/v1/claims",
        claim_body(ha, "i2", instance=instance_body("i2", host="HB")),
    )


def test_a_guest_has_one_claim(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.refused(
        "instance.claimed", 409, "POST", "/v1/claims", claim_body(ha, "i1", id=uuid_of("other"))
    )


def test_a_deleted_guest_is_in_the_wrong_state(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    ha.update("i1", deleted=True)
    site.refused(
        "state.wrong", 409, "POST", "/v1/claims", claim_body(ha, "i1", id=uuid_of("other"))
    )


def test_every_reason_why_there_is_no_room_is_told(site, ha):
    body = claim_body(
        ha,
        "i1",
        limits={"memory_mb": 100, "disk_mb": 200},
        devices=gpu(3),
        allocations=allocated(ha, CUSTOM_PMEM_NAMESPACE_4GB=3),
    )
    answer = site.refused("resources.unavailable", 409, "POST", "/v1/claims", body)
    assert answer.json["reasons"] == [
        "memory: 2560 MiB would be used, the limit is 100 MiB",
        "disk: 22528 MiB would be used, the limit is 200 MiB",
        "3 devices with kind=gpu wanted, 2 free",
        "3 units of CUSTOM_PMEM_NAMESPACE_4GB wanted, 2 free",
    ]


@pytest.mark.parametrize(
    ("specs", "image", "code"),
    [
        ({"hw:numa_nodes": "0"}, {}, "request.topology"),
        ({"hw:numa_nodes": "-1"}, {}, "request.topology"),
        ({"hw:cpu_policy": "none"}, {}, "request.topology"),
        ({"hw:mem_page_size": "fast"}, {}, "request.topology"),
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "request.flavor-image"),
        ({"hw:mem_page_size": "small"}, {"hw_mem_page_size": "2MB"}, "request.flavor-image"),
    ],
)
def test_a_malformed_topology_and_a_contradicting_image_are_problems_of_their_own(
    site, specs, image, code
):
    hn = site.serve(site.world.numa())
    body = claim_body(
        hn,
        "n1",
        replace(F1, extra_specs=specs),
        instance=instance_body("n1", image_properties=image),
    )
    site.refused(code, 400, "POST", "/v1/claims", body)


def test_a_claim_that_cannot_be_stored_is_told_and_can_be_sent_again(site, tmp_path):
    records = UnsoundRecords(site.world.store)
    site.world.records = records
    host = site.serve(site.world.plain("HA"))
    records.failures = 1
    answer = site.refused("store.unusable", 503, "POST", "/v1/claims", claim_body(host, "i1"))
    assert answer.headers["retry-after"] == "1"
    assert site.call("POST", "/v1/claims", claim_body(host, "i1")).status == 201


# --- who answers ----------------------------------------------------------------------------------


def test_before_the_driver_is_started_nothing_is_promised_but_records_are_shown(new_site):
    host: Host = new_site.world.plain("HA")
    host.claim("i1", F1)
    new_site.api.service.set_records(RecordViews(host.records, host.name))
    new_site.refused("node.not-ready", 503, "POST", "/v1/claims", claim_body(host, "i2"))
    new_site.refused("node.not-ready", 503, "DELETE", claim_of("i1"))
    assert new_site.call("GET", claim_of("i1")).json["state"] == "held"
    assert [one["instance"] for one in new_site.api.client.claims()] == [guest("i1")]


def test_after_a_reload_the_old_fleet_answers_until_the_new_one_knows_its_nodes(site, ha):
    newer = Host("HA", ha.records, ha.time, ha.facts, devices=ha.devices)
    site.serve(newer, audited=False)
    assert site.call("POST", "/v1/claims", claim_body(ha, "i1")).status == 201
    newer.audit(start=True)
    site.serve(newer)
    assert site.call("POST", "/v1/claims", claim_body(ha, "i2")).status == 201
    assert newer.usage == "4608/3/43008"
    assert newer.changed == [newer.node]


def test_an_agent_that_stops_promises_nothing_more(new_site):
    host = new_site.serve(new_site.world.plain("HA"))
    new_site.api.service.stop()
    new_site.refused("agent.stopping", 503, "POST", "/v1/claims", claim_body(host, "i1"))
    new_site.refused("agent.stopping", 503, "GET", "/v1/claims")


def test_claims_made_here_and_in_the_process_are_the_same(site, ha):
    ha.tracker.claim(
        InstanceClaim(id=uuid_of("claim-i1"), node=ha.node, instance=instance("i1", F1))
    )
    assert site.call("POST", "/v1/claims", claim_body(ha, "i1")).json["repeated"]
