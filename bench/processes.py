"""The measured processes: nova's tracker, and this agent. One starts, makes its passes one by one,
and ends.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.agent_driver import DRIVER, install
from bench.line_count import VARIABLE
from bench.placement_site import BenchPlacement
from bench.tree_driver import Tree
from tests.support.child import CHECKOUT
from tests.support.ini import Config, write_config

Peer = Literal["nova", "agent", "engine"]
"""nova's tracker, this agent, or nova's tracker with the agent's engine."""
SETTLED = 2
"""Passes after which the agent has read again what was changed."""
END = 60
"""Seconds that a process may take to end."""


@dataclass(frozen=True)
class Pass:
    """One piece of work: what the process reports of itself, and what Placement counted."""

    requests: int
    seconds: float
    cpu: float
    """Seconds of the processor in the measured process."""
    placement_cpu: float
    """Seconds of the processor in Placement."""
    lines: int | None
    """Lines of Python; a pass in which they were counted is not timed."""
    resident: float
    """MiB after the pass."""
    peak: float
    """MiB, the most there was."""
    threads: int
    errors: Sequence[str] = ()


class Process:
    """A running process that takes one message a line."""

    def __init__(
        self,
        command: Sequence[str],
        placement: BenchPlacement,
        path: Path | None = None,
        *,
        count_lines: bool = False,
    ) -> None:
        self._placement = placement
        environment = {**os.environ, **({"PYTHONPATH": str(path)} if path is not None else {})}
        if count_lines:
            # Libraries look through all variables with each request, which would count too.
            kept = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
            environment = {name: environment[name] for name in kept if name in environment}
            environment[VARIABLE] = "1"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=environment,
        )

    def ask(self, message: Mapping[str, Any]) -> tuple[Pass, Mapping[str, Any]]:
        """Have one piece of work done. Return its figures, and everything that the process said.

        :raises SystemExit: the process ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._placement.clear()
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the measured process ended; what it said is above")
        said: Mapping[str, Any] = json.loads(line)
        requests, placement_cpu = self._placement.counted()
        figures = Pass(
            requests,
            said["seconds"],
            said["cpu"],
            placement_cpu,
            said["lines"],
            said["resident"],
            said["peak"],
            said["threads"],
            tuple(said.get("errors", ())),
        )
        return figures, said

    def end(self) -> None:
        """Close its input, which ends it after its present work; if that takes long, kill it."""
        try:
            self._process.communicate(timeout=END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextmanager
def ended(process: Process) -> Iterator[Process]:
    """End the process at the end."""
    try:
        yield process
    finally:
        process.end()


@dataclass(frozen=True)
class Subject:
    """One of the two that are compared, on a Placement, with a folder for what it keeps.

    ``in_flight``: how many requests the agent may have under way; None: what the Placement takes.
    ``count_lines``: whether the agent counts the lines of Python that it executes.
    """

    peer: Peer
    placement: BenchPlacement
    nova_python: str
    folder: Path
    in_flight: int | None = None
    count_lines: bool = False

    @contextmanager
    def running(self) -> Iterator["Running"]:
        """A process of it; what it keeps is that of the process before."""
        with ended(self._process()) as process:
            yield Running(process, self.peer)

    def _process(self) -> Process:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.peer != "agent":
            arguments = [self.peer, self.placement.url, str(self.folder)]
            return Process(
                [
                    self.nova_python,
                    "-W",
                    "ignore",
                    "-m",
                    "bench.inside_nova_tracker",
                    *arguments,
                ],
                self.placement,
            )
        options: Config = {
            "DEFAULT": {"host": "bench", "compute_driver": DRIVER, "state_path": self.folder},
            "store": {"path": self.folder / "store"},
            "placement": {
                **self.placement.credentials(),
                "max_in_flight": self.in_flight or self.placement.in_flight,
            },
        }
        config = write_config(self.folder / "agent.conf", options)
        command = [sys.executable, "-m", "bench.agent_process", str(config)]
        return Process(
            command,
            self.placement,
            install(self.folder.parent / "driver"),
            count_lines=self.count_lines,
        )


class Running:
    """A running process of a subject."""

    def __init__(self, process: Process, peer: Peer) -> None:
        self._process, self._peer = process, peer

    def cycle(self, tree: Tree, consumers: Sequence[str] = ()) -> Pass:
        """Have it make one pass over this tree."""
        return self._process.ask({"tree": asdict(tree), "consumers": list(consumers)})[0]

    def settle(self, tree: Tree, consumers: Sequence[str]) -> None:
        """Have the agent or its engine make the passes that read again what was changed. nova makes
        none: it trusts what it wrote.
        """
        for _ in range(SETTLED if self._peer != "nova" else 0):
            self.cycle(tree, consumers)

    def keep(self, guests: Sequence[str]) -> None:
        """Have the agent record guests, as the orchestrator that built them does. nova's tracker
        has no records besides nova's database, and gets the guests with each pass.
        """
        if self._peer == "agent":
            self._process.ask({"claims": list(guests)})

    def claim(self, instance: str) -> Pass:
        """Have it claim room for an instance, and release the room again, which is not measured."""
        figures, _ = self._process.ask({"claims": [instance]})
        self._process.ask({"abort": instance})
        return figures
