"""How fast the daemon answers about health, and claims, while somebody attacks its socket; and how
much memory that costs it.

``python -m bench.attacks [--seconds S] [--runs R] [NAME ...]`` prints a table; a name is a part of
an attack's. See README.md beside this file.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agent.api.client import ApiProblem
from tests.functional.test_daemon_claims import Host
from tests.support.attacks import ATTACKS
from tests.support.http_placement import HttpPlacement
from tests.support.postgresql import PostgreSQL
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, uuid_of

SECONDS, RUNS, CALM = 6.0, 3, 100
# Of the attack, before it counts.
LEAD = 1.0
# Before each attack, for what the last one has left.
REST = 2.0
NUMBERS = count()


@dataclass(frozen=True)
class Times:
    """In milliseconds, in order."""

    health: list[float]
    claims: list[float]

    @property
    def worst(self) -> float:
        return max(self.health[-1], self.claims[-1] if self.claims else 0)


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def measured(host: Host, goes_on: Callable[[], bool], *, claims: bool) -> Times:
    """One question and one claim after the other."""
    health, claimed = [], []
    while goes_on():
        health.append(timed(host.client.health))
        if claims:
            number = next(NUMBERS)
            id = uuid_of(f"bench-{number}")
            body = {
                "id": id,
                "node": host.root,
                "instance": instance_body(f"b{number}"),
                "flavor": flavor_body(F1),
            }
            claimed.append(timed(lambda body=body: host.client.create_claim(body)))  # type: ignore[misc]
            host.client.abort_claim(id)
        time.sleep(0.005)
    return Times(sorted(health), sorted(claimed))


def memory(host: Host, which: str) -> float:
    """MiB that the daemon has (VmRSS), or had at the most (VmHWM)."""
    lines = Path(f"/proc/{host.service.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{which}:")) / 1024


@dataclass(frozen=True)
class Row:
    """What one attack did. ``load`` is the machine's, of a minute, when it ended."""

    calm: Times
    attacked: Times
    grown: float
    load: float


def attacked(host: Host, name: str, seconds: float, *, claims: bool) -> Row:
    """Measure before the attack and while it goes on."""
    time.sleep(REST)
    turns = iter(range(CALM))
    calm = measured(host, lambda: next(turns, None) is not None, claims=claims)
    Path(f"/proc/{host.service.process.pid}/clear_refs").write_text("5")
    before = memory(host, "VmRSS")
    command = [
        sys.executable,
        "-m",
        "tests.support.attacks",
        str(host.command.socket),
        host.root,
        name,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as attacker:
        try:
            time.sleep(LEAD)
            end = time.monotonic() + seconds
            found = measured(host, lambda: time.monotonic() < end, claims=claims)
        finally:
            attacker.kill()
    return Row(calm, found, memory(host, "VmHWM") - before, os.getloadavg()[0])


@contextlib.contextmanager
def ready(host: Host) -> Iterator[Host]:
    with host.service.running():
        host.answers(host.client.readiness)
        host.root = next(iter(host.client.nodes()))["uuid"]  # type: ignore[attr-defined]
        # What is loaded only once it is asked for is no attack's.
        for _ in range(20):
            with contextlib.suppress(ApiProblem):
                host.client.metrics()
        yield host


def run(name: str, placement: HttpPlacement, seconds: float) -> Row:
    """One attack on a daemon of its own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-bench-")))
        placement.reset()
        host = Host(folder / "agent", placement.url)
        if "PostgreSQL" not in name:
            stack.enter_context(ready(host))
            if "Placement" in name:
                placement.suspend()
                stack.callback(placement.resume)
            return attacked(host, name, seconds, claims=True)
        postgresql = PostgreSQL()
        stack.callback(postgresql.remove)
        host.config["store"] = {"connection": postgresql.url(postgresql.create())}
        host.command.configure(host.config)
        stack.enter_context(ready(host))
        with postgresql.suspended():
            return attacked(host, name, seconds, claims=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    placement = HttpPlacement(Path(tempfile.mkdtemp(prefix="agent-bench-")))
    placement.start()
    print(
        "| attack | calm: health, claim | health: median | 99 % | worst | claim: median | 99 "
        "% | worst | memory | load |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    try:
        for name in ATTACKS:
            if not asked.names or any(one in name for one in asked.names):
                rows = [run(name, placement, asked.seconds) for _ in range(asked.runs)]
                print(
                    line(
                        name,
                        min(rows, key=lambda row: row.attacked.worst),
                        max(row.grown for row in rows),
                    ),
                    flush=True,
                )
    finally:
        placement.stop()


def line(name: str, row: Row, grown: float) -> str:
    """The calmest run, with the memory of the one that took most."""
    calm, found = row.calm, row.attacked
    cells = [
        name,
        f"{calm.health[-1]:.0f}, {calm.claims[-1]:.0f}"
        if calm.claims
        else f"{calm.health[-1]:.0f}, –",
    ]
    for times in (found.health, found.claims):
        cells += [
            f"{times[int(len(times) * part)]:.1f}" if times else "–" for part in (0.5, 0.99)
        ] + [f"{times[-1]:.0f}" if times else "–"]
    return "| " + " | ".join([*cells, f"+ {grown:.0f} MiB", f"{row.load:.1f}"]) + " |"


if __name__ == "__main__":
    main()
