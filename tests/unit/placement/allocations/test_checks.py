"""Input before any request: normal forms, and everything that is wrong at once."""

import copy
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.placement.allocations import checks
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup, parse_query
from agent.placement.allocations.change import (
    Doubling,
    add_holdings,
    join_move,
    subtract_holdings,
    without_providers,
)
from agent.placement.allocations.checks import BadRequest, NegativeResult, NotAllocated

UUID = "5f9c2a34-7d1e-4a8b-9c46-00000000000a"


@pytest.mark.parametrize("spelling", [UUID, UUID.upper(), UUID.replace("-", ""), "{" + UUID + "}"])
def test_a_uuid_has_one_form(spelling):
    assert checks.consumer_uuid(spelling) == checks.provider_uuid(spelling) == UUID


@pytest.mark.parametrize("wrong", ["", "a", "../usages", UUID + "0", UUID + "\n?x", None, 7])
def test_what_is_no_uuid_is_quoted_on_one_line(wrong):
    with pytest.raises(BadRequest) as refused:
        checks.provider_uuid(wrong, "aggregate")
    assert refused.value.message.startswith("aggregate '")
    assert "\n" not in refused.value.message
    assert isinstance(refused.value, ValueError)


def test_everything_wrong_with_holdings_is_told_at_once():
    wrong = {
        "a": {"VCPU": 1},
        UUID: {"vcpu": 1, "VCPU": 0, "PCPU": True, "MEMORY_MB": "1", "DISK_GB": 2**31, "VGPU": 1.0},
        UUID.upper(): {},
    }
    with pytest.raises(BadRequest) as refused:
        checks.refuse(checks.holdings_problems(wrong))
    assert refused.value.message.count(";") == 7
    for told in (
        "provider 'a'",
        "'vcpu' is no resource class",
        "'0' of 'VCPU'",
        "'True' of 'PCPU'",
        "'1' of 'MEMORY_MB'",
        "'2147483648'",
        "'1.0'",
        "nothing is named",
    ):
        assert told in refused.value.message


@pytest.mark.parametrize(
    "wrong", [None, [], {UUID: None}, {UUID: []}, {UUID: {None: 1}}, {None: {"VCPU": 1}}]
)
def test_holdings_of_another_form_are_refused(wrong):
    assert list(checks.holdings_problems(wrong))


@given(st.text(max_size=300))
def test_whatever_is_quoted_is_short_and_on_one_line(text):
    shown = checks.quoted(text)
    assert len(shown) <= 66 * 10
    assert shown.isprintable() or not any(ord(one) < 32 for one in shown)


def test_one_provider_in_two_spellings_is_one():
    assert checks.normal_holdings({UUID: {"VCPU": 1}, UUID.upper(): {"VCPU": 2, "PCPU": 1}}) == {
        UUID: {"VCPU": 3, "PCPU": 1}
    }


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_that_no_provider_can_have(name):
    with pytest.raises(BadRequest, match=f"has {len(name)} characters"):
        checks.provider_name(name)


# --- a query for candidates ---


OTHER = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
CPUS = RequestGroup(resources={"VCPU": 2})


def group(suffix, **more):
    return RequestGroup(suffix, {"VCPU": 1}, **more)


def test_a_query_is_encoded_and_sorted():
    query = CandidateQuery(
        [
            RequestGroup(
                "",
                {"VCPU": 2, "MEMORY_MB": 512},
                frozenset("AB"),
                frozenset("C"),
                [frozenset({UUID.upper(), OTHER})],
                frozenset({OTHER}),
                UUID,
            ),
            group("_N"),
            group("_C"),
        ],
        "isolate",
        [frozenset({"_N", "_C"})],
        frozenset({"COMPUTE_NODE"}),
        frozenset({"COMPUTE_STATUS_DISABLED"}),
        7,
    )
    assert list(query.problems()) == []
    assert parse_qsl(query.encoded()) == [
        ("group_policy", "isolate"),
        ("in_tree", UUID),
        ("limit", "7"),
        ("member_of", f"!in:{OTHER}"),
        ("member_of", f"in:{UUID},{OTHER}"),
        ("required", "A,B,!C"),
        ("resources", "MEMORY_MB:512,VCPU:2"),
        ("resources_C", "VCPU:1"),
        ("resources_N", "VCPU:1"),
        ("root_required", "COMPUTE_NODE,!COMPUTE_STATUS_DISABLED"),
        ("same_subtree", "_C,_N"),
    ]
    assert not set("!:, ") & set(query.encoded())


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (CandidateQuery([]), "no resources are asked for"),
        (CandidateQuery([RequestGroup()]), "asks for no resources"),
        (
            CandidateQuery([group("a"), group("b")]),
            "two request groups with suffixes need a group_policy",
        ),
        (CandidateQuery([CPUS, CPUS]), "'' stands there twice"),
        (CandidateQuery([CPUS], "some"), "group_policy 'some' is not one of none, isolate"),
        (CandidateQuery([CPUS], same_subtree=[frozenset({"_X"})]), "same_subtree names '_X'"),
        (CandidateQuery([CPUS], limit=0), "the limit 0 is below 1"),
        (CandidateQuery([CPUS], root_required=frozenset({"a b"})), "'a b' is no trait"),
        (
            CandidateQuery([CPUS], root_required=frozenset({"A"}), root_forbidden=frozenset({"A"})),
            "both required and forbidden",
        ),
        (CandidateQuery([group("a&b")]), "'a&b' is no suffix"),
        (CandidateQuery([group("a" * 65)]), "is no suffix"),
        (CandidateQuery([RequestGroup(resources={"vcpu": 1})]), "'vcpu' is no resource class"),
        (CandidateQuery([group("", member_of=[frozenset({"x"})])]), "aggregate 'x' is no uuid"),
        (CandidateQuery([group("", not_member_of=frozenset({"x"}))]), "aggregate 'x' is no uuid"),
        (CandidateQuery([group("", in_tree="x")]), "provider 'x' is no uuid"),
        (
            CandidateQuery([group("a"), RequestGroup("b", required=frozenset({"A"}))], "none"),
            "asks for no resources, and no same_subtree names it",
        ),
    ],
)
def test_what_makes_no_sense_is_named(query, told):
    assert any(told in one for one in query.problems()), list(query.problems())


def test_a_group_without_resources_is_for_same_subtree():
    query = CandidateQuery(
        [group("a"), RequestGroup("b", required=frozenset({"A"}))], "none", [frozenset({"a", "b"})]
    )
    assert list(query.problems()) == []


def test_the_apis_own_words_are_understood():
    query = parse_query(
        [
            "resources=VCPU:2,MEMORY_MB:512",
            "required=A,!B",
            f"member_of=in:{UUID},{OTHER}",
            f"member_of={OTHER}",
            f"member_of=!{UUID}",
            "in_tree=" + UUID,
            "resources_N=SRIOV_NET_VF:1",
            "required_R=HW_NUMA_ROOT",
            "same_subtree=_R,_N",
            "group_policy=none",
            "root_required=COMPUTE_NODE,!X",
            "limit=3",
        ]
    )
    plain = RequestGroup(
        "",
        {"VCPU": 2, "MEMORY_MB": 512},
        frozenset("A"),
        frozenset("B"),
        (frozenset({UUID, OTHER}), frozenset({OTHER})),
        frozenset({UUID}),
        UUID,
    )
    assert query == CandidateQuery(
        (
            plain,
            RequestGroup("_N", {"SRIOV_NET_VF": 1}),
            RequestGroup("_R", required=frozenset({"HW_NUMA_ROOT"})),
        ),
        "none",
        (frozenset({"_R", "_N"}),),
        frozenset({"COMPUTE_NODE"}),
        frozenset("X"),
        3,
    )
    assert list(query.problems()) == []


def test_everything_wrong_with_the_words_is_told_at_once():
    words = [
        "resources",
        "limit=",
        "resource=VCPU:1",
        "resources=VCPU",
        "limit=two",
        "limit=3",
        "resources1=VCPU:1,VCPU:2",
        "in\ntree=x",
    ]
    with pytest.raises(BadRequest) as refused:
        parse_query(words)
    for told in (
        "'resources' is not of the form",
        "'limit=' is not of the form",
        "'resource' is not one of",
        "'VCPU' has no whole number",
        "'limit=two' has no",
        "'limit' is given twice",
        "'VCPU' is given twice in one request group",
        r"'in\ntree' is not one of",
    ):
        assert told in refused.value.message
    assert "\n" not in refused.value.message


NAMES = st.sampled_from(["VCPU", "PCPU", "CUSTOM_A"])
GROUPS = st.builds(
    RequestGroup,
    suffix=st.sampled_from(["", "1", "_N"]),
    resources=st.dictionaries(NAMES, st.integers(1, 99), min_size=1),
    required=st.frozensets(st.sampled_from("AB")),
    forbidden=st.frozensets(st.sampled_from("CD")),
    member_of=st.lists(
        st.frozensets(st.sampled_from([UUID, OTHER]), min_size=1), max_size=2, unique=True
    ).map(lambda some: tuple(sorted(some, key=sorted))),
    not_member_of=st.frozensets(st.sampled_from([UUID, OTHER])),
    in_tree=st.sampled_from([None, UUID]),
)


@given(
    st.lists(GROUPS, min_size=1, max_size=3, unique_by=lambda one: one.suffix),
    st.sampled_from(["none", "isolate"]),
    st.sampled_from([None, 1, 99]),
)
def test_a_query_survives_its_own_encoding(groups, policy, limit):
    query = CandidateQuery(tuple(groups), policy, limit=limit)
    assert list(query.problems()) == []
    again = parse_query(f"{key}={value}" for key, value in parse_qsl(query.encoded()))
    assert again.encoded() == query.encoded()


@given(st.lists(st.text(max_size=30), max_size=5))
def test_any_words_are_understood_or_refused(words):
    try:
        problems = list(parse_query(words).problems())
    except BadRequest as refused:
        problems = [refused.message]
    assert all("\n" not in one for one in problems)


# --- sums, differences and unions of holdings, as properties ---


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
