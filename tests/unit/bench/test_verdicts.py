"""What the bench concludes from figures: budgets that are missed, and growth over the baseline."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from bench.baseline import growths, make_baseline, read_baseline
from bench.budgets import request_verdicts, verdicts
from bench.claims import ClaimRow, Claims
from bench.fleet import summarize
from bench.matrix import Case, Row
from bench.pages import page
from bench.placement_site import Request
from bench.process_figures import CommandFigures, DaemonFigures, ProcessFigures
from bench.processes import Pass, Peer
from bench.results import Machine, Results
from bench.soak.log_judge import LogJudge
from bench.soak.results import markdown
from bench.soak.samples import Sample, trend
from bench.tree_driver import NAME, ROOT, Tree, TreeDriver

MACHINE = Machine("", 2, 4.0, "", {}, "", 1.0, 0.5, 0.5, 0)
FIGURES = Pass(1, 0.02, 0.1, 0.01, 100_000, 60.0, 61.0, 4)


def row(case: Case, peer: Peer = "agent", **figures: object) -> Row:
    return Row("sqlite", 73, 10, 1, case, peer, replace(FIGURES, **figures))


def beside_nova(**figures: object) -> list[Row]:
    return [row("steady", **figures), row("steady", "nova", requests=84, cpu=1.0)]


def test_one_request_more_is_growth():
    found = list(growths(beside_nova(requests=2), make_baseline(beside_nova())))
    assert found == ["sqlite P=73 C=10 steady: 2 requests, the baseline has 1"]


def test_more_lines_of_python_are_growth_whatever_else_says():
    baseline = make_baseline(beside_nova())
    (found,) = growths(beside_nova(lines=106_000, cpu=0.01), baseline)
    assert found == "sqlite P=73 C=10 steady: 106000 lines of Python, at most 105000 are expected"
    assert list(growths(beside_nova(lines=104_000), baseline)) == []
    assert list(growths(beside_nova(lines=None), baseline)) == []
    assert list(growths(beside_nova(lines=900_000), {**baseline, "interpreter": "another"})) == []


def test_every_case_of_the_committed_baseline_has_its_lines():
    assert [key for key, one in read_baseline()["cases"].items() if not one["lines"]] == []


def test_the_share_of_novas_time_counts():
    baseline = make_baseline(beside_nova())
    assert list(growths(beside_nova(cpu=0.22), baseline)) == []
    (found,) = growths(beside_nova(cpu=0.24), baseline)
    assert "240 ms of the processor, at most 230 ms" in found


def test_the_committed_baseline_has_every_case_within_its_budget():
    for key, known in read_baseline()["cases"].items():
        backend, *size, case = key.split(" ", maxsplit=3 if " P=" in key else 2)
        number = {part[0]: int(part[2:]) for part in size}
        found = replace(FIGURES, requests=known["requests"])
        sized = Row(
            backend,
            number.get("P", 1),
            number.get("C", 0),
            number.get("N", 1),
            case,
            "agent",
            found,
        )
        assert sized.key == key
        assert [one for one in request_verdicts([sized]) if one.holds is False] == []


def test_a_budget_that_is_missed_names_the_size():
    found = [one for one in request_verdicts([row("steady", requests=3)]) if one.holds is not None]
    assert [(one.budget, one.found, one.holds, one.kind) for one in found] == [
        ("requests, P providers, steady", "3 of 1 (P=73 C=10)", False, "count")
    ]


@pytest.mark.parametrize(("many", "holds"), [(0.9, True), (1.1, False)])
def test_cpu_that_grows_faster_than_the_nodes_or_the_tree_misses_its_budget(many, holds):
    def sized(letter: str, size: int, cpu: float) -> Row:
        providers, nodes = (size, 1) if letter == "P" else (1, size)
        return Row("sqlite", providers, 0, nodes, "steady", "agent", replace(FIGURES, cpu=cpu))

    for letter, each in (("P", 5e-5), ("N", 1e-3)):
        rows = [
            # What a size costs that is only somewhat larger is noise.
            *(sized(letter, size, 0.1 + 0.5 * each * size) for size in (20, 200, 400)),
            sized(letter, 30, 2.0),
            sized(letter, 4000, 0.1 + many * each * 4000),
        ]
        results = Results(False, 1, MACHINE, rows, (), ())
        found = {one.budget: one.holds for one in verdicts(results)}
        assert found[f"steady CPU grows at most linearly with {letter}"] is holds


@pytest.mark.parametrize("providers", [1, 2, 9, 73])
def test_the_common_driver_reports_the_tree_that_it_is_given(providers: int):
    driver, tree = TreeDriver(), ProviderTree()
    driver.tree = Tree(providers)
    tree.new_root(NAME, ProviderUuid(ROOT.format(1)))
    driver.update_provider_tree(tree, NAME)
    assert len(list(tree.providers())) == providers
    with_traits = [provider for provider in tree.providers() if provider.traits]
    # The root gets its traits from the capabilities.
    assert len(with_traits) + 1 == driver.tree.with_traits
    driver.tree = replace(driver.tree, dropped=True)
    driver.update_provider_tree(tree, NAME)
    assert len(list(tree.providers())) == providers - bool(driver.tree.devices)


def test_a_phase_of_a_fleet_counts_errors_statuses_and_the_busiest_second():
    requests = [
        Request("GET", "/", status, 0.002, begun, 0.01, 100)
        for status, begun in ((200, 10.0), (200, 10.5), (500, 11.2))
    ]
    passes = [{"seconds": number / 100, "errors": []} for number in range(1, 100)]
    phase = summarize("storm", [*passes, {"seconds": 5.0, "errors": ["away"]}], requests)
    assert (phase.passes, phase.requests, phase.busiest_second) == (100, 3, 2)
    assert phase.errors == {"away": 1}
    assert phase.statuses == {"200": 2, "500": 1}
    assert (phase.pass_50, phase.pass_99) == (0.5, 0.99)
    assert phase.seconds == pytest.approx(1.21)


@pytest.mark.parametrize(("load", "holds"), [(0.5, False), (7.0, None)], ids=["calm", "busy"])
def test_a_time_on_the_clock_is_not_decided_on_a_busy_machine(load: float, holds: bool | None):
    machine = replace(MACHINE, load_before=load, load_after=load)
    slow = [ClaimRow("SQLite", threads, 1, 100.0, 1.0, 1.0, 1.0) for threads in (1, 8)]
    claims = Claims(slow, {"every audit": 900.0}, 1.0)
    found = {
        verdict.budget: verdict.holds
        for verdict in verdicts(Results(False, 1, machine, (), (), (), claims=claims))
    }
    assert found["claims a second, one thread, SQLite"] is holds
    assert found["claims from eight threads, together"] is True
    assert found["audit of 1000 instances, CPU"] is False


# --- the verdicts of the soak ---


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


# --- the page of the benchmarks has what a whole run measures, not only what a quick one does ---


MEASURED_ON = Machine("CPU", 2, 24.0, "Linux", {"commit": "abc"}, "today", 60.0, 0.1, 1.0, 0)


def test_the_figures_of_processes_are_on_the_page() -> None:
    daemon = DaemonFigures(80.0, 13, 90.0, 250.0, 3.5, 12.0, 3.6)
    commands = {"--once, over HTTP": CommandFigures(1.17, 1.16)}
    processes = ProcessFigures(daemon, commands, copy=0.001, plan=0.002)

    written = page(Results(False, 1, MEASURED_ON, [], [], [], processes=processes), [])

    assert "agent --once, over HTTP 1.17 s" in written
    assert "90.0 MiB after 500 claims" in written
