"""How requests, the agent's CPU time and its memory grow with the tree (P providers) and with the
number of nodes (N).

``python -m bench.growth [--quick]`` prints two tables. See README.md beside this file.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config, write_config

PROVIDERS, QUICK_PROVIDERS = (1, 9, 73, 513, 2049), (1, 9, 73)
NODES, QUICK_NODES = (10, 100, 1000), (10, 100)
CELLS = 8
HEAD = (
    "first: requests",
    "s",
    "CPU s",
    "steady: requests",
    "ms",
    "CPU ms",
    "restart: requests",
    "ms",
    "CPU ms",
    "MiB",
    "peak MiB",
)


@dataclass(frozen=True)
class Pass:
    """One pass: the requests as Placement counted them, what the agent's process says of itself."""

    requests: int
    seconds: float
    cpu: float
    resident: float
    peak: float


class Process:
    """A running agent."""

    def __init__(self, config: Path, placement: HttpPlacement) -> None:
        self._placement = placement
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.cycles", str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )

    def cycle(self, *expected: str) -> Pass:
        """Have it make a pass, after which the nodes must be in these states, each of
        them in some.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._placement.clear()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        figures: Mapping[str, Any] = json.loads(
            self._process.stdout.readline() or '{"states": [], "errors": ["the agent ended"]}'
        )
        if figures["states"] != sorted(expected) or figures["errors"]:
            raise SystemExit(f"the pass is worth nothing: {expected} was expected, got {figures}")
        return Pass(
            len(self._placement.requests),
            figures["seconds"],
            figures["cpu"],
            figures["resident"],
            figures["peak"],
        )

    def end(self) -> None:
        """Close its input, which ends it."""
        self._process.communicate(timeout=60)


@contextlib.contextmanager
def running(config: Path, placement: HttpPlacement) -> Iterator[Process]:
    """An agent, ended at the end."""
    process = Process(config, placement)
    try:
        yield process
    finally:
        process.end()


def measure(placement: HttpPlacement, folder: Path, host: Config) -> tuple[Pass, Pass, Pass]:
    """A first pass on an empty Placement, the second of three unchanged ones after it, and the
    first of a new process.
    """
    placement.reset()
    # one request at a time, because a Placement on SQLite answers 500 to parallel writes
    options: Config = {
        **host,
        "store": {"path": folder / "store"},
        "placement": {**placement.credentials(), "max_in_flight": 1},
    }
    config = write_config(folder / "agent.conf", options)
    with running(config, placement) as agent:
        first = agent.cycle("changed")
        # because the pass after a change reads what it changed
        agent.cycle("in-sync")
        steady = agent.cycle("in-sync")
    with running(config, placement) as agent:
        restart = agent.cycle("in-sync")
    return first, steady, restart


def tree(folder: Path, providers: int) -> Config:
    """A host of so many providers: a root, up to eight cells below it, the others devices below the
    cells.
    """
    below = [
        {"name": f"$NODE_CELL{cell}", "inventories": {"PCPU": {"total": 16}}}
        for cell in range(min(CELLS, providers - 1))
    ]
    card = {"inventories": {"SRIOV_NET_VF": {"total": 8}}, "traits": ["CUSTOM_PHYSNET_A"]}
    devices = range(providers - 1 - len(below))
    below += [
        {"name": f"$NODE_DEVICE{number}", "parent": f"$NODE_CELL{number % CELLS}", **card}
        for number in devices
    ]
    root = {
        "name": "$NODE",
        "inventories": {
            "VCPU": {"total": 256},
            "MEMORY_MB": {"total": 1048576},
            "DISK_GB": {"total": 10000},
        },
    }
    file = folder / "host.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    # JSON is YAML too
    file.write_text(json.dumps({"providers": [root, *below]}))
    return {
        "DEFAULT": {"host": "bench", "compute_driver": "fake.file"},
        "fake": {"host_file": file},
    }


def nodes(number: int) -> Config:
    """A host that manages so many bare-metal nodes."""
    return {
        "DEFAULT": {"host": "bench", "compute_driver": "fake.baremetal"},
        "fake": {"baremetal_nodes": number},
    }


def row(label: str, first: Pass, steady: Pass, restart: Pass) -> str:
    """One line of the table."""
    cells = [
        label,
        str(first.requests),
        f"{first.seconds:.2f}",
        f"{first.cpu:.2f}",
        str(steady.requests),
        f"{steady.seconds * 1000:.0f}",
        f"{steady.cpu * 1000:.0f}",
        str(restart.requests),
        f"{restart.seconds * 1000:.0f}",
        f"{restart.cpu * 1000:.0f}",
        f"{steady.resident:.0f}",
        f"{steady.peak:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def head(label: str) -> str:
    """The first lines of a table in Markdown."""
    return "\n".join(["| " + " | ".join([label, *HEAD]) + " |", "|" + "---:|" * (len(HEAD) + 1)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth",
        description="How cost grows with the tree and the number of nodes.",
    )
    parser.add_argument("--quick", action="store_true", help="only the sizes that take seconds")
    quick = parser.parse_args(arguments).quick
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        placement = HttpPlacement(folder)
        placement.start()
        try:
            print(head("P"), flush=True)
            for number in QUICK_PROVIDERS if quick else PROVIDERS:
                print(
                    row(
                        str(number),
                        *measure(
                            placement, folder / f"P{number}", tree(folder / f"P{number}", number)
                        ),
                    ),
                    flush=True,
                )
            print("\n" + head("N"), flush=True)
            for number in QUICK_NODES if quick else NODES:
                print(
                    row(str(number), *measure(placement, folder / f"N{number}", nodes(number))),
                    flush=True,
                )
        finally:
            placement.stop()


if __name__ == "__main__":
    main()
