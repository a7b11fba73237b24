"""Places run out, and those who wait for one do so only as long as there is hope."""

import threading

import pytest

from agent import deadline
from agent.api.problem import Busy
from agent.api.wait_limit import WaitLimit


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


def test_a_place_is_not_waited_for_beyond_the_deadline():
    room = WaitLimit(1, "the store", 600)
    with room.place(), deadline.within(0.1), pytest.raises(Busy), room.place():
        pass
