"""The page of the benchmarks has what a whole run measures, not only what a quick one does."""

from bench.pages import page
from bench.process_figures import CommandFigures, DaemonFigures, ProcessFigures
from bench.results import Machine, Results

MACHINE = Machine("CPU", 2, 24.0, "Linux", {"commit": "abc"}, "today", 60.0, 0.1, 1.0, 0)


def test_the_figures_of_processes_are_on_the_page() -> None:
    daemon = DaemonFigures(80.0, 13, 90.0, 250.0, 3.5, 12.0, 3.6)
    commands = {"--once, over HTTP": CommandFigures(1.17, 1.16)}
    processes = ProcessFigures(daemon, commands, copy=0.001, plan=0.002)

    written = page(Results(False, 1, MACHINE, [], [], [], processes=processes), [])

    assert "agent --once, over HTTP 1.17 s" in written
    assert "90.0 MiB after 500 claims" in written
