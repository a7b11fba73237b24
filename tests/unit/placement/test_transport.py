"""An outage is told once a kind, then now and then, and its end once."""

import pytest

from agent.placement.transport import OutageLog

REFUSED = "cannot connect to http://p: Connection refused"


class Clock:
    """The time, as the test says."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def outages(clock):
    return OutageLog(clock)


@pytest.fixture
def told(caplog):
    """What was logged since the last time this was asked."""
    caplog.set_level("DEBUG", "agent.placement.transport")

    def lines():
        said = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return said

    return lines


def test_failures_without_a_cycle_count_one_by_one(outages, told):
    for _ in range(11):
        outages.record_failure("catalog", "no endpoint")
    assert told() == [
        ("WARNING", "placement unreachable: no endpoint"),
        ("WARNING", "placement unreachable: no endpoint (suppressed 9)"),
    ]


def test_all_failures_of_one_cycle_count_once(outages, told):
    for cycle in range(10):
        for _ in range(5):
            outages.record_failure("connect", REFUSED, f"req-{cycle}")
    assert told() == [("WARNING", f"placement unreachable: {REFUSED}")]
    outages.record_failure("connect", REFUSED, "req-10")
    assert told() == [("WARNING", f"placement unreachable: {REFUSED} (suppressed 9)")]


def test_each_kind_is_told_and_counted_by_itself(outages, told):
    for cycle in range(10):
        outages.record_failure("connect", REFUSED, f"req-{cycle}")
        outages.record_failure("timeout", "too late", f"req-{cycle}")
    assert told() == [
        ("WARNING", f"placement unreachable: {REFUSED}"),
        ("WARNING", "placement unreachable: too late"),
    ]


def test_the_end_is_told_once_with_how_long_it_was_since_the_first_of_any_kind(
    outages, clock, told
):
    outages.record_failure("connect", REFUSED, "req-1")
    clock.now += 100
    outages.record_failure("timeout", "too late", "req-2")
    clock.now += 23.4
    told()
    outages.record_answer()
    outages.record_answer()
    assert told() == [("INFO", "placement reachable again after 123 s")]
