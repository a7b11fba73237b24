"""Everything in one run: nova's tracker and this agent in turns on one Placement, fits, claims and
processes; the budgets, and whether anything has grown over the baseline.

``python -m bench.run [--quick]``. See README.md beside this file.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.baseline import FILE, growths, make_baseline, read_baseline
from bench.budgets import verdicts
from bench.claims import RUNS, claim_figures
from bench.commit import code_commit
from bench.matrix import Row, Size, measure_turns
from bench.nova_python import find_nova_python
from bench.numa_fit import fit_rows
from bench.pages import VERDICTS, page
from bench.placement_site import Backend, BenchPlacement, placement_on
from bench.process_figures import ProcessFigures, process_figures
from bench.results import Results, machine, now, write_json
from bench.tree_driver import Tree
from tests.support.child import CHECKOUT

PAGES = CHECKOUT / "docs" / "benchmarks"
ON_SQLITE: tuple[Backend, ...] = ("sqlite",)
ON_POSTGRESQL: tuple[Backend, ...] = ("postgresql",)
ON_BOTH = ON_SQLITE + ON_POSTGRESQL
Sizes = Sequence[tuple[Size, Sequence[Backend]]]
"""Begun in this order, because the last ones may be left out."""
SMALL = [Size(Tree(P), C) for P in (1, 9, 73) for C in (0, 100)]
ALL: Sizes = [
    *((size, ON_SQLITE) for size in SMALL),
    *((Size(Tree(nodes=N)), ON_SQLITE) for N in (10, 100)),
    (Size(Tree(513), 100), ON_SQLITE),
    *((size, ON_POSTGRESQL) for size in SMALL),
    # nova would need an hour for those on which only the agent is measured.
    (Size(Tree(2049), peers=("agent",)), ON_SQLITE),
    (Size(Tree(513), 100), ON_POSTGRESQL),
    (Size(Tree(nodes=1000)), ON_SQLITE),
    (Size(Tree(nodes=100)), ON_POSTGRESQL),
    (Size(Tree(513)), ON_BOTH),
    (Size(Tree(nodes=5000), peers=("agent",)), ON_SQLITE),
    (Size(Tree(8193), peers=("agent",)), ON_SQLITE),
    (Size(Tree(nodes=1000)), ON_POSTGRESQL),
]
QUICK: Sizes = [
    (Size(Tree(9), 10), ON_SQLITE),
    (Size(Tree(73), 10, peers=("agent",)), ON_SQLITE),
    (Size(Tree(nodes=10)), ON_SQLITE),
]
ROUNDS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the pages, and print the verdicts. Return 1 if a budget is missed or something
    has grown.
    """
    options = _parser().parse_args(arguments)
    began, load = now(), os.getloadavg()
    nova_python = None if options.without_nova else find_nova_python()
    commit = code_commit()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    left_out: list[str] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        others = {} if options.quick else _others(nova_python, folder, failed)
        rows = list(_matrix(options, nova_python, folder, rounds, left_out, failed))
    if code_commit() != commit:
        failed.append(f"the code was changed during the run, which began at commit {commit}")
    described = machine(nova_python, began, load, commit)
    results = Results(options.quick, rounds, described, rows, left_out, failed, **others)
    return _conclude(results, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run",
        description="nova's resource tracker and this agent in turns on one real Placement.",
    )
    parser.add_argument("--quick", action="store_true", help="only the sizes that take seconds")
    parser.add_argument(
        "--without-nova", action="store_true", help="only the agent: needs no Python with nova"
    )
    parser.add_argument("--rounds", type=int, help="how often both are measured on each size")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="leave out the sizes that have not begun by then",
    )
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


def _others(nova_python: str | None, folder: Path, failed: list[str]) -> dict[str, Any]:
    """Measure processes, claims and fits; add to ``failed`` what cannot be measured."""
    parts: Mapping[str, Callable[[], Any]] = {
        "processes": lambda: _processes(folder / "processes"),
        "claims": lambda: claim_figures(folder, RUNS),
        "fits": lambda: list(fit_rows(nova_python)),
    }
    found = {}
    for name, measure in parts.items():
        _tell(name)
        try:
            found[name] = measure()
        except SystemExit as error:
            _tell(f"{name}: {error}")
            failed.append(f"{name}: {error}")
    return found


def _processes(folder: Path) -> ProcessFigures:
    with placement_on("sqlite", folder) as placement:
        assert placement is not None, "SQLite is everywhere"
        return process_figures(placement, folder)


def _matrix(
    options: argparse.Namespace,
    nova_python: str | None,
    folder: Path,
    rounds: int,
    left_out: list[str],
    failed: list[str],
) -> Iterator[Row]:
    """Yield the rows of each size on each backend; add what has none to ``left_out`` or
    ``failed``, with the reason.
    """
    end = time.monotonic() + 60 * options.minutes
    sizes = QUICK if options.quick else ALL
    with ExitStack() as stack:
        sites: Mapping[Backend, BenchPlacement | None] = {
            backend: stack.enter_context(placement_on(backend, folder / backend))
            for backend in ON_BOTH
        }
        for backend, placement in sites.items():
            if placement is None:
                left_out.append(f"{backend}: not installed")
        for size, backends in sizes:
            for backend in backends:
                placement, name = sites[backend], f"{backend}, {size}"
                if placement is None:
                    continue
                if time.monotonic() > end:
                    left_out.append(f"{name}: no time was left")
                    continue
                _tell(name)
                try:
                    yield from measure_turns(
                        backend,
                        placement,
                        size if nova_python else replace(size, peers=("agent",)),
                        nova_python or "",
                        folder / backend,
                        rounds,
                        count_lines=options.quick,
                    )
                except KeyboardInterrupt:
                    _tell("interrupted: what there is will be written")
                    left_out.append(f"{name}, and what follows: interrupted")
                    return
                except SystemExit as error:
                    _tell(f"{name}: {error}")
                    failed.append(f"{name}: {error}")


def _conclude(results: Results, options: argparse.Namespace) -> int:
    found = list(verdicts(results))
    grown = list(growths(results.matrix, read_baseline()))
    document = {**results.document(), "verdicts": [vars(verdict) for verdict in found]}
    write_json(options.output / "results.json", document)
    (options.output / "index.md").write_text(page(results, found))
    if options.write_baseline:
        write_json(FILE, make_baseline(results.matrix))
    for verdict in found:
        line = f"{verdict.budget}: {verdict.found}; {verdict.limit}"
        print(f"{VERDICTS[verdict.holds].strip('*'):12} {line}")
    for line in grown:
        print(f"grown        {line}")
    for line in results.left_out:
        print(f"left out     {line}")
    # A time fails no quick run, because its machine may have other work.
    missed = [
        verdict
        for verdict in found
        if verdict.holds is False and (verdict.kind == "count" or not results.quick)
    ]
    for line in results.failed:
        print(f"failed       {line}")
    counts = f"{len(missed)} budgets missed, {len(grown)} figures grown"
    print(f"{counts}, {len(results.failed)} parts failed; {options.output}")
    return 1 if missed or grown or results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
