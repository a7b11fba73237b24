"""What systemd is told."""

import os
import signal
import socket
import threading
import time

import pytest

from agent.service.systemd import RELOAD, STOP, WAKE, Notifier, Signals, watchdog_interval


@pytest.fixture
def manager(tmp_path):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(str(tmp_path / "notify"))
    channel.settimeout(2)
    yield channel
    channel.close()


@pytest.fixture
def notifier(manager):
    return Notifier({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "500000"})


def received(manager):
    return manager.recv(4096).decode().split("\n")


def test_a_status_cannot_smuggle_in_an_assignment(manager, notifier):
    notifier.status("node\nREADY=1")
    assert received(manager) == ["STATUS=node\\nREADY=1"]


def test_an_abstract_socket_is_reached():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        name = f"compute-node-agent-test-{os.getpid()}"
        channel.bind(f"\0{name}")
        channel.settimeout(2)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert received(channel) == ["READY=1"]


def test_the_watchdog_gets_as_much_as_it_needs(manager, notifier):
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        notifier.watchdog()
    notifier.status("end")
    messages = [received(manager) for _ in range(4)]
    while messages[-1] == ["WATCHDOG=1"]:
        messages.append(received(manager))
    assert 3 <= messages.count(["WATCHDOG=1"]) <= 6


def test_a_manager_that_went_away_is_logged_once(tmp_path, caplog):
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    for _ in range(3):
        notifier.status("unheard")
    assert len([record for record in caplog.records if "NOTIFY_SOCKET" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_interval_is_only_for_the_process_it_is_meant_for(environ, seconds):
    assert watchdog_interval(environ) == seconds


# --- signals are taken when they are asked for, and are lost never ---


@pytest.fixture
def signals():
    with Signals() as signals:
        yield signals


def send(number):
    # to the thread of the tests, because pytest-xdist has one more in this process, and that one
    # does not leave signals to it
    signal.pthread_kill(threading.main_thread().ident, number)


def test_a_second_one_on_the_way_out_does_no_harm_and_all_is_as_before():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Signals():
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before | STOP | RELOAD | WAKE
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_wake_from_another_thread_ends_a_wait_and_means_nothing_else(signals):
    threading.Timer(0.1, signals.wake).start()
    begun = time.monotonic()
    signals.take(300)
    assert time.monotonic() - begun < 60
    assert not (signals.stop or signals.reload)


def test_a_wake_that_comes_too_late_does_no_harm():
    with Signals() as signals:
        pass
    signals.wake()
