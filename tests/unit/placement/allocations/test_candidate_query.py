"""A query for candidates: its one form, what is wrong with it, and the words it can be made of."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.placement.allocations.candidates import CandidateQuery, RequestGroup, parse_query
from agent.placement.allocations.checks import BadRequest

UUID = "5f9c2a34-7d1e-4a8b-9c46-00000000000a"
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
