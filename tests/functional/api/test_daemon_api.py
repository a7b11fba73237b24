"""The local API of a daemon: what it says from start to end, and what can be asked of it."""

import signal
import socket
import threading

import pytest

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.support import faults, hanging_driver, stopped
from tests.support.child import CHECKOUT
from tests.support.daemon_host import ROOT, DaemonHost
from tests.support.service_manager import STOP, Service, until

HOST = "uuid: {root}\nproviders:\n- name: $NODE\n  inventories:\n    VCPU: {{total: {vcpus}}}\n"


class Host(DaemonHost):
    """A host that is audited by its daemon once and never again."""

    text, interval = HOST, -1

    def audited(self, *nodes, dry_run=False):
        """The report of an audit asked for."""
        report = self.client.audit_report(self.client.request_audit(nodes, dry_run=dry_run), 60)
        assert report is not None
        return report

    def ready(self):
        until(lambda: self.answers(self.client.readiness), lambda: self.service)

    @staticmethod
    def answers(ask):
        try:
            return ask()
        except (ApiProblem, ApiUnreachable):
            return None


@pytest.fixture
def host(http_placement, tmp_path):
    return Host(tmp_path / "agent", http_placement.url)


def vcpus(placement):
    return placement.other.inventory(ROOT)["VCPU"]["total"]


@pytest.mark.long
def test_it_answers_before_placement_is_up_and_says_what_is_missing(host, proxy, http_placement):
    host.set("placement", endpoint=proxy.url)
    proxy.stop()
    with host.service.running() as service:
        until(lambda: host.answers(host.client.health), lambda: service)
        until(lambda: service.said("READY"), lambda: service)
        with pytest.raises(ApiProblem) as found:
            host.client.readiness()
        assert (found.value.status, found.value.code) == (503, "agent.not-ready")
        assert any("cannot connect to" in reason for reason in found.value.problem["reasons"])
        assert host.client.health().startswith("degraded")
        proxy.start()
        assert host.audited()["exit_code"] == 0
        assert host.client.readiness() == "ready: 1 changed"
        assert vcpus(http_placement) == 8


def test_an_audit_that_is_asked_for_runs_at_once(host, http_placement):
    with host.service.running():
        host.ready()
        host.has(12)
        report = host.audited()
        assert [node["state"] for node in report["nodes"]] == ["changed"]
        assert (report["schema"], report["dry_run"], report["exit_code"]) == (
            "compute-node-agent/report/1",
            False,
            0,
        )
        assert vcpus(http_placement) == 12
        assert host.client.node(ROOT)["tree"] == report["nodes"][0]["tree"]


@pytest.mark.long
def test_whoever_asks_while_one_waits_gets_the_same(host, http_placement):
    with host.service.running():
        host.ready()
        http_placement.suspend()
        first = host.client.request_audit()
        until(
            lambda: host.client.request("GET", f"/v1/audits/{first}").document["state"] == "running"
        )
        host.has(16)
        others = {host.client.request_audit() for _ in range(5)}
        assert len(others) == 1
        assert first not in others, "that one may have looked at the host already"
        http_placement.resume()
        for one in (first, *others):
            assert host.client.audit_report(one, 30)
        assert vcpus(http_placement) == 16


def test_a_dry_run_changes_nothing_and_the_daemon_has_learned_nothing_from_it(host, http_placement):
    with host.service.running():
        host.ready()
        before = http_placement.dump()
        host.file.write_text(HOST.format(root=ROOT, vcpus=24) + "  traits: [CUSTOM_NEW]\n")
        report = host.audited(dry_run=True)
        (node,) = report["nodes"]
        assert (report["dry_run"], node["state"], node["operations"] != []) == (
            True,
            "pending",
            True,
        )
        assert http_placement.dump() == before
        assert host.client.node(ROOT)["state"] == "changed", "the node is as its last audit left it"
        # The trait has to be made all the same, although the dry run has taken that for done.
        assert host.audited()["nodes"][0]["state"] == "changed"
        assert vcpus(http_placement) == 24
        assert "CUSTOM_NEW" in http_placement.other.traits(ROOT)


def test_some_nodes_may_be_audited_by_name_or_uuid(host, http_placement):
    with host.service.running():
        host.ready()
        for vcpus_now, name in ((10, "node-a"), (11, ROOT)):
            host.has(vcpus_now)
            assert host.audited(name)["nodes"][0]["state"] == "changed"
            assert vcpus(http_placement) == vcpus_now
        nobody = host.audited("node-*")
        assert (nobody["nodes"], nobody["exit_code"]) == ([], 1), "a name is no pattern here"


def test_waiting_for_a_report_in_the_request_itself(host):
    with host.service.running():
        host.ready()
        answer = host.client.request(
            "POST", "/v1/audits", {}, {"Prefer": "respond-async, wait=30"}, wait=30
        )
        assert (answer.status, answer.headers["preference-applied"]) == (200, "wait=30")
        again = host.client.request("GET", answer.headers["content-location"])
        assert again.document == answer.document


@pytest.mark.long
def test_only_the_last_hundred_reports_are_kept(host):
    with host.service.running():
        host.ready()
        ids = []
        for _ in range(101):
            ids.append(host.client.request_audit())
            assert host.client.audit_report(ids[-1], 30)
        with pytest.raises(ApiProblem, match="there is no audit"):
            host.client.audit_report(ids[0])
        assert host.client.audit_report(ids[1])


@pytest.mark.long
def test_the_figures_say_what_was_done(host, http_placement):
    with host.service.running():
        host.ready()
        host.audited()
        figures = dict(
            line.rsplit(" ", 1)
            for line in host.client.metrics().splitlines()
            if not line.startswith("#")
        )
    assert all(name.startswith("compute_node_agent_") for name in figures)
    assert float(figures['compute_node_agent_audits_total{state="changed"}']) == 1
    assert float(figures['compute_node_agent_audits_total{state="in-sync"}']) == 1
    assert float(figures['compute_node_agent_nodes{state="in-sync"}']) == 1
    assert float(figures["compute_node_agent_audit_seconds_count"]) == 2
    sent = sum(
        float(value)
        for name, value in figures.items()
        if name.startswith("compute_node_agent_placement_requests_total")
    )
    assert sent == http_placement.count()
    assert any(name.startswith("compute_node_agent_build_info{version=") for name in figures)


def test_devices_that_could_not_be_listed_are_counted_and_the_node_is_not_well(host):
    unread = host.file.read_text() + "incomplete: {pci: no answer}\n"
    with host.service.running() as service:
        host.ready()
        host.file.write_text(unread)
        (node,) = host.audited()["nodes"]
        assert (node["state"], node["operations"]) == ("degraded", [])
        with pytest.raises(ApiProblem, match="node-a"):
            host.client.readiness()
        assert (
            "compute_node_agent_pci_sync_failures_total 1.0" in host.client.metrics().splitlines()
        )
        host.has(8)
        assert host.audited()["nodes"][0]["state"] == "in-sync", service
        assert (
            "compute_node_agent_pci_sync_failures_total 1.0" in host.client.metrics().splitlines()
        )


def test_a_reload_takes_a_good_configuration_and_tells_all_that_is_wrong_with_a_bad_one(
    host, http_placement
):
    with host.service.running() as service:
        host.ready()
        other = host.file.with_name("other.yaml")
        other.write_text(HOST.format(root=ROOT, vcpus=20))
        host.set("fake", host_file=other)
        assert host.command.run("reload").stdout.startswith("the configuration was reloaded; ")
        until(lambda: vcpus(http_placement) == 20, lambda: service)
        host.set("compute", cpu_shared_set="0-x")
        host.set("api", read_group="no such group")
        refused = host.command.run("--api-socket", str(host.command.socket), "reload")
        assert (refused.code, refused.stdout) == (1, "")
        assert all(option in refused.stderr for option in ("cpu_shared_set", "read_group"))
        assert "the new configuration is refused" in host.client.health()


@pytest.mark.long
def test_a_reload_keeps_the_socket_and_everybody_who_is_connected(host):
    with host.service.running() as service:
        host.ready()
        inode = host.command.socket.stat().st_ino
        waiting = []
        thread = threading.Thread(
            target=lambda: waiting.append(host.client.audit_report(host.client.request_audit(), 30))
        )
        asked = service.reload()
        thread.start()
        service.wait_for("READY", "1", since=asked)
        thread.join(30)
        assert waiting[0] is not None
        assert host.command.socket.stat().st_ino == inode
        host.set("api", socket=host.file.with_name("other.sock"))
        with pytest.raises(
            ApiProblem, match=r"\[api\] socket: changed, and in use for as long as the agent runs"
        ):
            host.client.reload()


@pytest.mark.long
def test_a_killed_agents_socket_is_in_nobodys_way(host):
    with host.service.running() as service:
        host.ready()
        service.kill()
    assert host.command.socket.exists()
    with pytest.raises(ApiUnreachable, match="no agent listens there"):
        host.client.health()
    service = Service(host.command)
    with service.running():
        until(lambda: host.answers(host.client.health), lambda: service)


@pytest.mark.long
def test_two_agents_with_one_socket_are_one_too_many(host, tmp_path, http_placement):
    with host.service.running():
        host.ready()
        second = Host(tmp_path / "second", http_placement.url)
        second.set("api", socket=host.command.socket)
        refused = second.command.run()
        assert (refused.code, refused.stdout) == (1, "")
        assert "another agent listens there" in refused.stderr
        assert host.client.health()


@pytest.mark.long
def test_at_the_end_nobody_is_left_waiting_and_the_socket_is_gone(host, http_placement):
    with host.service.running() as service:
        host.ready()
        http_placement.suspend()
        running = host.client.request_audit()
        outcome = []

        def wait():
            try:
                host.client.request(
                    "GET", f"/v1/audits/{running}", headers={"Prefer": "wait=60"}, wait=60
                )
            except (ApiProblem, ApiUnreachable) as error:
                outcome.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        until(
            lambda: (
                host.client.request("GET", f"/v1/audits/{running}").document["state"] == "running"
            )
        )
        code, seconds = service.stop()
        http_placement.resume()
        waiter.join(60)
        assert (code, seconds < STOP) == (0, True), service
        assert [error.code for error in outcome] == ["agent.stopping"]
        assert not host.command.socket.exists()


@pytest.mark.long
def test_slow_clients_do_not_hold_up_the_end(host):
    with host.service.running() as service:
        host.ready()
        connections = []
        for _ in range(20):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(str(host.command.socket))
            connection.sendall(b"GET /hea")
            connections.append(connection)
        code, seconds = service.stop()
        assert (code, seconds < STOP) == (0, True)
        for connection in connections:
            connection.close()


@pytest.mark.long
def test_without_a_socket_there_is_no_api_and_everything_else(host, http_placement):
    host.set("api", socket="")
    with host.service.running() as service:
        service.wait_for("READY", "1")
        assert vcpus(http_placement) == 8
        assert not host.command.socket.exists()
        assert service.stop()[0] == 0


@pytest.mark.long
def test_a_driver_that_hangs_is_seen_by_everybody_who_looks(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url)
    host.set("DEFAULT", compute_driver=hanging_driver.NAME, update_resources_interval=1)
    host.set("compute", facts_deadline=3)
    folder = tmp_path / "agent"
    site = hanging_driver.install(folder)
    with host.service.running(PYTHONPATH=f"{CHECKOUT}:{site}") as service:
        host.ready()
        (folder / hanging_driver.HANG).touch()
        until(lambda: host.answers(host.client.readiness) is None, lambda: service)
        with pytest.raises(ApiProblem, match="did not answer within 3 s"):
            host.client.readiness()
        until(lambda: "compute_node_agent_hanging_driver_calls 1.0" in host.client.metrics())
        assert host.client.health(), "the process itself works"
        (folder / hanging_driver.HANG).unlink()
        host.ready()


# --- the commands ---------------------------------------------------------------------------------


def test_status_and_tree_come_from_the_daemon_and_without_it_from_the_store(host, http_placement):
    with host.service.running():
        host.ready()
        running = host.command.run("status")
        assert (running.code, running.stderr) == (0, "")
        assert running.stdout.startswith("ready: 1 changed\n")
        document = host.command.run("status", "--format", "json").json
        assert document["daemon"]["ready"] is True
        assert [node["uuid"] for node in document["nodes"]] == [ROOT]
        trees = [
            host.command.run("tree", *offline, "--format", "json").json
            for offline in ((), ("--offline",))
        ]
        assert trees[0] == trees[1]
        offline = host.command.run("status", "--offline", "--format", "json").json
        assert (offline["daemon"], [node["state"] for node in offline["nodes"]]) == (
            None,
            ["in-sync"],
        )
    stopped = host.command.run("status")
    assert (stopped.code, stopped.stdout.count("node-a")) == (0, 1)
    assert host.command.run("reload").code == 1
    assert http_placement.dump()


@pytest.mark.long
def test_an_answer_that_gets_lost_is_told_and_not_taken_for_no_daemon(host, proxy):
    host.set("placement", endpoint=proxy.url)
    with host.service.running() as service:
        host.ready()
        proxy.faults.add(faults.read_timeout())
        stopped.stop(service.process.pid)
        try:
            with pytest.raises(ApiUnreachable) as found:
                ApiClient(host.command.socket, timeout=1).health()
            assert found.value.data["listening"]
        finally:
            service.process.send_signal(signal.SIGCONT)
