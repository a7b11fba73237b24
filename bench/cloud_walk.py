"""The random walks of two hosts through all that a cloud does to them, seed by seed, and what happened in them.

``python -m bench.cloud_walk [--seeds N] [--first SEED] [--steps N] [--stores each|one|both] [--side-by-side N] [--out FOLDER]`` writes ``walk.json``
and ``walk.md``, and ends with 1 if a walk failed. See README.md in ``bench``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.commit import code_commit
from tests.support.child import CHECKOUT

TESTS = {
    "each": "test_hosts_with_a_store_each_lose_nothing_and_give_nothing_twice",
    "one": "test_hosts_with_one_store_lose_nothing_and_give_nothing_twice",
}
FILE = "tests/functional/test_cloud_walk.py"
NAMES = {"each": "a store for each host", "one": "one store for both hosts"}
TOLD = 60
"""Steps that a failure tells."""


def walk(stores: str, seed: int, steps: int, out: Path) -> dict[str, Any]:
    """Walk with one seed in a process of its own; what happened."""
    environment = {
        # What a seed walks depends on the order of sets.
        "PYTHONHASHSEED": "0",
        "CLOUD_SEED": str(seed),
        "CLOUD_SEEDS": "1",
        "CLOUD_STEPS": str(steps),
        "CLOUD_LAST": str(TOLD),
        "CLOUD_OUT": str(out),
    }
    begun = time.monotonic()
    file = out / f"walk-{stores}-{seed}.json"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, f"{FILE}::{TESTS[stores]}[{seed}]"],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    (out / f"walk-{stores}-{seed}.log").write_text(run.stdout + run.stderr)
    found: dict[str, Any] = (
        json.loads(file.read_text())
        if file.exists()
        else {"seed": seed, "stores": stores, "steps": 0, "met": {}, "faults": {}, "checked": {}}
    )
    if run.returncode != 0 and not found.get("failure"):
        found["failure"] = f"pytest ended with {run.returncode}: {run.stdout[-2000:]}"
    found.setdefault("seconds", round(time.monotonic() - begun, 1))
    ended = "failed" if found.get("failure") else "passed"
    print(
        f"{NAMES[stores]}, seed {seed}: {found['steps']} steps, {sum(found['faults'].values())} faults, "
        f"{sum(found['checked'].values())} checks, {found['seconds']:g} s: {ended}",
        flush=True,
    )
    return found


def markdown(walks: Sequence[Mapping[str, Any]], commit: str) -> str:
    """Return the tables."""
    return "\n".join(_lines(walks, commit)) + "\n"


def _lines(walks: Sequence[Mapping[str, Any]], commit: str) -> Iterator[str]:
    seeds = sorted({one["seed"] for one in walks})
    yield f"Commit {commit}, seeds {seeds[0]} to {seeds[-1]}."
    yield ""
    yield "| walks | seeds | steps | faults that came to happen | checks of invariants | hours | failed |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for stores, name in NAMES.items():
        if mine := [one for one in walks if one["stores"] == stores]:
            yield (
                f"| {name} | {len(mine)} | {sum(one['steps'] for one in mine):,} | {_sum(mine, 'faults'):,} | {_sum(mine, 'checked'):,} "
                f"| {sum(one['seconds'] for one in mine) / 3600:.2f} | {sum(1 for one in mine if one.get('failure'))} |"
            )
    for title, part in (("fault", "faults"), ("invariant", "checked"), ("what was done", "met")):
        yield ""
        yield f"| {title} | times | in seeds |"
        yield "|---|---:|---:|"
        totals, present = Counter[str](), Counter[str]()
        for one in walks:
            totals.update(one[part])
            present.update(name for name, times in one[part].items() if times)
        for name, times in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0])):
            if times:
                yield f"| {name} | {times:,} | {present[name]} of {len(walks)} |"
    for one in walks:
        if one.get("failure"):
            yield f"\nFailed: {one.get('again', '')}\n\n    {one['failure'][-1500:]}"


def _sum(walks: Sequence[Mapping[str, Any]], part: str) -> int:
    return sum(sum(one[part].values()) for one in walks)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cloud_walk", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=500, help="of each seed")
    parser.add_argument("--stores", choices=[*TESTS, "both"], default="both")
    parser.add_argument("--side-by-side", type=int, default=os.cpu_count() or 1, help="walks")
    parser.add_argument("--out", type=Path, default=Path("walks"), help="a folder for the results")
    asked = parser.parse_args()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    kinds = list(TESTS) if asked.stores == "both" else [asked.stores]
    wanted = [
        (stores, seed, asked.steps, out)
        for seed in range(asked.first, asked.first + asked.seeds)
        for stores in kinds
    ]
    with ThreadPoolExecutor(asked.side_by_side) as pool:
        walks = list(pool.map(lambda one: walk(*one), wanted))
    text = markdown(walks, code_commit())
    (out / "walk.json").write_text(json.dumps(walks, indent=1) + "\n")
    (out / "walk.md").write_text(text)
    print(text)
    return 1 if any(one.get("failure") for one in walks) else 0


if __name__ == "__main__":
    sys.exit(main())
