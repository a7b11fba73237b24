"""libvirtd killed and started again under twenty audits a second: nothing is lost in Placement, and
nothing leaks in the process.
"""

import re
import threading
from collections import Counter
from pathlib import Path

import pytest

from agent.tree.policy import Policy
from drivers.libvirt import collector, connection
from drivers.libvirt.binding import binding
from tests.support.agent import AgentUnderTest
from tests.support.libvirt_host import KNOWN_MEMORY, node_of, started
from tests.support.service_manager import until

pytestmark = pytest.mark.long

RATE = 20
KILLS = 3
GENEROUS = 240
"""Seconds for what depends on libvirtd, which is asked again up to a minute after it failed to answer for long."""


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def threads():
    return sorted(one.name for one in threading.enumerate())


def settle(agent):
    """Audit until libvirtd has told everything once and Placement has it: on a machine that is very
    busy an answer may come too late for the first audit.
    """

    def whole():
        report = agent.cycle(start=True)
        return report.state == "in-sync" and not report.incomplete

    until(whole, seconds=GENEROUS)


def test_a_libvirtd_that_restarts_under_twenty_audits_a_second_loses_nothing_and_nothing_leaks(
    libvirtd, operator, placement, tmp_path
):
    operator.start("one", paused=True)
    with started(libvirtd.uri, **KNOWN_MEMORY) as driver:
        # Once before counting, because the thread of libvirt's events and Placement's own things
        # stay for good.
        agent = AgentUnderTest(placement, tmp_path / "state", driver)
        settle(agent)
    before = placement.dump()["providers"]
    until(
        lambda: not any(name.startswith("driver") or "close" in name for name in threads()),
        threads,
        GENEROUS,
    )
    idle = Counter(threads()), descriptors()
    with started(libvirtd.uri, **KNOWN_MEMORY) as driver:
        agent.driver = driver
        agent.stop()
        settle(agent)
        placement.clear()
        over = threading.Event()

        states, rounds, outcomes = [], [], []

        def disturb():
            try:
                for _ in range(KILLS):
                    libvirtd.kill()
                    since = len(states)
                    # However long an audit takes, one has met the outage.
                    until(
                        lambda since=since: "degraded" in states[since:], lambda: states, GENEROUS
                    )
                    libvirtd.start()
                    since = len(states)
                    until(lambda since=since: "in-sync" in states[since:], lambda: states, GENEROUS)
                    rounds.append(states[since:])
            finally:
                libvirtd.recover()
                over.set()

        disturber = threading.Thread(target=disturb)
        disturber.start()
        while not over.wait(1 / RATE):
            report = agent.cycle()
            states.append(report.state)
            outcomes += report.outcomes
        disturber.join()
        assert len(rounds) == KILLS
        assert set(states) == {"in-sync", "degraded"}, outcomes
        until(lambda: agent.cycle().state == "in-sync", seconds=GENEROUS)
        assert [str(one) for one in placement.requests if one.method != "GET"] == []
        assert placement.dump()["providers"] == before
    agent.stop()
    until(lambda: not Counter(threads()) - idle[0], lambda: (threads(), idle), GENEROUS)
    until(lambda: descriptors() <= idle[1], lambda: (descriptors(), idle), GENEROUS)


def test_a_device_that_goes_between_the_listing_and_the_reading_is_no_fault_and_another_error_is(
    libvirtd, operator
):
    libvirt = binding()

    class Gone:
        """As libvirt's object of a device, whose daemon answers with this error."""

        def __init__(self, number):
            self.number = number

        def name(self):
            return "pci_0000_00_1f_7"

        def parent(self):
            return "computer"

        def XMLDesc(self, _flags):
            error = libvirt.libvirtError("")
            error.err = (
                self.number,
                libvirt.VIR_FROM_NODEDEV,
                "no such node device",
                2,
                "",
                "",
                "",
                0,
                0,
            )
            raise error

    class Handle:
        def __init__(self, number):
            self.number = number

        def listAllDevices(self, flags):
            return [*operator.connection.listAllDevices(flags), Gone(self.number)]

    with started(libvirtd.uri) as driver:
        present = len(driver.facts(node_of(driver)).pci)
    devices, faults = collector.list_devices(Handle(libvirt.VIR_ERR_NO_NODE_DEVICE))
    assert (len([one for one in devices if one.name.startswith("pci_")]), faults) == (present, ())
    devices, faults = collector.list_devices(Handle(libvirt.VIR_ERR_OPERATION_FAILED))
    assert (len([one for one in devices if one.name.startswith("pci_")]), faults) == (
        present,
        ("device pci_0000_00_1f_7: no such node device",),
    )


@pytest.mark.parametrize("what", ["list_devices", "list_domains"])
def test_a_listing_that_fails_is_incomplete_and_never_empty(
    libvirtd, operator, monkeypatch, placement, tmp_path, what
):
    libvirt = binding()

    def fails(_handle):
        error = libvirt.libvirtError("")
        error.err = (
            libvirt.VIR_ERR_OPERATION_FAILED,
            libvirt.VIR_FROM_NODEDEV,
            "out of order",
            2,
            "",
            "",
            "",
            0,
            0,
        )
        raise error

    with started(libvirtd.uri) as driver:
        agent = AgentUnderTest(placement, tmp_path / "state", driver)
        assert agent.cycle(start=True).state == "changed"
        before = placement.dump()["providers"]
        monkeypatch.setattr(collector, what, fails)
        assert agent.cycle().state == "degraded"
        assert set(driver.facts(node_of(driver)).incomplete) == (
            {"pci", "mdev"} if what == "list_devices" else {"domains"}
        )
        assert placement.dump()["providers"] == before
        agent.stop()


def test_a_feature_that_is_gone_after_a_reconnect_loses_its_trait_and_nobody_elses_trait_goes(
    libvirtd, operator, monkeypatch, placement, tmp_path
):
    genuine, avx2, asked = collector._ask_abilities, [True], []

    def abilities(*given):
        asked.append(given)
        (cpu,), domains = genuine(*given)
        features = {True: "<feature policy='require' name='avx2'/>", False: ""}[avx2[0]]
        cpu = re.sub("<feature [^>]*name='avx2'/>", "", cpu)
        return (cpu.replace("</cpu>", f"{features}</cpu>"),), domains

    def traits():
        (root,) = placement.dump()["providers"].values()
        return set(root["traits"]) & {"HW_CPU_X86_AVX2", "CUSTOM_X"}

    monkeypatch.setattr(collector, "_ask_abilities", abilities)
    # On a machine that is very busy a libvirtd that is only slow is not to be connected to anew,
    # because then all is asked again.
    monkeypatch.setattr(connection, "KEEPALIVE_INTERVAL", GENEROUS)
    for module in (connection, collector):
        monkeypatch.setattr(module, "CHEAP", float(GENEROUS))
    for name in ("CAPABILITIES", "LISTING"):
        monkeypatch.setattr(collector, name, float(GENEROUS))
    with started(libvirtd.uri) as driver:
        agent = AgentUnderTest(placement, tmp_path / "state", driver, policy=Policy(layout="flat"))
        settle(agent)
        (root,) = placement.dump()["providers"]
        placement.other.set_traits(
            root, [*placement.dump()["providers"][root]["traits"], "CUSTOM_X"]
        )
        avx2[0] = False
        agent.cycle()
        assert traits() == {"HW_CPU_X86_AVX2", "CUSTOM_X"}, (
            f"what changes only with libvirt or the CPU is not asked again: {asked}"
        )
        libvirtd.stop()
        libvirtd.start()
        until(
            lambda: agent.cycle().state in ("changed", "in-sync") and traits() == {"CUSTOM_X"},
            traits,
            GENEROUS,
        )
        agent.stop()
