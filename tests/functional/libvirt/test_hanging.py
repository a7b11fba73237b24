"""A libvirtd that hangs, and hangs on: how many calls wait for it, and what becomes of them when it
goes on.
"""

import threading
import time
from pathlib import Path

import pytest

from drivers import libvirt
from drivers.libvirt import collector, connection
from tests.support.libvirt_host import node_of, started
from tests.support.service_manager import until

BRIEF = 0.3


@pytest.fixture
def impatient(monkeypatch):
    """Deadlines and pauses of a fraction of a second."""
    for module in (collector, connection, libvirt):
        monkeypatch.setattr(module, "CHEAP", BRIEF)
    monkeypatch.setattr(connection, "LONGEST_PAUSE", BRIEF)


def test_at_most_four_calls_wait_for_a_libvirtd_that_hangs_and_none_when_it_goes_on(
    libvirtd, impatient
):
    told = []
    with started(libvirtd.uri, told.append) as running:
        node = node_of(running)
        assert not running.facts(node).incomplete
        descriptors, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
        libvirtd.freeze()
        begun = time.monotonic()
        reasons, most = [], 0
        while running.hanging < 4 and time.monotonic() - begun < 60:
            reasons.append(running.facts(node).incomplete["cpu"])
            most = max(most, running.hanging)
            time.sleep(BRIEF / 3)
        assert any("did not answer within" in one for one in reasons)
        until(lambda: "4 earlier calls hang" in running.facts(node).incomplete["cpu"])
        assert running.hanging == 4
        told.clear()
        libvirtd.thaw()
        until(lambda: node in told, lambda: "nobody said that it is back")
        until(lambda: not running.facts(node).incomplete, lambda: running.facts(node).incomplete)
        assert running.hanging == 0
        until(
            lambda: threading.active_count() <= threads,
            lambda: [one.name for one in threading.enumerate()],
        )
        until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= descriptors)


def test_stopping_does_not_wait_for_a_libvirtd_that_hangs(libvirtd, monkeypatch):
    for module in (collector, connection):
        monkeypatch.setattr(module, "CHEAP", 600)
    with started(libvirtd.uri) as running:
        libvirtd.freeze()
        asking_facts = threading.Thread(target=running.facts, args=[node_of(running)])
        asking_facts.start()
        until(lambda: running._started.connection._opening.locked())
        begun = time.monotonic()
        running.stop()
        assert time.monotonic() - begun < 30
        libvirtd.thaw()
        asking_facts.join(60)
        assert not asking_facts.is_alive()


def test_a_disk_that_hangs_keeps_nothing_else_from_being_told(libvirtd, impatient, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(collector, "CAPABILITIES", BRIEF)
    monkeypatch.setattr(collector, "read_disk_gib", lambda _settings: released.wait(30))
    with started(libvirtd.uri) as running:
        node = node_of(running)
        for _ in range(6):
            facts = running.facts(node)
            assert set(facts.incomplete) == {"disk"}
        assert "4 earlier calls hang" in facts.incomplete["disk"]
        assert running.hanging == 4
        released.set()
        until(lambda: running.hanging == 0)
