import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.topology import format_cpu_list, parse_cpu_list

CPUS = st.frozensets(st.integers(0, 4096), max_size=60)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-7,^3,^5-6", {0, 1, 2, 4, 7}),
        ("^3,0-4", {0, 1, 2, 4}),
        ("4", {4}),
        ("4-4", {4}),
        (" 0 - 2 ,, ^ 1 ,", {0, 2}),
        ("0,0,0-1", {0, 1}),
        ("0-3,^9", {0, 1, 2, 3}),
        ("0-1\n", {0, 1}),
    ],
)
def test_a_list_of_cpus(text, cpus):
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "1-2-3", "^", "^^1", "0x1", "1.5", "٣", "1 2", "3;4", "+1"]
)
def test_what_is_no_number_or_range_is_named(text):
    with pytest.raises(ValueError, match="neither a CPU number nor a range") as error:
        parse_cpu_list(f"0-3,{text}")
    assert repr(text) in str(error.value)


def test_a_range_that_runs_backwards_is_refused():
    with pytest.raises(ValueError, match="'7-3' runs backwards"):
        parse_cpu_list("0,7-3")


@pytest.mark.parametrize("text", ["0-1000001", "1000001", "0-99999999999999999999"])
def test_a_number_too_large_for_a_cpu_is_refused_before_the_range_is_built(text):
    with pytest.raises(ValueError, match="above 1000000"):
        parse_cpu_list(text)


@pytest.mark.parametrize("text", ["^1", "1-2,^0-5", ",", " , "])
def test_a_value_that_leaves_no_cpu_is_refused(text):
    with pytest.raises(ValueError, match="leaves no CPU"):
        parse_cpu_list(text)


@pytest.mark.parametrize(
    ("cpus", "text"),
    [(set(), ""), ({8, 0, 1, 2, 3}, "0-3,8"), ({5}, "5"), ({0, 1}, "0-1"), ({0, 2, 4}, "0,2,4")],
)
def test_the_shortest_text_of_a_set(cpus, text):
    assert format_cpu_list(cpus) == text


@given(CPUS)
def test_what_was_written_reads_back(cpus):
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@given(CPUS, CPUS)
def test_exclusions_apply_to_the_whole_wherever_they_stand(cpus, others):
    excluded = [f"^{cpu}" for cpu in others]
    included = [str(cpu) for cpu in cpus]
    if cpus - others:
        assert parse_cpu_list(",".join([*excluded, *included])) == cpus - others
        assert parse_cpu_list(",".join([*included, *excluded])) == cpus - others
