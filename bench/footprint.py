"""How much memory the daemon takes, and how much time and memory the commands take.

``python -m bench.footprint [--claims N] [--soak MINUTES] [--imports]`` prints tables. See README.md
beside this file.
"""

import argparse
import compileall
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from bench.growth import tree
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config, write_config
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, uuid_of

PROVIDERS, CLAIMS, RUNS = 73, 2000, 5
# Seconds that a daemon has for what it does at once on a calm machine.
PATIENCE = 1800.0
# Seconds without a request, after which the daemon is calm.
REST = 5.0
# Reads the figures of a process when it ends: getrusage would have the memory of the parent too.
CODE = """
import atexit, sys, time
def figures():
    lines = open("/proc/self/status").read().splitlines()
    peak, = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    print(f"{time.process_time()} {peak}", file=open(sys.argv.pop(), "w"))
atexit.register(figures)
from agent.__main__ import main
path = sys.argv[-1]
del sys.argv[-1]
code = main()
sys.argv.append(path)
sys.exit(code)
"""


@dataclass(frozen=True)
class Memory:
    """What a process has, memory in MiB."""

    resident: float
    proportional: float
    anonymous: float
    peak: float
    threads: int
    descriptors: int


def memory_of(pid: int) -> Memory:
    """Return what the process has now."""
    folder = Path(f"/proc/{pid}")
    fields = {
        name: int(value.split()[0])
        for file in ("status", "smaps_rollup")
        for name, _, value in (
            line.partition(":") for line in (folder / file).read_text().splitlines()
        )
        if name in ("VmHWM", "Rss", "Pss", "Anonymous", "Threads")
    }
    return Memory(
        fields["Rss"] / 1024,
        fields["Pss"] / 1024,
        fields["Anonymous"] / 1024,
        fields["VmHWM"] / 1024,
        fields["Threads"],
        len(list((folder / "fd").iterdir())),
    )


Answer = TypeVar("Answer")


def repeat(ask: Callable[[], Answer]) -> Answer:
    """Return an answer of the daemon. Where others keep it busy, it is asked again: what is done
    already is not done twice.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except ApiProblem as problem:
            if problem.status not in (503, 504) or time.monotonic() > end:
                raise


class Site:
    """A host of ``PROVIDERS`` providers, and a Placement."""

    def __init__(self, folder: Path, placement: HttpPlacement, *, interval: int) -> None:
        self.folder, self.socket = folder, folder / "agent.sock"
        host = tree(folder, PROVIDERS)
        described = json.loads((folder / "host.yaml").read_text())
        # Memory and disk for all claims.
        described |= {"memory_mib": 16 * 2**20, "disk_gib": 10**6, "cpu": {"online": "0-255"}}
        described["providers"][0].pop("inventories")
        (folder / "host.yaml").write_text(json.dumps(described))
        self._config: Config = {
            **host,
            "DEFAULT": {
                **host["DEFAULT"],
                "update_resources_interval": interval,
                "log_file": folder / "agent.log",
            },
            "store": {"path": folder / "store"},
            "api": {"socket": self.socket},
            # One request at a time, because a Placement on SQLite answers 500 to parallel writes.
            "placement": {**placement.credentials(), "max_in_flight": 1},
        }
        self.config = write_config(folder / "agent.conf", self._config)
        self.client = ApiClient(self.socket, timeout=PATIENCE)
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "NO_PROXY": "*",
            "PYTHONPATH": str(CHECKOUT),
        }
        self._number = 0

    @contextlib.contextmanager
    def daemon(self) -> Iterator[int]:
        """Run the daemon, and yield its process id once the first pass is over."""
        process = subprocess.Popen(
            [sys.executable, "-m", "agent", "--config-file", str(self.config)],
            env=self.environment,
            cwd=self.folder,
        )
        try:
            end = time.monotonic() + PATIENCE
            while True:
                with contextlib.suppress(ApiUnreachable, ApiProblem):
                    self.client.readiness()
                    break
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the daemon is not ready: {self.folder / 'agent.log'}")
                time.sleep(0.1)
            (self.node,) = (str(node["uuid"]) for node in self.client.nodes())
            yield process.pid
        finally:
            process.terminate()
            process.wait(60)

    def claim(self) -> str:
        """Claim room for one more guest. Return the claim's id."""
        self._number += 1
        wanted = {
            "id": uuid_of(f"footprint-{self._number}"),
            "node": self.node,
            "instance": instance_body(f"f{self._number}"),
            "flavor": flavor_body(F1),
        }
        return str(repeat(lambda: self.client.create_claim(wanted))["id"])

    def release(self, claim: str) -> None:
        """Release a claim."""
        repeat(lambda: self.client.abort_claim(claim))

    def calm(self) -> None:
        """Wait until everything is published and the daemon has had nothing to do."""
        end = time.monotonic() + PATIENCE
        while self.client.node(self.node)["records"]["dirty"] and time.monotonic() < end:
            time.sleep(0.5)
        time.sleep(REST)


@dataclass(frozen=True)
class Run:
    """What a command took: seconds, CPU seconds, and MiB at the most."""

    wall: float
    cpu: float
    peak: float


def run(site: Site, *arguments: str, python: Sequence[str] = ()) -> Run:
    """Run a command to its end."""
    figures = site.folder / "figures"
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *python, "-c", CODE, *arguments, str(figures)],
        env=site.environment,
        cwd=site.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"agent {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    cpu, peak = figures.read_text().split()
    return Run(wall, float(cpu), int(peak) / 1024)


def modules_of(site: Site, *arguments: str) -> Mapping[str, float]:
    """Return what the imports of a command cost, in milliseconds, by package."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "agent", *arguments],
        env=site.environment,
        cwd=site.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, float] = defaultdict(float)
    for line in done.stderr.splitlines():
        if line.startswith("import time:") and "self" not in line:
            own, _, name = line.removeprefix("import time:").split("|")
            found[name.strip().partition(".")[0]] += int(own) / 1000
    return found


def daemon_rows(site: Site, claims: int) -> Iterator[tuple[str, Memory]]:
    """Yield the memory of a daemon after its first pass, and around a burst of claims."""
    with site.daemon() as pid:
        site.calm()
        yield "after the first pass", memory_of(pid)
        made = [site.claim() for _ in range(claims)]
        yield f"after a burst of {claims} claims", memory_of(pid)
        site.calm()
        yield "the claims published", memory_of(pid)
        for claim in made:
            site.release(claim)
        site.calm()
        yield "the claims released", memory_of(pid)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("drift",),
    ("claims",),
    ("migrations",),
    ("resources",),
    ("tree",),
    ("status", "--format", "json"),
)


def command_rows(site: Site, runs: int) -> Iterator[tuple[str, Sequence[Run]]]:
    """Yield what each command took, in several runs."""
    config = ("--config-file", str(site.config))
    yield "--version", [run(site, "--version") for _ in range(runs)]
    with site.daemon():
        site.calm()
        for command in COMMANDS:
            yield " ".join(command), [run(site, *config, *command) for _ in range(runs)]
    yield "--once", [run(site, *config, "--once") for _ in range(runs)]


def soak(site: Site, minutes: float) -> Iterator[tuple[float, int, Memory]]:
    """Yield, once a minute, the minutes, how many claims were made, and the memory of a daemon with
    a pass a second, on which claims are made and released in turns.
    """
    begun, made, asked = time.monotonic(), 0, 0.0
    with site.daemon() as pid:
        site.calm()
        yield 0.0, made, memory_of(pid)
        while (passed := (time.monotonic() - begun) / 60) < minutes:
            batch = [site.claim() for _ in range(50)]
            made += len(batch)
            repeat(lambda: list(site.client.nodes()))
            repeat(site.client.metrics)
            time.sleep(1)
            for claim in batch:
                site.release(claim)
            if passed - asked >= 1:
                asked = passed
                yield passed, made, memory_of(pid)


def compile_checkout() -> None:
    """Write the bytecode, which an installation has: to compile takes longer than anything else,
    and leaves gaps in the memory.
    """
    for package in ("agent", "drivers"):
        compileall.compile_dir(CHECKOUT / package, quiet=2)


def table(head: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    """Print a table in Markdown, each row when it is known."""
    print("\n| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def cells(memory: Memory) -> list[str]:
    """Return the cells of a row."""
    figures = (memory.resident, memory.proportional, memory.anonymous, memory.peak)
    return [f"{value:.1f}" for value in figures] + [str(memory.threads), str(memory.descriptors)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__)
    parser.add_argument("--claims", type=int, default=CLAIMS, help="claims of the burst")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each command")
    parser.add_argument("--soak", type=float, default=0, help="minutes of the soak; 0: none")
    parser.add_argument("--imports", action="store_true", help="what the imports of status cost")
    asked = parser.parse_args()
    compile_checkout()
    head = ("", "MiB", "PSS", "anonymous", "peak", "threads", "descriptors")
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        placement = HttpPlacement(folder)
        placement.start()
        try:
            site = Site(folder / "host", placement, interval=60)
            if asked.claims:
                rows = daemon_rows(site, asked.claims)
                table(head, ((label, *cells(memory)) for label, memory in rows))
            if asked.runs:
                table(
                    ("agent", "s: best", "median", "CPU s: best", "peak MiB"),
                    (
                        (
                            label,
                            f"{min(found.wall for found in runs):.2f}",
                            f"{statistics.median(found.wall for found in runs):.2f}",
                            f"{min(found.cpu for found in runs):.2f}",
                            f"{max(found.peak for found in runs):.1f}",
                        )
                        for label, runs in command_rows(site, asked.runs)
                    ),
                )
            if asked.imports:
                costs = modules_of(site, "--config-file", str(site.config), "status", "--offline")
                ordered = sorted(costs.items(), key=lambda item: -item[1])[:30]
                table(("package", "ms"), ((module, f"{cost:.1f}") for module, cost in ordered))
            if asked.soak:
                placement.reset()
                other = Site(folder / "soak", placement, interval=1)
                table(
                    ("minute", "claims", *head[1:]),
                    (
                        (f"{minute:.0f}", made, *cells(memory))
                        for minute, made, memory in soak(other, asked.soak)
                    ),
                )
        finally:
            placement.stop()


if __name__ == "__main__":
    main()
