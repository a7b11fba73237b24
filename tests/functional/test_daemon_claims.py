"""Claims at a daemon of its own: over its socket, from its start, through crashes and reloads, until they are published."""

import json
import re
import time

import pytest

from agent.api.client import ApiProblem, ApiUnreachable, Client
from tests.support.service_manager import Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentCommand
from tests.support.tracking import F1, F3, guest, uuid_of

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000d001"
HOST = f"uuid: {ROOT}\ncpu: {{online: 0-7}}\nmemory_mib: 65536\ndisk_gib: 500\n"
FINISHED_SOON = 10.0


class Host:
    """A daemon for a host file, which audits by itself only once."""

    def __init__(self, folder, url):
        (folder / "host.yaml").parent.mkdir(parents=True, exist_ok=True)
        (folder / "host.yaml").write_text(HOST)
        self.config = {
            "DEFAULT": {
                "compute_driver": "fake.file", "host": "node-a", "state_path": folder / "nova", "update_resources_interval": -1,
                "log_file": folder / "agent.log",
            },
            "fake": {"host_file": folder / "host.yaml"},
            "compute": {"monitors": "cpu,memory"},
            "placement": {"auth_type": "admin_token", "endpoint": url, "token": "a-token", "max_in_flight": 1},
        }  # fmt: skip
        self.command = AgentCommand(folder, self.config)
        self.service, self.client = Service(self.command), Client(self.command.socket)

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

    def claim(self, name, flavor=F1):
        body = {"id": uuid_of(f"claim-{name}"), "node": ROOT, "instance": instance_body(name), "flavor": flavor_body(flavor)}
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
        until(lambda: not host.records["dirty"], lambda: host.service, FINISHED_SOON)
        host.service.kill()
    with host.service.running():
        # As soon as the agent can, and until then it says so.
        assert host.answers(lambda: host.claim("i1"))["repeated"]
        host.answers(host.client.readiness)
        assert host.records["usage"]["memory_mb_used"] == 2560
        assert host.service.stop()[0] == 0
    assert "Traceback" not in host.service.log


def test_claims_go_on_while_placement_is_away_and_through_a_reload(host, http_placement):
    with host.service.running():
        host.answers(host.client.readiness)
        http_placement.stop()
        begun = time.monotonic()
        host.claim("i1")
        assert time.monotonic() - begun < 1
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


def test_the_commands_ask_the_daemon(host, tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"instance": instance_body("i1"), "flavor": flavor_body(F1)}))
    with host.service.running():
        host.answers(host.client.readiness)
        made = host.command.run("claim", "create", str(request), "--format", "json")
        assert (made.code, made.stderr, made.json["claim"]["node"]) == (0, "", ROOT)
        assert host.command.run("claims", "--format", "json").json["source"] == "daemon"
        shown = host.command.run("resources").stdout
        assert re.search(r"memory MiB\s+2560\s+65536\s+512", shown), shown
    left = host.command.run("claims", "--format", "json").json
    assert (left["source"], left["claims"]) == ("store", [{key: value for key, value in made.json["claim"].items() if key != "repeated"}])


def test_the_monitors_are_polled_before_each_audit_of_all(host):
    with host.service.running():
        host.answers(host.client.readiness)
        monitors = {one["monitor"]: one for one in host.client.node(ROOT)["monitors"]}
        assert {name: one["status"] for name, one in monitors.items()} == {"cpu": "ok", "memory": "ok"}
        assert 'compute_node_agent_monitor_up{monitor="memory"} 1.0' in host.client.metrics()
        host.answers(lambda: host.client.audit_report(host.client.request_audit(), 30))
        later = {one["monitor"]: one for one in host.client.node(ROOT)["monitors"]}
        assert later["cpu"]["taken_at"] > monitors["cpu"]["taken_at"]


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
