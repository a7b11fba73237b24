"""Which names a server knows: asked for once, a standard trait that it lacks left out
for an hour.
"""

from agent.placement.server import (
    ASK_FOR_TRAIT_AGAIN,
    learn_traits,
)
from tests.unit.placement.nodes import KNOWLEDGE

AVX, FUTURE = "HW_CPU_X86_AVX", "HW_OF_THE_FUTURE"


class Server:
    """A client that knows some traits and remembers what it was asked."""

    def __init__(self, *known):
        self.known, self.asked = frozenset(known), []

    def known_traits(self, names):
        self.asked.append(sorted(names))
        return self.known & frozenset(names)


def test_what_was_asked_for_is_not_asked_again():
    server = Server(AVX)
    learned = learn_traits(server, KNOWLEDGE, [AVX, FUTURE], 1000.0)
    assert learn_traits(server, learned, [FUTURE, AVX], 1000.0 + ASK_FOR_TRAIT_AGAIN - 1) is learned
    assert learn_traits(server, learned, [], 99999.0) is learned
    assert server.asked == [[AVX, FUTURE]]


def test_a_clock_that_was_set_back_does_not_leave_a_trait_out_for_longer():
    learned = learn_traits(Server(), KNOWLEDGE, [FUTURE], 1_000_000.0)
    server = Server(FUTURE)
    assert FUTURE in learn_traits(server, learned, [FUTURE], 1000.0).traits
    assert server.asked == [[FUTURE]]


def test_a_name_that_only_begins_like_a_custom_one_cannot_be_created():
    assert set(learn_traits(Server(), KNOWLEDGE, ["CUSTOM_lower"], 0.0).unknown_traits) == {
        "CUSTOM_lower"
    }
