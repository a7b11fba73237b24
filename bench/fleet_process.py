"""Several agents in one process, each with a configuration, a store and a thread of its own; the
bench of a fleet asks for what they do: a line in, all agents do it, the times of their passes out.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from agent.audit.context import AuditOptions
from agent.audit.fleet import Fleet
from agent.bootstrap.fleet import running_fleet
from agent.cli.command import Options, Source
from agent.cli.configuration import load
from agent.service.audit_queue import Schedule
from bench.figures import Message, Stopwatch, serve


class Agent:
    """One agent, which makes passes as the daemon's loop does."""

    def __init__(self, config: Path) -> None:
        self._conf = load(Options(sources=(Source(config),)))
        self._stack = ExitStack()
        self._fleet: Fleet | None = None

    def start(self) -> list[Message]:
        """Open the store and start the driver."""
        self._fleet = self._stack.enter_context(running_fleet(self._conf, Event()))
        return []

    def stop(self) -> list[Message]:
        """Close everything; what was saved stays."""
        self._stack.close()
        return []

    def storm(self, begin: float) -> list[Message]:
        """Make one pass at the moment ``begin`` (epoch)."""
        time.sleep(max(0.0, begin - time.time()))
        return [self._pass()]

    def daemon_start(self, begin: float, interval: int) -> list[Message]:
        """Make the first two passes of a daemon that starts at ``begin``: one on the saved mirror,
        and one at the host's own offset within the interval.
        """
        time.sleep(max(0.0, begin - time.time()))
        schedule, passes = Schedule(interval), []
        for on_mirror in (True, False):
            time.sleep(max(0.0, schedule.due - time.monotonic()))
            passes.append(self._pass(on_mirror=on_mirror))
            schedule.plan_after_success()
        return passes

    def period(self, begin: float, seconds: float, interval: int) -> list[Message]:
        """Make the passes that the daemon's schedule has in so many seconds from ``begin`` on,
        without the one at its start.
        """
        time.sleep(max(0.0, begin - time.time()))
        schedule, end = Schedule(interval), time.monotonic() + seconds
        schedule.plan_after_success()
        passes = []
        while schedule.due < end:
            time.sleep(max(0.0, schedule.due - time.monotonic()))
            passes.append(self._pass())
            schedule.plan_after_success()
        return passes

    def _pass(self, *, on_mirror: bool = False) -> Message:
        assert self._fleet is not None
        begun = time.perf_counter()
        report = self._fleet.run(AuditOptions(start=True, on_mirror=on_mirror))
        errors = [*report.errors, *(error for node in report.nodes for error in node.errors)]
        return {
            "seconds": time.perf_counter() - begun,
            "errors": [problem.message for problem in errors],
        }


class Agents:
    """All agents of this process."""

    def __init__(self, configs: Sequence[Path]) -> None:
        self._agents = [Agent(config) for config in configs]
        self._pool = ThreadPoolExecutor(len(configs))

    def work(self, message: Message) -> Message:
        """Have all agents do what ``do`` says, with the rest of the message: see :class:`Agent`."""
        name = message.pop("do")
        # Those that open and close a store do so one after the other.
        each = map if name in ("start", "stop") else self._pool.map
        passes = each(lambda agent: getattr(agent, name)(**message), self._agents)
        return {"passes": [made for of_agent in passes for made in of_agent]}


def main() -> None:
    """Argument: a folder, with a folder for each agent."""
    stopwatch = Stopwatch()
    configs = sorted(Path(sys.argv[1]).glob("*/agent.conf"))
    serve(stopwatch, Agents(configs).work)


if __name__ == "__main__":
    main()
