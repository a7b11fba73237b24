"""Sums, differences and unions of holdings, as properties."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.placement.allocations.change import (
    Doubling,
    add_holdings,
    join_move,
    subtract_holdings,
    without_providers,
)
from agent.placement.allocations.checks import NegativeResult, NotAllocated

PROVIDERS = [f"5f9c2a34-7d1e-4a8b-9c46-00000000000{n}" for n in range(4)]
CONSUMER = "c0000000-0000-4000-8000-000000000001"
AMOUNTS = st.dictionaries(
    st.sampled_from(["VCPU", "MEMORY_MB", "DISK_GB"]), st.integers(1, 100), min_size=1
)
HOLDINGS = st.dictionaries(st.sampled_from(PROVIDERS), AMOUNTS)


def amount(holdings, provider, name):
    return holdings.get(provider, {}).get(name, 0)


def each(*holdings):
    """Every provider and class that any of them names."""
    return {
        (provider, name)
        for one in holdings
        for provider, resources in one.items()
        for name in resources
    }


@given(HOLDINGS, HOLDINGS)
def test_a_sum_has_of_everything_what_both_have(left, right):
    both = add_holdings(left, right)
    assert each(both) == each(left, right)
    assert all(
        amount(both, *what) == amount(left, *what) + amount(right, *what) for what in each(both)
    )
    assert both == join_move(left, right, Doubling.SUM) == add_holdings(right, left)


@given(HOLDINGS, HOLDINGS)
def test_a_maximum_has_of_everything_what_the_greater_has(left, right):
    both = join_move(left, right, Doubling.MAXIMUM)
    assert each(both) == each(left, right)
    assert all(
        amount(both, *what) == max(amount(left, *what), amount(right, *what)) for what in each(both)
    )
    assert both == join_move(both, right, Doubling.MAXIMUM), "the same move again changes nothing"


@given(HOLDINGS, HOLDINGS)
def test_what_was_added_can_be_taken_and_leaves_no_empty_thing(held, more):
    assert subtract_holdings(add_holdings(held, more), more, CONSUMER) == held
    assert subtract_holdings(held, held, CONSUMER) == {}
    assert subtract_holdings(held, {}, CONSUMER) == held


@given(HOLDINGS, HOLDINGS)
def test_a_difference_is_right_or_refused(held, less):
    try:
        left = subtract_holdings(held, less, CONSUMER)
    except NotAllocated:
        assert each(less) - each(held)
    except NegativeResult:
        assert any(amount(less, *what) > amount(held, *what) for what in each(less))
    else:
        assert add_holdings(left, less) == held
        assert all(left.values())
        assert all(one > 0 for resources in left.values() for one in resources.values())


@given(HOLDINGS, st.sets(st.sampled_from(PROVIDERS)))
def test_whoever_lets_go_of_providers_keeps_the_others(held, providers):
    kept = without_providers(held, providers)
    assert kept.keys() == held.keys() - providers
    assert all(kept[provider] == held[provider] for provider in kept)


@given(HOLDINGS, HOLDINGS)
def test_nothing_changes_what_it_is_given_or_shares_it(left, right):
    before = copy.deepcopy((left, right))
    results = [
        add_holdings(left, right),
        join_move(left, right, Doubling.MAXIMUM),
        without_providers(left, set()),
        subtract_holdings(left, {}, CONSUMER),
    ]
    for result in results:
        for resources in result.values():
            resources["VCPU"] = -1
    assert (left, right) == before


def test_what_nobody_moves_is_not_joined():
    with pytest.raises(ValueError, match="may not be joined"):
        join_move({}, {}, Doubling.REFUSE)


@pytest.mark.parametrize(
    ("less", "error"),
    [
        ({PROVIDERS[1]: {"VCPU": 1}}, NotAllocated),
        ({PROVIDERS[0]: {"DISK_GB": 1}}, NotAllocated),
        ({PROVIDERS[0]: {"VCPU": 3}}, NegativeResult),
        # All is looked at before anything is taken.
        ({PROVIDERS[0]: {"VCPU": 1}, PROVIDERS[1]: {"VCPU": 1}}, NotAllocated),
    ],
)
def test_what_is_not_there_is_named(less, error):
    held = {PROVIDERS[0]: {"VCPU": 2}}
    with pytest.raises(error) as refused:
        subtract_holdings(held, less, CONSUMER)
    assert refused.value.data["consumer"] == CONSUMER
    assert refused.value.data["provider"] in refused.value.message
    assert held == {PROVIDERS[0]: {"VCPU": 2}}
