"""Things told later: once, not if something came first, and never while a lock is held."""

import threading
import time

from drivers.libvirt.binding import Debouncer
from tests.support.service_manager import until

LATER = 0.2


def test_what_is_cancelled_or_put_again_is_not_told_before():
    told = []
    delayed = Debouncer(LATER, lambda: told.append(time.monotonic()))
    delayed.put("cancelled")
    delayed.put("again")
    time.sleep(LATER / 2)
    delayed.cancel("cancelled")
    delayed.cancel("unknown")
    put = time.monotonic()
    delayed.put("again")
    until(lambda: told)
    time.sleep(2 * LATER)
    assert len(told) == 1
    assert told[0] - put >= LATER
    delayed.close()


def test_at_the_end_nothing_more_is_told_and_its_thread_ends():
    before, told = threading.active_count(), []
    delayed = Debouncer(LATER, lambda: told.append(1))
    delayed.put("one")
    delayed.close()
    delayed.put("two")
    assert threading.active_count() == before
    time.sleep(1.5 * LATER)
    assert told == []
