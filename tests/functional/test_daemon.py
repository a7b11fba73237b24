"""The daemon as a process of its own, with a test in systemd's place and the real Placement over
HTTP.
"""

import os
import re
import time
from itertools import pairwise

import pytest

from agent.api.client import ApiClient
from agent.errors import AgentError
from tests.functional import telling_driver
from tests.support import faults, hanging_driver
from tests.support.child import CHECKOUT
from tests.support.daemon_host import ROOT, DaemonHost
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import PATIENCE, STOP, Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import F1, uuid_of

HOST = (
    "uuid: {root}\nproviders:\n- name: $NODE\n  inventories:\n    VCPU: {{total: {vcpus}}}\n- "
    "name: $NODE_NUMA0\n  inventories:\n    PCPU: {{total: 4}}\n"
)


class Host(DaemonHost):
    """A host with a cell, which is audited each second."""

    text = HOST


@pytest.fixture
def host(http_placement, tmp_path):
    return Host(tmp_path / "agent", http_placement.url)


def vcpus(placement: HttpPlacement) -> int:
    """The total of VCPU that Placement has."""
    records = placement.other.inventory(ROOT)
    return int(records["VCPU"]["total"])


def ended_well(service: Service) -> None:
    code, seconds = service.stop()
    assert (code, seconds < STOP) == (0, True), f"{code} after {seconds} s: {service}"
    assert "Traceback" not in service.log
    assert service.process.communicate() == ("", "")


@pytest.mark.long
def test_systemd_hears_of_a_start_of_life_and_of_an_end(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url, watchdog=6)
    host.set("DEFAULT", update_resources_interval=30)
    with host.service.running() as service:
        ready = service.wait_for("READY", "1")
        assert ready.says["STATUS"] == "ready: 1 changed"
        assert vcpus(http_placement) == 8, "READY came before the first audit was through"
        assert service.said()[0].says == {"STATUS": "starting"}
        until(lambda: len(service.said("WATCHDOG", since=ready.at)) >= 3)
        beats = [one.at for one in service.said("WATCHDOG", since=ready.at)]
        assert max(later - earlier for earlier, later in pairwise(beats)) < 6
        ended_well(service)
    assert service.said()[-1].says == {"STOPPING": "1", "STATUS": "stopping"}
    assert "READY" not in service.said(since=ready.at)[-1].says


def test_an_edit_of_the_host_file_shows_one_period_later(host, http_placement):
    with host.service.running() as service:
        service.wait_for("READY", "1")
        host.has(12)
        until(lambda: vcpus(http_placement) == 12)
        until(lambda: service.status == "ready: 1 in-sync", lambda: service)
        http_placement.clear()
        until(lambda: http_placement.count() >= 2)
        assert {one.target for one in http_placement.requests} == {
            f"/resource_providers?in_tree={ROOT}"
        }, "a quiet period costs one request"
        ended_well(service)


def test_after_a_restart_on_a_saved_mirror_neither_ready_nor_claims_wait_for_placement(
    host, http_placement
):
    host.set("DEFAULT", update_resources_interval=2)
    with host.service.running() as service:
        service.wait_for("READY", "1")
        ended_well(service)
    http_placement.stop()
    again = time.monotonic()
    with host.service.running() as service:
        ready = service.wait_for("READY", "1", since=again)
        assert ready.says["STATUS"].startswith("ready: 1 in-sync; Placement is asked in ")
        client = ApiClient(host.command.socket, timeout=PATIENCE)
        body = {"id": uuid_of("claim"), "node": ROOT, "instance": instance_body("i1")}
        assert client.create_claim({**body, "flavor": flavor_body(F1)})["state"] == "held"
        http_placement.start()
        service.wait_for("STATUS", "ready: 1 in-sync", since=time.monotonic())
        assert http_placement.count() >= 1
        ended_well(service)


@pytest.mark.long
def test_a_killed_and_restarted_placement_is_degraded_then_ready_and_nothing_is_lost(
    host, http_placement
):
    with host.service.running() as service:
        service.wait_for("READY", "1")
        consumer = http_placement.other.claim({ROOT: {"VCPU": 2}})
        before = http_placement.dump()
        http_placement.kill()
        lost = service.wait_for("STATUS", "cannot connect to")
        host.has(16)
        back = time.monotonic()
        http_placement.start()
        service.wait_for("STATUS", "ready: 1 in-sync", since=back)
        assert vcpus(http_placement) == 16
        assert http_placement.other.allocations(consumer)["allocations"][ROOT]["resources"] == {
            "VCPU": 2
        }
        assert http_placement.dump()["consumers"] == before["consumers"]
        assert http_placement.dump()["providers"].keys() == before["providers"].keys()
        assert not service.said("READY", since=lost.at), "it never stopped being up"
        ended_well(service)
    # One line at once, and one for each ten failed passes, if Placement starts so slowly.
    told = re.findall("WARNING.*cannot connect to.*", service.log)
    assert [line for line in told[1:] if not line.endswith("(suppressed 9)")] == [], service.log
    assert len(told) >= 1, service.log


@pytest.mark.long
def test_it_starts_before_placement_is_up_and_needs_one_audit_when_it_is(
    host, http_placement, proxy
):
    host.set("placement", endpoint=proxy.url)
    proxy.stop()
    with host.service.running() as service:
        ready = service.wait_for("READY", "1")
        assert ready.says["STATUS"].startswith(f"degraded: cannot connect to {proxy.url}")
        until(lambda: len(service.said("STATUS")) >= 4, lambda: service)
        assert service.process.poll() is None
        proxy.start()
        service.wait_for("STATUS", "ready: 1 changed")
        assert vcpus(http_placement) == 8
        assert [one.path for one in proxy.requests].count("/") == 1, (
            "the first audit that got through was the only one needed"
        )
        ended_well(service)


@pytest.mark.long
def test_sigterm_ends_it_at_once_while_it_pauses_because_placement_is_down(host, proxy):
    host.set("placement", endpoint=proxy.url)
    host.set("DEFAULT", update_resources_interval=600)
    proxy.stop()
    with host.service.running() as service:
        until(lambda: len(service.said("STATUS")) >= 3, lambda: service)
        code, seconds = service.stop()
        assert (code, seconds < STOP) == (0, True)


@pytest.mark.long
def test_a_hanging_placement_shows_in_the_watchdog_and_sigterm_ends_it_all_the_same(
    http_placement, proxy, tmp_path
):
    host = Host(tmp_path / "agent", proxy.url, watchdog=0.6)
    with host.service.running() as service:
        service.wait_for("STATUS", "ready: 1 in-sync")
        proxy.faults.add(faults.read_timeout())
        until(lambda: any(not one.reached for one in proxy.requests), lambda: service)
        # What it said before may still be on its way.
        time.sleep(1)
        stuck = time.monotonic()
        time.sleep(1)
        assert not service.said("WATCHDOG", since=stuck), "systemd would think that all is well"
        code, seconds = service.stop()
        assert (code, seconds < STOP) == (0, True)
        assert "STOPPING" in service.said()[-1].says
        assert "stopped in the middle of an audit" in service.log


@pytest.mark.long
def test_a_driver_call_that_hangs_does_not_stop_the_loop_and_is_seen(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url, watchdog=20)
    host.set("DEFAULT", compute_driver=hanging_driver.NAME)
    host.set("compute", facts_deadline=4)
    site = hanging_driver.install(host.folder)
    hang = host.folder / hanging_driver.HANG
    with host.service.running(PYTHONPATH=f"{CHECKOUT}:{site}") as service:
        service.wait_for("STATUS", "ready")
        hang.touch()
        hung = service.wait_for(
            "STATUS",
            "degraded: 1 failed; driver hanging: facts of node node-a did not answer within 4 s",
        )
        service.wait_for("WATCHDOG", "1", since=hung.at)
        hang.unlink()
        service.wait_for("STATUS", "ready: 1 in-sync", since=hung.at)
        hang.touch()
        again = service.wait_for("STATUS", "degraded", since=time.monotonic())
        assert "hanging driver calls: 1" in again.says["STATUS"]
        code, seconds = service.stop()
        assert (code, seconds < STOP) == (0, True)
    warnings = [
        line
        for line in service.log.splitlines()
        if "WARNING agent.service.log_writer" in line and "did not answer" in line
    ]
    assert len(warnings) == 2, "once for each time, not for each audit"
    assert service.log.count("node node-a: well again") == 1
    assert service.log.count("the driver did not stop") == 1


@pytest.mark.long
def test_a_driver_whose_backend_starts_later_is_waited_for(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url)
    host.set("DEFAULT", compute_driver=hanging_driver.NAME)
    site = hanging_driver.install(host.folder)
    absent = host.folder / hanging_driver.ABSENT
    absent.touch()
    with host.service.running(PYTHONPATH=f"{CHECKOUT}:{site}") as service:
        assert (
            service.wait_for("READY", "1").says["STATUS"] == "degraded: the backend does not answer"
        )
        assert not http_placement.requests
        absent.unlink()
        service.wait_for("STATUS", "ready: 1 changed")
        ended_well(service)


@pytest.mark.long
def test_what_a_driver_tells_of_a_node_is_seen_within_seconds_by_one_audit_of_that_node(
    http_placement, tmp_path
):
    host = Host(tmp_path / "agent", http_placement.url)
    host.set(
        "DEFAULT",
        compute_driver=telling_driver.NAME,
        update_resources_interval=-1,
        host="node-[a]*",
    )
    site = telling_driver.install(host.folder)
    with host.service.running(PYTHONPATH=f"{CHECKOUT}:{site}") as service:
        assert (
            f"hanging driver calls: {telling_driver.HANGING}"
            in service.wait_for("READY", "1").says["STATUS"]
        )
        assert vcpus(http_placement) == 8
        http_placement.clear()
        host.has(12)
        (host.folder / telling_driver.CHANGED).touch()
        until(lambda: vcpus(http_placement) == 12, lambda: service)
        time.sleep(1.5)
        reads = [
            one
            for one in http_placement.requests
            if one.target == f"/resource_providers?in_tree={ROOT}"
        ]
        assert len(reads) < 10, (
            "a thousand changes of one moment are one audit, or a few where the machine is slow"
        )
        assert service.stop()[0] == 0


def test_sighup_takes_a_good_configuration_and_reads_everything_again(host, http_placement):
    with host.service.running() as service:
        service.wait_for("STATUS", "ready: 1 in-sync")
        other_file = host.folder / "other.yaml"
        other_file.write_text(HOST.format(root=ROOT, vcpus=24))
        host.set("fake", host_file=other_file)
        host.set("DEFAULT", debug=True)
        http_placement.clear()
        asked = service.reload()
        reloading = service.wait_for("RELOADING", "1", since=asked)
        assert asked <= int(reloading.says["MONOTONIC_USEC"]) / 1_000_000 <= reloading.at
        ready = service.wait_for("READY", "1", since=asked)
        assert reloading.at <= ready.at
        service.wait_for("STATUS", "ready: 1 changed", since=ready.at)
        assert vcpus(http_placement) == 24
        read = {
            one.path.rpartition("/")[2] for one in http_placement.requests if one.method == "GET"
        }
        assert read >= {"inventories", "traits", "aggregates"}, (
            "what generations cannot show was read too"
        )
        until(lambda: " DEBUG agent.service.background " in service.log)
        ended_well(service)


@pytest.mark.long
def test_sighup_refuses_a_bad_configuration_whole_and_goes_on_with_the_old_one(
    host, http_placement
):
    with host.service.running() as service:
        service.wait_for("STATUS", "ready: 1 in-sync")
        host.set("compute", cpu_shared_set="0-x", workers="many")
        host.set("fake", host_file=host.folder / "nowhere.yaml")
        asked = service.reload()
        assert (
            "the new configuration is refused"
            in service.wait_for("READY", "1", since=asked).says["STATUS"]
        )
        pattern = "ERROR agent.service.background .*the old one stays: .*workers"
        until(lambda: re.search(pattern, service.log), lambda: service)
        host.set("compute", workers=2)
        asked = service.reload()
        service.wait_for("READY", "1", since=asked)
        host.set("store", path=host.folder / "elsewhere")
        asked = service.reload()
        service.wait_for("READY", "1", since=asked)
        for option in ("cpu_shared_set", "nowhere.yaml", "\\[store\\] path"):
            pattern = f"ERROR agent.service.background .*refused, the old one stays: .*{option}"
            until(lambda wanted=pattern: re.search(wanted, service.log), lambda: service)
        http_placement.clear()
        host.has(10)
        until(lambda: vcpus(http_placement) == 10, lambda: service)
        until(
            lambda: re.match("ready: .*; the new configuration is refused: ", service.status),
            lambda: service,
        )
        host.config["store"] = {}
        host.set("compute", cpu_shared_set="0")
        host.set("fake", host_file=host.file)
        asked = service.reload()
        service.wait_for("STATUS", "the configuration was reloaded", since=asked)
        until(lambda: "refused" not in service.status, lambda: service)
        ended_well(service)


@pytest.mark.long
def test_a_file_that_hangs_refuses_a_reload_and_passes_go_on(host, http_placement):
    """A named pipe without a writer stands for a file on a dead network file system."""
    file, kept = host.command.config_file, host.folder / "kept"
    with host.service.running() as service:
        service.wait_for("STATUS", "ready: 1 in-sync")
        file.rename(kept)
        os.mkfifo(file)
        asked = service.reload()
        refused = service.wait_for("STATUS", "the new configuration is refused", since=asked)
        assert "reading the configuration takes longer than" in refused.says["STATUS"]
        host.has(12)
        until(lambda: vcpus(http_placement) == 12, lambda: service)
        # The remedy: the file can be read again.
        kept.rename(file)
        asked = service.reload()
        service.wait_for("STATUS", "the configuration was reloaded", since=asked)
        # A stop does not wait for a reload that hangs.
        file.unlink()
        os.mkfifo(file)
        service.wait_for("RELOADING", "1", since=service.reload())
        ended_well(service)


def test_a_killed_daemon_goes_on_where_it_was(host, http_placement):
    with host.service.running() as service:
        service.wait_for("READY", "1")
        host.has(20)
        service.kill()
    before = http_placement.dump()
    http_placement.clear()
    service = Service(host.command)
    with service.running():
        service.wait_for("READY", "1")
        until(lambda: vcpus(http_placement) == 20, lambda: service)
        assert http_placement.dump()["providers"].keys() == before["providers"].keys()
        ended_well(service)


@pytest.mark.long
def test_nobody_else_uses_the_store_while_it_runs(host):
    with host.service.running() as service:
        service.wait_for("READY", "1")
        for arguments in ((), ("--once",)):
            refused = AgentHere(host.folder, host.config).run(*arguments)
            assert refused.code == 1
            assert (
                f"in use by another run of the agent, pid {service.process.pid}" in refused.stderr
            )
        ended_well(service)
    assert AgentHere(host.folder, host.config).run("--once").code == 0


# --- starts that are refused: exit 1, the reason on stderr ----------------------------------------


@pytest.fixture
def refused(host, monkeypatch):
    """Run the daemon in this process, for it ends by itself; what it said on stderr."""

    def run() -> str:
        done = AgentHere(host.folder, host.config).run()
        assert (done.code, done.stdout) == (1, "")
        return done.stderr

    return run


def test_without_credentials_it_does_not_start(host, refused):
    host.config["placement"] = {}
    assert "no credentials in section [placement]" in refused()
    assert not (host.folder / "store").exists(), "nothing was touched"


def test_everything_wrong_with_its_configuration_is_told_at_once(host, refused):
    host.config["placement"] = {}
    host.config["DEFAULT"]["compute_driver"] = "none-such"
    host.config["compute"] = {"cpu_shared_set": "0-x"}
    told = refused()
    assert all(one in told for one in ("[placement]", "none-such", "cpu_shared_set"))


def test_what_ends_a_start_is_told_in_the_log_too_and_once_where_stderr_is_the_log(host, refused):
    host.set("store", connection="postgresql://agent@127.0.0.1:1/agent")
    told = refused()
    (line,) = [
        one for one in (host.folder / "agent.log").read_text().splitlines() if "cannot start" in one
    ]
    assert " ERROR " in line
    assert "the agent cannot start: [store] connection: the store" in line
    assert "check that the database server runs" in line
    assert told.count("check that the database server runs") == 1
    host.config["DEFAULT"].pop("log_file")
    assert refused().count("check that the database server runs") == 1


@pytest.mark.long
def test_a_node_whose_passes_do_not_end_is_not_ready_until_one_has_ended(
    http_placement: HttpPlacement, host: Host
) -> None:
    host.set("compute", facts_deadline=1)
    with host.service.running() as service:
        service.wait_for("READY", "1")
        client = ApiClient(host.command.socket)
        until(lambda: client.readiness() == "ready: 1 in-sync")
        http_placement.suspend()
        until(lambda: "its last pass ended" in problem_of(client))
        http_placement.resume()
        until(lambda: not problem_of(client))
        ended_well(service)


def problem_of(client: ApiClient) -> str:
    """Why the agent is not ready; empty if it is."""
    try:
        client.readiness()
    except AgentError as error:
        return error.message
    return ""
