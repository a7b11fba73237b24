"""Places run out, and those who wait for one do so only as long as there is hope."""

import threading
import time
from contextlib import ExitStack

import pytest

from agent import deadline
from agent.api.problem import Busy
from agent.api.wait_limit import WaitLimit
from tests.support.service_manager import until


def test_there_are_as_many_places_as_it_was_made_with():
    room = WaitLimit(2, "others")
    with room.place(), room.place():
        with pytest.raises(Busy, match="others"), room.place():
            pass
        with room.place_if_free() as found:
            assert not found
    with room.place_if_free() as found:
        assert found


def test_a_place_is_waited_for_while_others_leave():
    room, got = WaitLimit(1, "the store", 60), []

    def wait():
        with room.place():
            got.append(1)

    with room.place():
        threads = [threading.Thread(target=wait) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert not got
    for thread in threads:
        thread.join(60)
    assert len(got) == 5


def test_once_nobody_leaves_any_more_nobody_waits():
    room = WaitLimit(1, "the store", 0.2)
    with ExitStack() as stack:
        stack.enter_context(room.place())
        begun = time.monotonic()
        with pytest.raises(Busy), room.place():
            pass
        assert time.monotonic() - begun >= 0.2
        until(lambda: room._moved + 0.2 < time.monotonic())
        # Neither now, at once.
        with room.place_if_free() as found:
            assert not found


def test_a_place_is_not_waited_for_beyond_the_deadline():
    room = WaitLimit(1, "the store", 600)
    with room.place(), deadline.within(0.1), pytest.raises(Busy), room.place():
        pass
