"""Operator's files and the daemon: they are taken as a whole or not at all, and nothing is lost by
a bad one.
"""

import pytest

from agent.api.client import ApiClient
from tests.support.daemon_host import ROOT, DaemonHost
from tests.support.provider_files import ProviderFiles, by_name, by_uuid, default
from tests.support.service_manager import PATIENCE, until
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, uuid_of

HOST = "uuid: {root}\nproviders: [{{name: $NODE, inventories: {{VCPU: {{total: {vcpus}}}}}}}]\n"


class Host(DaemonHost):
    """A daemon with provider files."""

    text = HOST

    def __init__(self, folder, placement):
        super().__init__(folder, placement.url)
        self.placement, self.files = placement, ProviderFiles(folder.parent / "provider_config")
        self.set("compute", provider_config_location=self.files.folder)

    def vcpus(self):
        return self.placement.other.inventory(ROOT)["VCPU"]["total"]

    def customs(self):
        return {
            name
            for name in self.placement.other.traits(ROOT)
            if name.startswith("CUSTOM_") and "AGENT" not in name
        }


@pytest.fixture
def host(http_placement, tmp_path):
    return Host(tmp_path / "agent", http_placement)


@pytest.mark.long
def test_a_reload_takes_good_files_and_refuses_bad_ones_as_a_whole(host):
    host.files.write("a.yaml", default("CUSTOM_A"))
    with host.service.running() as service:
        service.wait_for("READY", "1")
        assert host.customs() == {"CUSTOM_A"}
        host.files.write("a.yaml", default("CUSTOM_B"))
        broken = host.files.write(
            "b.yaml", by_name("gpu", "HW_GPU_API_VULKAN", CUSTOM_L={"total": -3})
        )
        refused = host.command.run("reload")
        assert (refused.code, refused.stdout) == (1, "")
        assert f"{broken}:1:" in refused.stderr
        for wrong in ("HW_GPU_API_VULKAN", "CUSTOM_L.total: is -3"):
            assert wrong in refused.stderr
        host.has(12)
        until(lambda: host.vcpus() == 12, lambda: service)
        assert host.customs() == {"CUSTOM_A"}, "what is refused has no effect, not in part either"
        assert "the new configuration is refused" in service.status
        host.files.remove("b.yaml")
        asked = service.reload()
        service.wait_for("STATUS", "the configuration was reloaded", since=asked)
        until(lambda: host.customs() == {"CUSTOM_B"}, lambda: service)
        assert host.command.run("reload").code == 0
        service.stop()


@pytest.mark.long
def test_an_entry_that_does_not_fit_leaves_what_was_there_and_shows_until_it_is_mended(host):
    host.files.write("a.yaml", default("CUSTOM_A"))
    with host.service.running() as service:
        service.wait_for("READY", "1")
        host.files.write("a.yaml", by_name("node-a", "CUSTOM_B"))
        host.files.write("b.yaml", by_uuid(ROOT, "CUSTOM_C"))
        assert host.command.run("reload").code == 0
        until(lambda: service.status.startswith("degraded: "), lambda: service)
        assert "has more than one entry" in service.status
        host.has(12)
        until(lambda: host.vcpus() == 12, lambda: service)
        assert host.customs() == {"CUSTOM_A"}
        host.files.remove("a.yaml")
        assert host.command.run("reload", "--format", "json").json["exit_code"] == 0
        until(lambda: host.customs() == {"CUSTOM_C"}, lambda: service)
        until(lambda: service.status.startswith("ready: "), lambda: service)
        service.stop()


@pytest.mark.long
def test_claims_are_made_and_given_back_while_files_contradict_each_other(host):
    host.files.write("a.yaml", by_name("node-a", "CUSTOM_B"))
    host.files.write("b.yaml", by_uuid(ROOT, "CUSTOM_C"))
    client = ApiClient(host.command.socket, timeout=PATIENCE)

    def claim(name):
        body = {"id": uuid_of(name), "node": ROOT, "instance": instance_body(name)}
        return client.create_claim({**body, "flavor": flavor_body(F1)})

    def in_conflict():
        report = client.audit_report(client.request_audit(), PATIENCE)["nodes"][0]
        return [one["code"] for one in report["errors"]] == ["provider-config.conflict"]

    with host.service.running() as service:
        service.wait_for("READY", "1")
        assert "has more than one entry" in service.status
        assert claim("i1")["state"] == "held"
        assert in_conflict()
        # It is the same after a pass that met the conflict again, and published the claim before.
        assert claim("i2")["state"] == "held"
        assert client.abort_claim(uuid_of("i1"))["state"] == "released"
        assert in_conflict()
        assert {one["id"] for one in client.claims()} == {uuid_of("i2")}
        assert client.node(ROOT)["records"]["usage"]["memory_mb_used"] == 2048
        assert host.customs() == set()
        service.stop()


@pytest.mark.long
def test_while_it_runs_a_check_shows_what_other_files_would_change(host, tmp_path):
    host.files.write("a.yaml", default("CUSTOM_A", CUSTOM_L={"total": 20}))
    with host.service.running() as service:
        service.wait_for("READY", "1")
        before = host.placement.dump()
        other = ProviderFiles(tmp_path / "other")
        other.write("a.yaml", default("CUSTOM_B"))
        found = host.command.run(
            "provider-config", "check", "--format", "json", "--detailed-exitcode", str(other.folder)
        )
        assert found.code == 2, found
        (node,) = found.json["nodes"]
        inventory, traits = [one for one in node["operations"] if one["op"].startswith("set-")]
        assert set(inventory["before"]) - set(inventory["after"]) == {"CUSTOM_L"}
        assert (set(traits["before"]) ^ set(traits["after"])) == {"CUSTOM_A", "CUSTOM_B"}
        assert host.command.run("provider-config", "check", "--detailed-exitcode").code == 0
        assert host.placement.dump() == before
        service.stop()
