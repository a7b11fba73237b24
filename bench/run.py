"""Everything in one run: nova's tracker and this agent in turns on one Placement, fits, claims and
processes; the budgets, and whether anything has grown over the baseline.

``python -m bench.run [--quick]``. See README.md beside this file.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.baseline import FILE, growths, make_baseline, read_baseline
from bench.budgets import Verdict, verdicts
from bench.claims import RUNS, audit_milliseconds, claim_rows, synced, winners_of_the_last_device
from bench.matrix import Row, Size, measure_turns
from bench.nova_python import find_nova_python
from bench.numa_fit import fit_rows
from bench.pages import VERDICTS, page
from bench.placement_site import Backend, BenchPlacement, placement_on
from bench.process_figures import process_figures
from bench.results import Claims, Results, machine, now, write_json
from bench.tree_driver import Tree
from tests.support.child import CHECKOUT

PAGES = CHECKOUT / "docs" / "benchmarks"
SIZES = [
    *(Size(Tree(P), C) for P in (1, 9, 73, 513) for C in (0, 10, 100)),
    *(Size(Tree(nodes=N)) for N in (100, 1000)),
    # nova would need an hour for them.
    Size(Tree(2049), 0, peers=("agent",)),
    Size(Tree(nodes=5000), 0, peers=("agent",)),
]
QUICK_SIZES = [Size(Tree(1), 0), Size(Tree(9), 10), Size(Tree(73), 0), Size(Tree(73), 10)]
QUICK_NODES = [Size(Tree(nodes=100))]
QUICK: dict[Backend, Sequence[Size]] = {
    "sqlite": [*QUICK_SIZES, *QUICK_NODES],
    "postgresql": [Size(Tree(9), 10)],
}
ALL: dict[Backend, Sequence[Size]] = {"sqlite": SIZES, "postgresql": SIZES}
ROUNDS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the pages, and print the verdicts. Return 1 if a budget is missed or something
    has grown.
    """
    options = _parser().parse_args(arguments)
    began, load = now(), os.getloadavg()[0]
    nova_python = find_nova_python()
    sizes = QUICK if options.quick else ALL
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        rows = list(_matrix(sizes, nova_python, folder, rounds))
        with placement_on("sqlite", folder / "processes") as placement:
            _tell("processes")
            processes = process_figures(_there(placement), folder / "processes")
        _tell("claims")
        claims = _claims(folder, 1 if options.quick else RUNS)
    _tell("fits")
    fits = list(fit_rows(nova_python))
    described = machine(nova_python, began, load)
    results = Results(options.quick, rounds, described, rows, fits, claims, processes)
    return _conclude(results, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run",
        description="nova's resource tracker and this agent in turns on one real Placement.",
    )
    parser.add_argument("--quick", action="store_true", help="only the sizes that take seconds")
    parser.add_argument("--rounds", type=int, help="how often both are measured on each size")
    parser.add_argument(
        "--output", type=Path, default=PAGES, help="folder of the pages (default: docs/benchmarks)"
    )
    parser.add_argument(
        "--write-baseline", action="store_true", help="make this run the committed baseline"
    )
    return parser


def _tell(what: str) -> None:
    """Tell on standard error what is measured now."""
    print(f"{now():%H:%M:%S} {what}", file=sys.stderr, flush=True)


def _there(placement: BenchPlacement | None) -> BenchPlacement:
    assert placement is not None, "SQLite is everywhere"
    return placement


def _matrix(
    sizes: dict[Backend, Sequence[Size]], nova_python: str, folder: Path, rounds: int
) -> Iterator[Row]:
    for backend, of_backend in sizes.items():
        with placement_on(backend, folder / backend) as placement:
            if placement is None:
                _tell(f"{backend}: left out, because it is not installed")
                continue
            for size in of_backend:
                _tell(f"{backend} {size.tree.providers} {size.tree.nodes} {size.consumers}")
                yield from measure_turns(backend, placement, size, nova_python, folder, rounds)


def _claims(folder: Path, runs: int) -> Claims:
    return Claims(
        list(claim_rows(runs)),
        winners_of_the_last_device(),
        audit_milliseconds(),
        synced(folder),
    )


def _conclude(results: Results, options: argparse.Namespace) -> int:
    # Needed for nothing else, and slow to import.
    from bench.plots import write_plots

    found = list(verdicts(results))
    grown = list(growths(results.matrix, read_baseline()))
    document = {**results.document(), "verdicts": [vars(verdict) for verdict in found]}
    write_json(options.output / "results.json", document)
    plots = write_plots(options.output, results.matrix, results.fits)
    (options.output / "index.md").write_text(page(results, found, plots))
    if options.write_baseline:
        write_json(FILE, make_baseline(results.matrix))
    for verdict in found:
        line = f"{verdict.budget}: {verdict.found}; {verdict.limit}"
        print(f"{VERDICTS[verdict.holds].strip('*'):12} {line}")
    for line in grown:
        print(f"grown        {line}")
    missed = [verdict for verdict in found if verdict.holds is False and _binds(verdict, results)]
    print(f"{len(missed)} budgets missed, {len(grown)} figures grown; {options.output}")
    return 1 if missed or grown else 0


def _binds(verdict: Verdict, results: Results) -> bool:
    """Whether a missed budget fails the run. A time does not in a quick one, whose machine has
    other work.
    """
    return verdict.counted or not results.quick


if __name__ == "__main__":
    sys.exit(main())
