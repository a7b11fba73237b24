"""The verdicts of the soak: what grows is told from what only moves, and what a fault explains from what nothing explains."""

import re
from pathlib import Path

import pytest

from bench.soak.log_judge import LogJudge
from bench.soak.results import markdown
from bench.soak.samples import Sample, trend


def sampled(*rss: float, calm: bool = True) -> list[Sample]:
    return [
        Sample(5.0 * number, one, 20, 9, 1.0, 0.5, calm) for number, one in enumerate(rss, start=1)
    ]


@pytest.mark.parametrize(("an_hour", "flat"), [(0.0, True), (1.5, True), (2.5, False)])
def test_what_grows_slowly_and_for_ever_is_not_flat(an_hour: float, flat: bool) -> None:
    warm_up = [60 + 0.02 * number for number in range(250)]
    slowly = [65 + number * 5 / 3600 * an_hour for number in range(550)]
    found = trend("rss_mib", sampled(*warm_up, *slowly))
    assert found is not None
    assert found.last - found.first < 2
    assert found.late == pytest.approx(an_hour, abs=0.01)
    assert found.flat is flat


def test_the_second_half_of_a_short_run_has_no_verdict() -> None:
    found = trend("rss_mib", sampled(*(70 + 0.005 * number for number in range(300))))
    assert found is not None
    assert (found.late, found.flat) == (None, True)


def test_neither_a_warm_up_nor_single_peaks_nor_what_comes_and_goes_is_growth() -> None:
    warm_up = [60 + number for number in range(20)]
    waves = [80 + number % 7 + (25 if number % 50 == 0 else 0) for number in range(200)]
    found = trend("rss_mib", sampled(*warm_up, *waves))
    assert found is not None
    assert found.flat


def test_a_short_run_or_one_without_calm_has_no_verdict() -> None:
    assert trend("rss_mib", sampled(*[70.0] * 20)) is None
    assert trend("rss_mib", sampled(*[70.0] * 200, calm=False)) is None
    assert trend("rss_mib", []) is None


WARNING = "2026-01-01 00:00:00.000 1 WARNING agent.x [-] "


def test_only_what_an_active_fault_explains_is_expected(tmp_path: Path) -> None:
    log, judge = tmp_path / "agent.log", LogJudge(tmp_path / "agent.log")
    judge.read([])
    log.write_text(f"{WARNING}placement unreachable: a\n{WARNING}the disk is fu")
    judge.read([("outage", re.compile("placement unreachable"))])
    assert (judge.expected, judge.unexplained) == ({"outage": 1}, [])
    with log.open("a") as more:
        more.write(f"ll\n2026 INFO agent.x [-] in sync\n{WARNING}placement unreachable: b\n")
    judge.read([])
    assert judge.unexplained == [f"{WARNING}the disk is full", f"{WARNING}placement unreachable: b"]
    assert judge.lines == 4


def test_a_traceback_is_never_expected_of_a_fault_that_does_not_say_so(tmp_path: Path) -> None:
    judge = LogJudge(tmp_path / "agent.log")
    (tmp_path / "agent.log").write_text("Traceback (most recent call last):\n")
    judge.read([("outage", re.compile("placement unreachable"))])
    assert judge.unexplained == ["Traceback (most recent call last):"]


def test_the_tables_name_what_failed() -> None:
    grows = trend("rss_mib", sampled(*(70 + 0.05 * number for number in range(200))))
    assert grows is not None
    text = markdown(
        {
            "minutes": 60,
            "seed": 1,
            "commit": "abc",
            "machine": {"python": "3.11", "cores": 2},
            "clock": "set ahead and back",
            "trends": {"rss_mib": grows.document()},
            "faults": {"libvirtd killed": {"times": 3, "longest_recovery": 4.5}},
            "log": {"expected": {"libvirtd killed": 7}},
            "operations": {"build": 2},
            "cpu_seconds": 12.5,
            "failures": ["libvirtd killed: not ready"],
        }
    )
    assert "| grows |" in text
    assert "| libvirtd killed | 3 | 4.5 | 7 |" in text
    assert "Failed: libvirtd killed: not ready" in text
    assert "| threads | | | | | | | the run is too short |" in text
