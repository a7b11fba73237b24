"""A fleet of agents on one Placement: all start at once, all start again at once, and some steady
periods; then, on paper, ten thousand hosts beside nova.

``python -m bench.fleet [--agents 200]`` writes the page. See README.md beside this file.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.commit import code_commit
from bench.fleet_pages import fleet_page
from bench.placement_site import BenchPlacement, Request, placement_on
from bench.process_figures import host_file
from bench.processes import Process, ended
from bench.results import Machine, machine, now, write_json
from tests.support.child import CHECKOUT
from tests.support.ini import Config, write_config

PAGES = CHECKOUT / "docs" / "benchmarks"
AGENTS, IN_PROCESS = 200, 20
PROVIDERS = 3
INTERVAL = 30
"""Seconds between two passes of a steady agent; half of the default, so that the run is short."""
PERIODS = 3
HEAD_START = 2.0
"""Seconds in which every thread hears when it has to begin."""


@dataclass(frozen=True)
class Phase:
    """What all agents did together."""

    name: str
    passes: int
    errors: Mapping[str, int]
    """What went wrong, by its text, and how often."""
    seconds: float
    """From the begin of the first request to the end of the last."""
    requests: int
    statuses: Mapping[str, int]
    busiest_second: int
    """Requests that began in it."""
    pass_50: float
    pass_99: float
    request_50: float
    request_99: float
    placement_cpu: float
    """Seconds of the processor for each request."""
    answer_bytes: float
    """Of each answer, on average."""


@dataclass(frozen=True)
class FleetResults:
    """One run."""

    machine: Machine
    agents: int
    in_process: int
    providers: int
    workers: int
    interval: int
    resident_alone: float
    """MiB of a process with one agent, after its first pass."""
    resident: float
    """MiB of each process with ``in_process`` agents, on average."""
    phases: Sequence[Phase]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page. Return 1 if a pass had an error."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.fleet", description="Many agents on one Placement on PostgreSQL."
    )
    parser.add_argument("--agents", type=int, default=AGENTS, help="how many (default: 200)")
    parser.add_argument(
        "--in-process", type=int, default=IN_PROCESS, help="how many share a process (default: 20)"
    )
    parser.add_argument("--interval", type=int, default=INTERVAL, help="seconds between passes")
    parser.add_argument("--workers", type=int, default=4, help="of Placement (default: 4)")
    parser.add_argument(
        "--output", type=Path, default=PAGES, help="folder of the page (default: docs/benchmarks)"
    )
    options = parser.parse_args(arguments)
    began, load, commit = now(), os.getloadavg(), code_commit()
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        with placement_on("postgresql", folder / "placement", options.workers) as placement:
            if placement is None:
                raise SystemExit("PostgreSQL or psycopg2 is missing: see bench/README.md")
            alone = _resident_alone(placement, folder / "alone")
            phases, resident = _measure(placement, folder / "fleet", options)
    results = FleetResults(
        machine(None, began, load, commit),
        options.agents,
        options.in_process,
        PROVIDERS,
        options.workers,
        options.interval,
        alone,
        resident,
        phases,
    )
    write_json(options.output / "fleet.json", asdict(results))
    (options.output / "fleet.md").write_text(fleet_page(results))
    failed = sum(sum(phase.errors.values()) for phase in phases)
    print(f"{failed} passes had errors; {options.output / 'fleet.md'}")
    return 1 if failed else 0


def _tell(what: str) -> None:
    print(f"{now():%H:%M:%S} {what}", file=sys.stderr, flush=True)


# --- the agents -----------------------------------------------------------------------------------


def _prepare(placement: BenchPlacement, folder: Path, hosts: Sequence[str]) -> None:
    """Write the configuration of each host."""
    for host in hosts:
        place = folder / host
        described = host_file(place, PROVIDERS)
        options: Config = {
            **described,
            "DEFAULT": {**described["DEFAULT"], "host": host, "state_path": place},
            "store": {"path": place / "store"},
            "placement": {**placement.credentials(), "max_in_flight": placement.in_flight},
        }
        write_config(place / "agent.conf", options)


@contextmanager
def _processes(placement: BenchPlacement, folders: Sequence[Path]) -> Iterator[Sequence[Process]]:
    command = (sys.executable, "-m", "bench.fleet_process")
    with ExitStack() as stack:
        yield [
            stack.enter_context(ended(Process((*command, str(folder)), placement)))
            for folder in folders
        ]


def _resident_alone(placement: BenchPlacement, folder: Path) -> float:
    _tell("one agent alone")
    placement.reset()
    _prepare(placement, folder, ["alone"])
    with _processes(placement, [folder]) as (process,):
        process.ask({"do": "start"})
        figures, _ = process.ask({"do": "storm", "begin": time.time()})
        return figures.resident


def _measure(
    placement: BenchPlacement, folder: Path, options: argparse.Namespace
) -> tuple[Sequence[Phase], float]:
    placement.reset()
    hosts = [f"host-{number}" for number in range(options.agents)]
    groups = [
        hosts[at : at + options.in_process] for at in range(0, len(hosts), options.in_process)
    ]
    folders = [folder / f"process-{number:02}" for number in range(len(groups))]
    for place, group in zip(folders, groups, strict=True):
        _prepare(placement, place, group)
    with _processes(placement, folders) as processes:
        fleet = RunningFleet(placement, processes)
        fleet.ask({"do": "start"})
        phases = [fleet.phase("all start at once, Placement is empty", "storm")]
        # The pass after a change reads what it changed.
        fleet.phase("settled", "storm")
        fleet.ask({"do": "stop"})
        fleet.ask({"do": "start"})
        phases.append(fleet.phase("all start again at once, nothing changed", "storm"))
        fleet.ask({"do": "stop"})
        fleet.ask({"do": "start"})
        every = options.interval
        name = f"all daemons start again at once, every {every} s, nothing changed"
        phases.append(fleet.phase(name, "daemon_start", interval=every))
        name = f"steady, every {every} s"
        phases.append(fleet.phase(name, "period", interval=every, seconds=PERIODS * every))
        resident = sum(fleet.resident) / len(processes)
    return phases, resident


class RunningFleet:
    """All processes of the fleet."""

    def __init__(self, placement: BenchPlacement, processes: Sequence[Process]) -> None:
        self._placement, self._processes = placement, processes
        self._pool = ThreadPoolExecutor(len(processes))
        self.resident: Sequence[float] = ()

    def ask(self, message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Have all processes do the same; return what each said."""
        answers = list(self._pool.map(lambda process: process.ask(message), self._processes))
        self.resident = [figures.resident for figures, _ in answers]
        for figures, _ in answers:
            if figures.errors:
                raise SystemExit("; ".join(figures.errors))
        return [said for _, said in answers]

    def phase(self, name: str, do: str, **more: Any) -> Phase:
        """Have all agents do this from one moment on; see ``bench.fleet_process.Agent``."""
        _tell(name)
        said = self.ask({"do": do, "begin": time.time() + HEAD_START, **more})
        passes = [made for answer in said for made in answer["passes"]]
        return summarize(name, passes, self._placement.answered())


# --- figures --------------------------------------------------------------------------------------


def summarize(name: str, passes: Sequence[Mapping[str, Any]], requests: Sequence[Request]) -> Phase:
    """Return what the passes and the requests of a phase come to."""
    seconds = sorted(made["seconds"] for made in passes)
    took = sorted(request.seconds for request in requests)
    began = min(request.begun for request in requests)
    ended = max(request.begun + request.seconds for request in requests)
    starts = Counter(math.floor(request.begun - began) for request in requests)
    return Phase(
        name,
        len(passes),
        dict(Counter(error for made in passes for error in made["errors"])),
        ended - began,
        len(requests),
        dict(Counter(str(request.status) for request in requests)),
        max(starts.values()),
        percentile(seconds, 50),
        percentile(seconds, 99),
        percentile(took, 50),
        percentile(took, 99),
        sum(request.cpu for request in requests) / len(requests),
        sum(request.size for request in requests) / len(requests),
    )


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the value that ``share`` of a hundred do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(len(ordered) * share / 100) - 1))]


if __name__ == "__main__":
    sys.exit(main())
