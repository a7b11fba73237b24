"""The driver ``libvirt`` on a real libvirtd with QEMU."""

import math
import os
import signal
import time
from typing import get_args

import pytest

from agent.errors import ConfigError, NotReady
from agent.model.facts import Section
from drivers import libvirt as driver_module
from drivers.libvirt import LibvirtDriver
from tests.support import host_driver
from tests.support.libvirt_host import IDENTITY, guest_uuid, libvirt_conf, node_of, started
from tests.support.service_manager import until

NOWHERE = "qemu+unix:///system?socket=/nonexistent/libvirt-sock"


def states(driver):
    facts = driver.facts(node_of(driver))
    assert facts.incomplete == {}
    return {domain.name: domain.state for domain in facts.domains}


def test_the_facts_of_this_machine_are_those_that_the_host_driver_reads_from_sys(libvirtd):
    with started(libvirtd.uri) as driver:
        facts = driver.facts(node_of(driver))
    ours = host_driver.started("/sys").facts(host_driver.CONTEXT.name)
    assert facts.incomplete == {}
    assert (facts.hypervisor_type, facts.hypervisor_version > 6_002_000) == ("QEMU", True)
    assert facts.cpu.online == ours.cpu.online
    # Not that of the kernel's total: on a virtual machine with memory that comes and goes the cells
    # have less, and it moves while we look.
    assert facts.memory_mib == pytest.approx(ours.numa.memory_mib, rel=0.2)
    assert [(cell.id, cell.cpus, cell.siblings) for cell in facts.numa.cells] == [
        (cell.id, cell.cpus, cell.siblings) for cell in ours.numa.cells
    ]
    told = [
        (one.address, one.vendor_id, one.product_id, one.numa_node, one.type) for one in facts.pci
    ]
    assert told == [
        (one.address, one.vendor_id, one.product_id, one.numa_node, one.type) for one in ours.pci
    ]
    assert facts.disk_gib == ours.disk_gib
    assert (facts.domains, facts.units) == ((), ())
    assert facts.traits["HW_ARCH_X86_64"] and facts.traits["COMPUTE_NET_VIF_MODEL_VIRTIO"]


def test_guests_are_told_of_as_they_are_defined_started_paused_and_killed(libvirtd, operator):
    told = []
    with started(libvirtd.uri, told.append) as driver:

        def hears():
            until(lambda: told, lambda: "no event came")
            assert set(told) == {node_of(driver)}
            time.sleep(0.1)
            told.clear()

        guest = operator.define("one", memory=24, vcpus=2, nova=True)
        hears()
        assert states(driver) == {"one": "stopped"}
        guest.create()
        hears()
        assert states(driver) == {"one": "running"}
        guest.suspend()
        hears()
        assert states(driver) == {"one": "paused"}
        (domain,) = driver.facts(node_of(driver)).domains
        assert (domain.uuid, domain.memory_mib, domain.vcpus) == (guest_uuid("one"), 24, 2)
        assert (
            domain.origin.flavor.name,
            domain.origin.flavor.vcpus,
            domain.origin.volume_backed,
        ) == ("small", 2, False)
        guest.resume()
        hears()
        os.kill(libvirtd.guests()["one"], signal.SIGKILL)
        until(lambda: states(driver) == {"one": "stopped"})
        guest.undefine()
        hears()
        assert states(driver) == {}


@pytest.mark.long
def test_a_guest_that_reboots_is_told_once_and_one_that_stays_away_later(
    libvirtd, operator, monkeypatch
):
    assert driver_module.REBOOT == 15
    monkeypatch.setattr(driver_module, "REBOOT", 600)
    guest = operator.start("one", paused=True)
    told = []
    with started(libvirtd.uri, lambda _node: told.append(time.monotonic())):
        guest.destroy()
        time.sleep(0.3)
        assert told == [], "it may be about to start again"
        guest.createWithFlags(2)
        until(lambda: told, lambda: "that it is back is told when the time for that is over")
    monkeypatch.setattr(driver_module, "REBOOT", 1.5)
    told.clear()
    with started(libvirtd.uri, lambda _node: told.append(time.monotonic())):
        stopped = time.monotonic()
        guest.destroy()
        until(lambda: told)
        assert told[0] - stopped >= 1.4
        time.sleep(2)
        assert len(told) == 1


@pytest.mark.long
def test_a_killed_libvirtd_is_noticed_at_once_and_everything_known_stays_as_it_was(
    libvirtd, operator
):
    operator.start("one", paused=True)
    told = []
    with started(libvirtd.uri, told.append) as driver:
        node = node_of(driver)
        before = driver.facts(node)
        libvirtd.kill()
        until(lambda: told == [node], lambda: "the loss was not told")
        lost = driver.facts(node)
        assert set(lost.incomplete) == set(get_args(Section))
        assert "cannot connect" in lost.incomplete["pci"]
        assert driver.nodes() == {IDENTITY: node}
        connection = driver._started.connection
        pause, connection._not_before = connection._not_before, math.inf
        libvirtd.start()
        assert "cannot connect" in driver.facts(node).incomplete["cpu"], (
            "it does not try again at every use"
        )
        connection._not_before = pause
        until(lambda: not driver.facts(node).incomplete, lambda: "it did not connect again")
        assert driver.facts(node).domains == before.domains, "running guests survive"
        told.clear()
        operator.clear()
        until(lambda: told, lambda: "the new connection has no events")


@pytest.mark.long
def test_while_libvirtd_is_down_it_is_asked_less_and_less_often(libvirtd):
    driver = LibvirtDriver(libvirt_conf(NOWHERE))
    with pytest.raises(NotReady, match="cannot connect"):
        driver.start(host_driver.CONTEXT)
    with started(libvirtd.uri) as running:
        node = node_of(running)
        libvirtd.kill()
        waits = []

        def asked_three_times():
            running.facts(node)
            moment = running._started.connection._not_before
            if moment not in waits:
                waits.append(moment)
            return len(waits) == 3

        until(asked_three_times)
        first, second, third = waits
        assert second - first >= 2
        assert third - second >= 4
        assert "cannot connect" in running.facts(node).incomplete["cpu"]


def test_a_libvirt_that_is_too_old_is_refused_for_good(libvirtd, monkeypatch):
    monkeypatch.setattr(driver_module, "OLDEST_LIBVIRT", (99, 0, 0))
    driver = LibvirtDriver(libvirt_conf(libvirtd.uri))
    with pytest.raises(
        ConfigError, match=r"libvirt \d+\.\d+\.\d+ is too old .*install libvirt 99\.0\.0 or newer"
    ):
        driver.start(host_driver.CONTEXT)
