"""The service: audits when they are due, obeys signals, tells systemd how it is."""

import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from oslo_config import cfg

from agent.assembly import assembled, made
from agent.audit_record import Mode
from agent.errors import AgentError, NotReady
from agent.fleet import Fleet
from agent.model.report import Report
from agent.sd_notify import Notifier

LOG = logging.getLogger(__name__)

DEFAULT_INTERVAL = 60.0
# How long a cycle that is under way may go on after SIGTERM, in seconds; systemd and operators expect an end within 5.
GRACE = 3.5
# How often waiting looks at signals and feeds the watchdog, in seconds.
TURN = 0.2
# The first audit comes at a random time within this part of the interval, so that hosts that start together spread.
START_JITTER = 0.1
FIRST_PAUSE = 1.0

Result = TypeVar("Result")
Reread = Callable[[], cfg.ConfigOpts]


class _Abandoned(Exception):
    """The process has to end although a cycle is still under way."""


class Daemon:
    """The loop. ``reread`` makes the configuration anew, as the command line and the files say now."""

    def __init__(self, conf: cfg.ConfigOpts, reread: Reread, notifier: Notifier) -> None:
        self._conf, self._reread, self._notifier = conf, reread, notifier
        self._stop, self._wake = threading.Event(), threading.Event()
        self._reload_asked = False
        self._everything = False
        self._failures = 0
        self._due = 0.0
        self._house = ExitStack()
        self._fleet: Fleet | None = None

    def run(self) -> int:
        """Audit until told to stop. Returns the exit code.

        :raises AgentError: it could not even begin: configuration, store, identity, or a Placement that never will do.
        """
        made(self._conf, self._stop, daemon=True)
        self._due = time.monotonic() + random.uniform(0, START_JITTER) * self._interval
        started = False
        try:
            while not self._stop.is_set():
                if self._reload_asked:
                    self._reload()
                status = self._cycle(starting=not started)
                LOG.log(logging.DEBUG if started else logging.INFO, status)
                (self._notifier.status if started else self._notifier.ready)(status)
                started = True
                self._rest()
        except _Abandoned:
            LOG.warning("stopped in the middle of an audit that did not end; the next start goes on from there")
            logging.shutdown()
            # Its threads would keep the interpreter from ending; everything durable is in the store already.
            os._exit(0)
        finally:
            self._notifier.stopping("stopping")
            self._house.close()
        return 0

    # --- signals ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End after the present cycle, or soon."""
        self._stop.set()
        self._wake.set()

    def reload(self) -> None:
        """Read the configuration anew at the next turn, and everything in Placement too."""
        self._reload_asked = True
        self._wake.set()

    # --- one turn ---------------------------------------------------------------------------------------------

    @property
    def _interval(self) -> float:
        configured = self._conf.update_resources_interval
        return float(configured) if configured > 0 else DEFAULT_INTERVAL

    def _cycle(self, *, starting: bool) -> str:
        """Wait until the audit is due, do it, and say how things are."""
        if starting and self._waited_until(self._due):
            return "stopping"
        try:
            report = self._in_background(self._audit)
        except NotReady as error:
            self._failed()
            LOG.warning("not ready: %s", error)
            return f"degraded: {error.message}"
        fatal = [problem for problem in report.errors if problem.fatal] if starting else []
        if fatal:
            raise AgentError(fatal[0].message, fatal[0].remedy)
        if starting and report.nodes and all(node.state == "refused" for node in report.nodes):
            raise AgentError(f"every node is refused: {report.nodes[0].errors[0].message}", report.nodes[0].errors[0].remedy)
        return self._told(report)

    def _audit(self) -> Report:
        if self._fleet is None:
            self._fleet = self._house.enter_context(assembled(self._conf, self._stop, daemon=True))
        mode = Mode(start=True, reread=self._everything)
        self._everything = False
        return self._fleet.run(mode, progress=lambda _name: self._notifier.watchdog())

    def _told(self, report: Report) -> str:
        """Log what went wrong, set the next time, and sum up."""
        problems = [*report.errors, *(problem for node in report.nodes for problem in node.errors)]
        for problem in problems:
            LOG.debug("%s: %s (%s)", problem.code, problem.message, problem.remedy)
        states = Counter(node.state for node in report.nodes)
        if report.errors or states["failed"]:
            self._failed()
        else:
            self._failures = 0
            self._next_due()
        summary = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no nodes"
        return f"degraded: {summary}; {problems[0].message}" if problems else f"ready: {summary}"

    def _next_due(self) -> None:
        """The next multiple of the interval; what was missed is not made up for."""
        now = time.monotonic()
        if self._conf.update_resources_interval < 0:
            self._due = float("inf")
            return
        self._due += self._interval
        if self._due < now:
            self._due = now + self._interval

    def _failed(self) -> None:
        """Pause, longer each time, never longer than the interval, and not in step with other hosts."""
        self._failures += 1
        self._due = time.monotonic() + random.uniform(0.5, 1.0) * min(self._interval, FIRST_PAUSE * 2 ** min(self._failures, 16))

    def _rest(self) -> None:
        self._waited_until(self._due)

    def _waited_until(self, due: float) -> bool:
        """Wait; returns whether the daemon has to stop."""
        while (left := due - time.monotonic()) > 0 and not self._stop.is_set() and not self._reload_asked:
            self._wake.wait(min(left, self._turn))
            self._wake.clear()
            self._notifier.watchdog()
        return self._stop.is_set()

    @property
    def _turn(self) -> float:
        """How long one wait may last: until the next signal, or until the watchdog is hungry."""
        return (self._notifier.watchdog_interval or 2 * DEFAULT_INTERVAL) / 3

    def _in_background(self, function: Callable[[], Result]) -> Result:
        """What ``function`` returns, while this thread stays free for signals.

        :raises _Abandoned: the process was told to stop, and the function did not come back in time.
        """
        results: list[Result] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                errors.append(error)

        thread = threading.Thread(target=work, name="cycle", daemon=True)
        thread.start()
        while thread.is_alive() and not self._stop.is_set():
            thread.join(TURN)
        thread.join(GRACE if self._stop.is_set() else None)
        if thread.is_alive():
            raise _Abandoned
        if errors:
            raise errors[0]
        return results[0]

    # --- reload -----------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Take the new configuration if all of it can be used; else say why, and go on with the old one."""
        self._reload_asked = False
        self._notifier.reloading("reloading the configuration")
        self._everything = True
        try:
            new = self._reread()
            self._in_background(lambda: made(new, self._stop, daemon=True))
            self._swap(new)
            LOG.info("the configuration was reloaded")
        except AgentError as error:
            LOG.error("the new configuration is refused, the old one stays: %s", error)
        self._due = time.monotonic()
        self._notifier.ready("reloaded")

    def _swap(self, new: cfg.ConfigOpts) -> None:
        """Build everything anew on ``new``.

        :raises AgentError: that did not work; the next cycle builds it on the old configuration.
        """
        self._house.close()
        self._fleet = None
        self._fleet = self._in_background(lambda: self._house.enter_context(assembled(new, self._stop, daemon=True)))
        self._conf = new


@contextmanager
def _signals(daemon: Daemon) -> Iterator[None]:
    """SIGTERM and SIGINT stop the daemon, SIGHUP reloads it."""
    handlers = {signal.SIGTERM: daemon.stop, signal.SIGINT: daemon.stop, signal.SIGHUP: daemon.reload}
    before = {number: signal.signal(number, lambda *_args, act=act: act()) for number, act in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(conf: cfg.ConfigOpts, reread: Reread) -> int:
    """Be the daemon, in the foreground, until a signal ends it. Returns the exit code.

    :raises AgentError: it could not begin.
    """
    daemon = Daemon(conf, reread, Notifier())
    with _signals(daemon):
        return daemon.run()
