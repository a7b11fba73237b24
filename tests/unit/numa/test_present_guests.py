"""CPU sets against the guests that are there."""

from dataclasses import replace

import pytest

from agent.model.instance import GuestCell, PlacedCell
from agent.numa.host_policy import HostPolicy, not_offered
from tests.unit.numa.cells import NOTHING, cpus

SHARED = PlacedCell(GuestCell(cpus(0, 2), NOTHING, 1024), 0)
PINNED = PlacedCell(GuestCell(NOTHING, cpus(0, 2), 1024), 0, pins={0: 2, 1: 3})
MIXED = PlacedCell(GuestCell(cpus(0, 1), cpus(1, 1), 1024), 0, pins={1: 7})
GUESTS = [("floats", []), ("shares", [SHARED]), ("pinned", [PINNED]), ("mixed", [MIXED])]


def complaints(policy: HostPolicy, guests) -> list[str]:
    return [error.message for error in not_offered(policy, guests)]


def test_a_set_may_not_shrink_under_a_pinned_guest():
    assert complaints(HostPolicy(cpus(0, 2), cpus(4, 4)), GUESTS) == [
        "[compute] cpu_dedicated_set lacks CPUs 2-3, to which guest pinned is pinned"
    ]
    assert complaints(HostPolicy(cpus(0, 2), cpus(2, 6)), GUESTS) == []


def test_pinned_guests_may_be_on_the_cpus_of_the_old_pin_set_and_on_no_others():
    assert complaints(HostPolicy(cpus(0, 8), pin_set=True), GUESTS) == []
    assert complaints(HostPolicy(cpus(0, 3), pin_set=True), GUESTS[:3]) == [
        "[DEFAULT] vcpu_pin_set lacks CPUs 3, to which guest pinned is pinned"
    ]


def test_a_cpu_of_the_emulator_is_pinned_too():
    guest = [
        ("a", [replace(PINNED, pins={0: 4, 1: 5}, reserved=frozenset({3}))]),
        ("b", [replace(PINNED, pins={0: 6, 1: 7})]),
    ]
    assert complaints(HostPolicy(dedicated=cpus(4, 4)), guest) == [
        "[compute] cpu_dedicated_set lacks CPUs 3, to which guest a is pinned"
    ]


def test_shared_guests_need_a_shared_set_beside_a_dedicated_one():
    assert complaints(HostPolicy(dedicated=cpus(2, 6)), GUESTS) == [
        (
            "[compute] cpu_dedicated_set is set and cpu_shared_set is not, but there are guests "
            "with shared CPUs: floats, shares, mixed"
        )
    ]


def test_pinned_guests_need_a_dedicated_set_beside_a_shared_one():
    assert complaints(HostPolicy(cpus(0, 8)), GUESTS) == [
        (
            "[compute] cpu_shared_set is set and cpu_dedicated_set is not, but there are guests "
            "with dedicated CPUs: pinned, mixed"
        )
    ]


@pytest.mark.parametrize("policy", [HostPolicy(), HostPolicy(cpus(0, 2), cpus(2, 6))])
def test_without_sets_and_with_both_every_guest_may_be_there(policy):
    assert complaints(policy, GUESTS) == []


@pytest.mark.parametrize(
    ("policy", "guest"),
    [
        (HostPolicy(cpus(0, 8)), []),
        (HostPolicy(cpus(0, 8)), [SHARED]),
        (HostPolicy(dedicated=cpus(2, 6)), [PINNED]),
    ],
)
def test_one_set_is_enough_for_guests_of_its_kind(policy, guest):
    assert complaints(policy, [("a", guest)]) == []


def test_of_many_guests_a_few_are_named():
    (message,) = complaints(
        HostPolicy(dedicated=cpus(0, 8)), [(f"g{number}", []) for number in range(7)]
    )
    assert message.endswith("guests with shared CPUs: g0, g1, g2, g3, g4 and 2 more")


def test_both_halves_of_a_move_on_one_host_count():
    halves = [
        ("a", [replace(PINNED, pins={0: 4, 1: 5})]),
        ("a", [PINNED]),
        ("b", []),
        ("b", [SHARED]),
    ]
    assert complaints(HostPolicy(dedicated=cpus(4, 4)), halves) == [
        (
            "[compute] cpu_dedicated_set is set and cpu_shared_set is not, but there are guests "
            "with shared CPUs: b"
        ),
        "[compute] cpu_dedicated_set lacks CPUs 2-3, to which guest a is pinned",
    ]
