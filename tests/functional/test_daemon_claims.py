"""Claims at a daemon of its own: over its socket, from its start, through crashes and reloads,
until they are published.
"""

import json
import time
from dataclasses import replace
from uuid import uuid4

import pytest

from agent.api.client import ApiProblem, ApiUnreachable
from tests.support.daemon_host import ROOT, DaemonHost
from tests.support.service_manager import until
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, F3, FN, guest, uuid_of

HOST = f"uuid: {ROOT}\ncpu: {{online: 0-7}}\nmemory_mib: 65536\ndisk_gib: 500\n"
CELL = "cells: [{id: 0, cpus: 0-7, memory_mib: 65536}]\n"


class Host(DaemonHost):
    """A host that is audited by its daemon once and never again."""

    text, interval = HOST.replace("{", "{{").replace("}", "}}"), -1

    def __init__(self, folder, url):
        super().__init__(folder, url)
        self.set("compute", monitors="cpu,memory")

    def answers(self, ask):
        """What is answered as soon as the daemon can."""

        def asked():
            try:
                return ask()
            except ApiUnreachable:
                return None
            except ApiProblem as problem:
                assert problem.status == 503, problem
                return None

        return until(asked, lambda: self.service)

    def claim(self, name, flavor=F1, **more):
        body = {
            "id": uuid_of(f"claim-{name}"),
            "node": ROOT,
            "instance": instance_body(name),
            "flavor": flavor_body(flavor),
            **more,
        }
        return self.client.create_claim(body)

    @property
    def records(self):
        return self.client.node(ROOT)["records"]


@pytest.fixture
def host(http_placement, tmp_path):
    return Host(tmp_path / "agent", http_placement.url)


def test_a_claim_is_published_soon_and_is_there_after_a_crash(host, http_placement):
    with host.service.running():
        host.answers(host.client.readiness)
        assert host.claim("i1")["state"] == "held"
        assert host.records["usage"]["memory_mb_used"] == 2560
        until(lambda: not host.records["dirty"], lambda: host.service)
        host.service.kill()
    with host.service.running():
        # As soon as the agent can, and until then it says so.
        assert host.answers(lambda: host.claim("i1"))["repeated"]
        host.answers(host.client.readiness)
        assert host.records["usage"]["memory_mb_used"] == 2560
        assert host.service.stop()[0] == 0
    assert "Traceback" not in host.service.log


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_what_a_node_does_not_offer_is_not_granted_whatever_the_layout(host, layout):
    (host.command.folder / "host.yaml").write_text(HOST + CELL)
    host.config["compute"] |= {"cpu_dedicated_set": "0-3", "tree_layout": layout}
    host.command.configure(host.config)
    with host.service.running():
        host.answers(host.client.readiness)
        with pytest.raises(ApiProblem, match="the node offers no shared CPUs") as refused:
            host.claim("i1")
        assert refused.value.status == 409
        assert host.claim("i2", FN)["state"] == "held"
        assert host.records["usage"]["claims"] == 1


def test_what_others_put_on_a_node_and_use_stays_and_no_claim_waits_for_it(host, http_placement):
    other, consumer = http_placement.other, str(uuid4())
    with host.service.running():
        host.answers(host.client.readiness)
        other.set_inventory(ROOT, {**other.inventory(ROOT), "CUSTOM_LICENCE": 4})
        other.claim({ROOT: {"CUSTOM_LICENCE": 1}}, consumer)
        before = other.inventory(ROOT)["CUSTOM_LICENCE"]
        assert host.claim("i1")["state"] == "held"
        # What the node has now is written beside it.
        (host.command.folder / "host.yaml").write_text(HOST.replace("500", "600"))
        (node,) = host.client.audit_report(host.client.request_audit(), 30)["nodes"]
    assert node["errors"] == []
    inventory = other.inventory(ROOT)
    assert (inventory["DISK_GB"]["total"], inventory["CUSTOM_LICENCE"]) == (600, before)
    assert other.allocations(consumer)["allocations"][ROOT]["resources"] == {"CUSTOM_LICENCE": 1}


@pytest.mark.long
def test_records_of_cpus_that_are_not_offered_any_more_are_drift_until_its_remedy_is_carried_out(
    host,
):
    (host.command.folder / "host.yaml").write_text(HOST + CELL)
    sets = {"cpu_shared_set": "4-7", "cpu_dedicated_set": "0-3"}

    def told():
        """The state of the node, and what of its guests is drift."""
        host.answers(host.client.readiness)
        (node,) = host.client.audit_report(host.client.request_audit(), 30)["nodes"]
        assert node["errors"] == []
        found = [one for one in node["drift"] if one["kind"] == "guest-conflict"]
        return ["consumer" in one and one["consumer"] for one in found], " ".join(
            one["remedy"] for one in found
        )

    def configured(**compute):
        host.config["compute"] = {"tree_layout": "flat", **compute}
        host.command.configure(host.config)
        return host.service.running()

    with configured(**sets):
        host.answers(host.client.readiness)
        host.claim("i1")
        host.claim("i2", FN)
        assert told() == ([], "")
        host.service.stop()
    with configured(cpu_dedicated_set="2-3"):
        consumers, remedy = told()
        assert consumers == [False, guest("i2")]
        assert "set cpu_shared_set, or move these guests away" in remedy
        assert "add them to the set, or move the guest away" in remedy
        # The rest of the node goes on: its two CPUs are given.
        assert host.claim("i3", FN)["state"] == "held"
        host.client.abort_claim(uuid_of("claim-i1"))
        host.client.abort_claim(uuid_of("claim-i3"))
        assert told()[0] == [guest("i2")]
        host.service.stop()
    with configured(**sets):
        assert told() == ([], "")
        assert host.service.stop()[0] == 0
    assert "Traceback" not in host.service.log


@pytest.mark.long
def test_what_placement_would_still_give_is_what_it_then_gives(host, http_placement):
    host.config["DEFAULT"] |= {"reserved_host_memory_mb": 1024, "cpu_allocation_ratio": 3.5}
    host.command.configure(host.config)
    held = {"VCPU": F1.vcpus, "MEMORY_MB": F1.memory_mb, "DISK_GB": F1.root_gb}

    def offered():
        (found,) = host.command.run("resources", "--format", "json").json["resources"]
        return {
            one["resource_class"]: one
            for one in found["placement"]
            if one["provider"]["uuid"] == ROOT
        }

    with host.service.running():
        host.answers(host.client.readiness)
        assert {name: one["used"] for name, one in offered().items()} == dict.fromkeys(held)
        http_placement.other.claim({ROOT: held}, guest("i1"))
        host.claim("i1")
        (report,) = host.client.audit_report(host.client.request_audit(), 30)["nodes"]
        inventories = next(row["inventories"] for row in report["tree"] if row["uuid"] == ROOT)
        found = offered()
    assert {name: one["used"] for name, one in found.items()} == held
    assert found["VCPU"]["free"] == 8 * 3.5 - F1.vcpus
    for name, one in found.items():
        assert {
            key: inventories[name][key] for key in ("used", "total", "reserved", "allocation_ratio")
        }.items() <= one.items()
        # Several consumers, because one may not have more than the host itself has.
        rest = one["free"]
        while rest:
            part = min(rest, inventories[name]["max_unit"])
            assert http_placement.other.can_claim({ROOT: {name: part}}, str(uuid4()))
            rest -= part
        assert not http_placement.other.can_claim({ROOT: {name: 1}}, str(uuid4()))


@pytest.mark.long
def test_a_device_for_one_time_use_is_reserved_although_its_agent_was_killed_between_claim_and_publishing(
    host, place, http_placement
):
    device = "0000:81:00.0"
    if place.url is not None:
        host.config["store"] = {"connection": place.url}

    def reserved():
        (card,) = (
            one
            for one in http_placement.dump()["providers"].values()
            if one["name"] == f"node-a_{device}"
        )
        return card["inventories"]["CUSTOM_PCI_8086_1533"]["reserved"]

    host_file = host.config["fake"]["host_file"]
    host_file.write_text(
        f"{HOST}pci: [{{address: '{device}', vendor_id: '8086', product_id: '1533'}}]\n"
    )
    host.config["pci"] = {
        "device_spec": json.dumps({"address": device, "one_time_use": True}),
        "report_in_placement": True,
    }
    host.command.configure(host.config)
    wanted = {"devices": [{"id": uuid_of("gpu"), "count": 1, "spec": {"address": device}}]}
    with host.service.running():
        host.answers(host.client.readiness)
        assert reserved() == 0
        http_placement.stop()
        host.claim("i1", **wanted)
        host.service.kill()
    http_placement.start()
    with host.service.running():
        host.answers(host.client.readiness)
        assert reserved() == 1
        host.client.abort_claim(uuid_of("claim-i1"))
        with pytest.raises(ApiProblem, match="waits to be cleaned"):
            host.claim("i2", **wanted)
        assert host.command.run("pci", "cleaned", device).code == 0
        until(lambda: reserved() == 0, lambda: host.service)
        assert host.claim("i2", **wanted)["state"] == "held"
        until(lambda: reserved() == 1, lambda: host.service)


@pytest.mark.long
def test_claims_go_on_while_placement_is_away_and_through_a_reload(host, http_placement):
    with host.service.running():
        host.answers(host.client.readiness)
        http_placement.stop()
        begun = time.monotonic()
        host.claim("i1")
        assert time.monotonic() - begun < 30
        host.config["DEFAULT"]["reserved_host_memory_mb"] = 1024
        host.command.configure(host.config)
        host.client.reload()
        host.claim("i2", F3)
        assert {one["instance"] for one in host.client.claims()} == {guest("i1"), guest("i2")}
        http_placement.start()
        host.answers(lambda: host.client.audit_report(host.client.request_audit(), 30))
        host.answers(host.client.readiness)
        assert host.records["reserved"]["memory_mb"] == 1024
        assert host.records["usage"]["memory_mb_used"] == 1024 + 2048 + 8192
        assert host.client.abort_claim(uuid_of("claim-i1"))["state"] == "released"
        assert host.records["usage"]["memory_mb_used"] == 1024 + 8192


@pytest.mark.long
def test_a_node_that_is_refused_at_the_first_audit_does_not_end_the_daemon_and_is_tried_when_somebody_asks(
    host, http_placement
):
    """Else systemd starts it again every ten seconds, and each start asks for the same reshape."""
    cells = "".join(
        f"- {{id: {cell}, cpus: {first}-{first + 3}, memory_mib: 32768}}\n"
        for cell, first in ((0, 0), (1, 4))
    )
    (host.command.folder / "host.yaml").write_text(f"{HOST}cells:\n{cells}")
    host.config["compute"]["tree_layout"] = "flat"
    host.command.configure(host.config)
    assert host.command.run("--once").code == 0
    unknown = http_placement.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}})
    host.config["compute"] |= {"tree_layout": "nested", "numa_mode": "strict"}
    host.command.configure(host.config)
    with host.service.running() as service:
        assert unknown in service.wait_for("READY", "1").says["STATUS"]
        assert host.client.node(ROOT)["state"] == "refused"
        assert (
            host.claim("i1", replace(F1, extra_specs={"hw:numa_nodes": "1"}))["state"] == "held"
        ), "it is counted all the same"
        until(lambda: host.client.node(ROOT)["usage"]["memory_mb_used"] == 2560, lambda: service)
        http_placement.other.release(unknown)
        for nodes in ([ROOT], []):
            report = host.answers(
                lambda nodes=nodes: host.client.audit_report(host.client.request_audit(nodes), 30)
            )
            assert [one["state"] for one in report["nodes"]] == [
                "changed" if nodes else "in-sync"
            ], report["nodes"][0]["errors"]
        assert host.service.stop()[0] == 0
    assert "Traceback" not in host.service.log


def test_a_guest_that_let_go_of_its_old_host_may_be_evacuated_back_before_the_next_audit(
    host, http_placement
):
    other, guest_1 = http_placement.other, guest("i1")
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 8})
    with host.service.running():
        host.answers(host.client.readiness)
        host.claim("i1")
        until(lambda: not host.records["dirty"], lambda: host.service)
        other.claim({ROOT: {"VCPU": 1}, elsewhere: {"VCPU": 1}}, guest_1)
        move = {"id": uuid_of("away"), "type": "evacuation", "node": elsewhere, "host": "host-b"}
        source = {**instance_body("i1"), "host": "node-a", "node": ROOT, "flavor": flavor_body(F1)}
        # No audit sees what happens now.
        http_placement.stop()
        host.client.create_move({**move, "instance": source})
        host.client.take_move(uuid_of("away"), "finish")
        http_placement.start()
        host.client.remove_allocation(guest_1, "node")
        # The scheduler sends it back; the agent is not told yet.
        other.claim({ROOT: {"VCPU": 1}, elsewhere: {"VCPU": 1}}, guest_1)
        until(
            lambda: (
                host.client.audit_report(host.client.request_audit(), 30)["nodes"][0]["state"]
                in ("in-sync", "changed")
            ),
            lambda: host.service,
        )
        assert other.allocations(guest_1)["allocations"].keys() == {ROOT, elsewhere}


def test_the_monitors_are_polled_before_each_audit_of_all(host):
    with host.service.running():
        host.answers(host.client.readiness)
        monitors = {one["monitor"]: one for one in host.client.node(ROOT)["monitors"]}
        assert {name: one["status"] for name, one in monitors.items()} == {
            "cpu": "ok",
            "memory": "ok",
        }
        assert 'compute_node_agent_monitor_up{monitor="memory"} 1.0' in host.client.metrics()
        host.answers(lambda: host.client.audit_report(host.client.request_audit(), 30))
        later = {one["monitor"]: one for one in host.client.node(ROOT)["monitors"]}
        assert later["cpu"]["taken_at"] > monitors["cpu"]["taken_at"]


@pytest.mark.long
def test_a_broken_placement_is_told_to_whoever_has_an_allocation_removed(host, http_placement):
    with host.service.running():
        host.answers(host.client.readiness)
        http_placement.other.claim({ROOT: {"VCPU": 1}}, guest("i1"))
        http_placement.stop()
        with pytest.raises(ApiProblem) as caught:
            host.client.remove_allocation(guest("i1"), "node")
        assert (caught.value.status, caught.value.code) == (504, "placement.unreachable")
        http_placement.start()
        host.client.remove_allocation(guest("i1"), "node")
        assert http_placement.other.allocations(guest("i1"))["allocations"] == {}
