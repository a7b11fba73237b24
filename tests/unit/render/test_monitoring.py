"""What monitoring gets of names that no file format expects."""

from dataclasses import replace

from agent.model.finding import Drift
from agent.model.report import NodeReport
from agent.render.monitoring import DETAILS_AT_MOST, render_plugin, render_textfile
from tests.unit.render.reports import ROOT, report

NAME = 'a"b\\c\n# TYPE x gauge | \ud800\x1b[1m'


def hostile(count: int) -> NodeReport:
    drift = Drift("orphaned-allocation", "warning", f"{NAME} | x=1", f"{NAME} | y=2")
    return NodeReport(NAME, ROOT, "fake.file", "in-sync", drift=(drift,) * count)


def test_a_textfile_has_a_line_for_each_metric_whatever_the_name() -> None:
    text = render_textfile(replace(report(), nodes=(hostile(2),), errors=()), 1.0)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(line.startswith("compute_node_agent_once_") for line in lines)
    (drift,) = (line for line in lines if "_node_drift{" in line)
    assert drift.endswith(" 2.0")
    assert text.encode()


def test_the_output_of_a_plugin_has_one_part_with_figures_and_few_lines() -> None:
    text = render_plugin(replace(report(), nodes=(hostile(1000),), errors=()))
    first, *lines = text.splitlines()
    assert first.count("|") == 1
    assert not any("|" in line for line in lines)
    assert len(lines) == DETAILS_AT_MOST + 1
