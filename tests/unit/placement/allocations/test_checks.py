"""Input before any request: normal forms, and everything that is wrong at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.placement.allocations import checks
from agent.placement.allocations.checks import BadRequest

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
