"""Signals are taken when they are asked for, and are lost never."""

import signal
import threading
import time

import pytest

from agent.service.systemd import RELOAD, STOP, WAKE, Signals


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
