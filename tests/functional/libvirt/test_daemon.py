"""The daemon on a real libvirtd: its tree in the real Placement follows what happens to guests, and
outlives what happens to libvirtd.
"""

import subprocess
import time

import pytest

from tests.support.libvirt_host import KNOWN_MEMORY, SOON, LibvirtDaemon, guest_uuid
from tests.support.service_manager import STOP, until
from tests.support.shell import command_of
from tests.support.system import AgentHere

pytestmark = pytest.mark.long


@pytest.fixture
def host(http_placement, libvirtd, tmp_path):
    def made(interval):
        daemon = LibvirtDaemon(tmp_path / "agent", libvirtd, http_placement, interval)
        daemon.config["DEFAULT"]["reserved_host_memory_mb"] = 0
        daemon.config["libvirt"].update(KNOWN_MEMORY)
        daemon.command.configure(daemon.config)
        return daemon

    return made


def everything(placement):
    """What Placement has, but for what grows with each claim."""
    return placement.dump()["providers"]


def test_guests_that_come_and_go_are_seen_within_seconds_without_a_periodic_audit(
    host, operator, http_placement
):
    daemon = host(-1)
    with daemon.service.running():
        until(daemon.ready, lambda: daemon.service)
        root = http_placement.dump()["providers"][daemon.node["uuid"]]
        assert root["name"] == operator.connection.getHostname()
        assert root["inventories"].keys() >= {"VCPU", "MEMORY_MB", "DISK_GB"}
        assert {"COMPUTE_NODE", "HW_ARCH_X86_64", "COMPUTE_TRUSTED_CERTS"} <= set(root["traits"])
        assert daemon.drift() == set()
        guest = operator.start("stranger", paused=True)
        until(
            lambda: ("unknown-domain", guest_uuid("stranger")) in daemon.drift(),
            lambda: daemon.service,
            SOON,
        )
        guest.destroy()
        guest.undefine()
        until(lambda: daemon.drift() == set(), lambda: daemon.service, SOON)
        code, seconds = daemon.service.stop()
        assert (code, seconds < STOP) == (0, True)
    assert "Traceback" not in daemon.service.log


def test_a_guest_of_a_deleted_instance_goes_by_the_command_that_the_drift_names(
    host, libvirtd, operator
):
    uuid = guest_uuid("left")
    operator.start("left", paused=True, nova=True)
    daemon = host(-1)
    with daemon.service.running():
        until(daemon.ready, lambda: daemon.service)
        assert daemon.command.run("guests", "import").code == 0
        daemon.client.update_instance(
            uuid, daemon.client.instance(uuid)["version"], {"deleted": True}
        )
        # What the hypervisor shows is believed once it is newer than the record.
        until(
            lambda: daemon.client.request_audit() and told(daemon, "is deleted"),
            daemon.drift,
            SOON,
        )
        remedy = command_of(told(daemon, "is deleted"), "virsh")
        assert remedy == f"virsh destroy {uuid} && virsh undefine --nvram {uuid}"
        command = remedy.replace("virsh", f"virsh -q -c {libvirtd.uri}")
        subprocess.run(["bash", "-c", command], check=True)
        until(lambda: daemon.drift() == set(), daemon.drift, SOON)


def told(daemon, what):
    """The remedy of the drift that says so; empty if none does."""
    drift = daemon.client.node(daemon.node["uuid"])["drift"]
    return next((one["remedy"] for one in drift if what in one["detail"]), "")


def test_a_libvirtd_that_hangs_leaves_the_process_at_work_and_placement_as_it_is(
    host, libvirtd, operator, http_placement
):
    operator.start("one", paused=True)
    daemon = host(2)
    with daemon.service.running():
        until(daemon.ready, lambda: daemon.service)
        before = everything(http_placement)
        http_placement.clear()
        libvirtd.freeze()
        assert daemon.claim("promised")["state"] == "held"
        until(lambda: not daemon.ready(), lambda: daemon.service)
        daemon.client.health()
        assert daemon.node["state"] == "degraded"
        assert daemon.claim("promised too")["state"] == "held"
        until(lambda: "hanging driver calls" in daemon.service.status, lambda: daemon.service)
        daemon.client.health()
        assert everything(http_placement) == before
        assert [str(one) for one in http_placement.requests if one.method != "GET"] == []
        libvirtd.thaw()
        until(daemon.ready, lambda: daemon.service, 2 + SOON)
        until(lambda: "hanging" not in daemon.service.status, lambda: daemon.service, SOON)
        assert everything(http_placement) == before
        libvirtd.freeze()
        time.sleep(3)
        code, seconds = daemon.service.stop()
        assert (code, seconds < STOP) == (0, True), daemon.service
    assert "Traceback" not in daemon.service.log


def test_it_starts_before_libvirtd_is_up_and_writes_nothing_until_it_is(
    host, libvirtd, http_placement
):
    libvirtd.stop()
    daemon = host(60)
    with daemon.service.running() as service:
        assert "cannot connect to qemu+unix" in service.wait_for("READY", "1").says["STATUS"]
        assert everything(http_placement) == {}
        libvirtd.start()
        until(daemon.ready, lambda: service)
        assert len(everything(http_placement)) >= 1
        assert service.stop()[0] == 0


def test_a_daemon_whose_driver_nobody_chose_uses_libvirt_if_that_answers_and_else_does_not_start(
    host, libvirtd, http_placement
):
    daemon = host(60)
    del daemon.config["DEFAULT"]["compute_driver"]
    daemon.command.configure(daemon.config)
    with daemon.service.running() as service:
        until(daemon.ready, lambda: service)
        assert daemon.node["driver"] == "libvirt"
        assert service.stop()[0] == 0
    libvirtd.stop()
    refused = AgentHere(daemon.command.folder, daemon.config).run()
    assert refused.code == 1
    assert (
        "[DEFAULT] compute_driver is not set, and libvirt cannot be used: cannot connect to "
        "qemu+unix"
    ) in refused.stderr


def test_guests_that_ran_before_the_agent_came_are_imported_and_then_missed_when_they_are_gone(
    host, operator, http_placement
):
    daemon = host(-1)
    before = operator.start("before", memory=32, vcpus=2, nova=True)
    here = AgentHere(daemon.command.folder, daemon.config)
    dry = here.run("guests", "import", "--dry-run", "--format", "json")
    assert (dry.code, list(daemon.command.store.glob("*.sqlite*"))) == (0, []), dry
    assert here.run("guests", "import").code == 0
    with daemon.service.running() as service:
        until(daemon.ready, lambda: service)
        assert ("unknown-domain", guest_uuid("before")) not in daemon.drift()
        assert daemon.node["usage"]["instances"] == 1
        before.destroy()
        before.undefine()
        until(
            lambda: ("missing-domain", guest_uuid("before")) in daemon.drift(),
            lambda: service,
            SOON,
        )
        assert service.stop()[0] == 0
    assert "Traceback" not in service.log


def test_a_libvirtd_that_has_no_name_for_the_host_yet_is_asked_again_in_the_next_pass(
    host, libvirtd, operator, http_placement
):
    known, daemon = operator.connection.getHostname(), host(1)
    daemon.config["DEFAULT"]["host"] = "compute1"
    daemon.command.configure(daemon.config)
    libvirtd.call("localhost")
    try:
        with daemon.service.running() as service:
            told = until(lambda: "set [DEFAULT] host = localhost" in service.log, lambda: service)
            assert told
            assert everything(http_placement) == {}
            libvirtd.call("compute1")
            until(daemon.ready, lambda: service)
            assert everything(http_placement)[daemon.node["uuid"]]["name"] == "compute1"
            assert service.stop()[0] == 0
    finally:
        libvirtd.call(known)
