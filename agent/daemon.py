"""The service: audits when they are due, obeys signals, tells systemd how it is."""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from threading import Event, Thread
from typing import NoReturn, TypeVar

from oslo_config import cfg

from agent.assembly import opened
from agent.audit_record import Mode
from agent.errors import AgentError, ConfigError, DriverError, DriverTimeout, NotReady, PlacementUnreachable
from agent.model.report import NodeReport, Problem, Report
from agent.news import News, summary
from agent.render.problems import problems_of
from agent.running import Running
from agent.schedule import Schedule
from agent.sd_notify import Notifier
from agent.signals import Signals
from agent.store.store import Store

LOG = logging.getLogger(__name__)

# How long work that is under way may go on after SIGTERM, in seconds; systemd and operators expect an end within 5.
GRACE = 3.0
# How often waiting for work looks at signals, in seconds.
TURN = 0.2
# After how long work is late, in seconds; systemd gives up on a service that is not ready after 90.
PATIENCE = 30.0
# The store stays open for as long as the process lives.
STORE_OPTIONS = ("path", "connection")

Result = TypeVar("Result")
Reread = Callable[[], cfg.ConfigOpts]
SetUpLog = Callable[[cfg.ConfigOpts], None]


class Daemon:
    """The loop. Whatever may block is done in a thread of its own, so that this one always hears the signals.

    ``reread`` makes the configuration anew, as the command line and the files say now; ``set_up_log`` logs as it says.
    """

    def __init__(self, conf: cfg.ConfigOpts, reread: Reread, set_up_log: SetUpLog, notifier: Notifier, signals: Signals) -> None:
        self._conf, self._reread, self._set_up_log = conf, reread, set_up_log
        self._notifier, self._signals, self._stopping = notifier, signals, Event()
        self._schedule, self._news = Schedule(conf.update_resources_interval), News()
        # What systemd knows: whether the service is ready, and what was wrong with the configuration it was asked to take.
        self._told_ready, self._refusal = False, ""
        self._begun = self._reread_asked = False

    def run(self) -> None:
        """Audit until told to stop.

        :raises AgentError: it could not even begin: configuration, store, identity, or a Placement that never will do.
        """
        self._notifier.status("starting")
        running = self._apart("looking at the configuration", lambda: Running(self._conf, self._stopping))
        with ExitStack() as stack:
            store = self._apart("opening the store", lambda: stack.enter_context(opened(self._conf)))
            try:
                self._rest()
                while not self._stopping.is_set():
                    if self._signals.reload:
                        running = self._reloaded(running, store)
                    self._cycle(running, store)
                    self._rest()
            finally:
                self._stopping.set()
                running.close()
        LOG.info("stopped")

    # --- one turn ---------------------------------------------------------------------------------------------

    def _cycle(self, running: Running, store: Store) -> None:
        """Audit every node, and tell of it."""
        errors: Sequence[Problem] = ()
        nodes: Sequence[NodeReport] = ()
        try:
            report = self._apart("an audit", lambda: self._audit(running, store))
            errors, nodes = report.errors, report.nodes
        except AgentError as error:
            # A driver may need what starts later than the agent; all else that keeps it from its first audit is there to stay.
            if not self._begun and not isinstance(error, DriverError):
                raise
            errors = problems_of(error)
        if self._stopping.is_set():
            return
        if not self._begun:
            _refuse_to_begin(errors, nodes)
        self._begun = True
        self._plan_next(errors, nodes)
        self._news.tell(errors, nodes)
        self._say(summary(errors, nodes, running.hanging))

    def _audit(self, running: Running, store: Store) -> Report:
        mode = Mode(start=True, reread=self._reread_asked)
        return running.start(store).run(mode, progress=lambda _name: self._notifier.watchdog())

    def _plan_next(self, errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
        lost = any(problem.code == PlacementUnreachable.code for node in nodes for problem in node.errors)
        if errors or lost or (nodes and all(node.state == "failed" for node in nodes)):
            self._schedule.failed()
        else:
            self._schedule.succeeded()
            self._reread_asked = False

    def _rest(self) -> None:
        """Until the next audit is due, or a signal comes."""
        self._listen(0)
        while not (self._stopping.is_set() or self._signals.reload):
            self._notifier.watchdog()
            if (left := self._schedule.due - time.monotonic()) <= 0:
                return
            self._listen(min(left, (self._notifier.watchdog_interval or math.inf) / 3))

    def _say(self, status: str) -> None:
        """Tell systemd; the first time also that the service is ready."""
        text = f"{status}; {self._refusal}" if self._refusal else status
        LOG.log(logging.DEBUG if self._told_ready else logging.INFO, text)
        (self._notifier.status if self._told_ready else self._notifier.ready)(text)
        self._told_ready = True

    # --- signals ----------------------------------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        """Take signals, and wait so long for one."""
        self._signals.take(seconds)
        if self._signals.stop and not self._stopping.is_set():
            LOG.info("stopping")
            self._notifier.stopping("stopping")
            self._stopping.set()

    def _apart(self, what: str, work: Callable[[], Result]) -> Result:
        """What ``work`` returns or raises, done while this thread listens. If it does not end in time after SIGTERM, the process does."""
        future: Future[Result] = Future()
        Thread(target=_do, args=(work, future), name=what, daemon=True).start()
        late = time.monotonic() + PATIENCE
        while not wait([future], TURN).done and not self._stopping.is_set():
            self._listen(0)
            if time.monotonic() > late:
                late = math.inf
                self._say(f"{what} takes longer than {PATIENCE:.0f} s")
        if not wait([future], GRACE).done:
            _leave(what)
        return future.result()

    def _reloaded(self, running: Running, store: Store) -> Running:
        """The fleet on the configuration as it is now, if all of that can be used; else say why, and go on with the old one."""
        self._signals.reload = False
        self._notifier.reloading("reloading the configuration")
        self._reread_asked = True
        problems: Sequence[Problem] = ()
        try:
            conf = self._reread()
            running = self._apart("reloading the configuration", lambda: self._changed(running, conf, store))
            self._schedule = Schedule(conf.update_resources_interval)
        except AgentError as error:
            problems = problems_of(error)
        if not self._stopping.is_set():
            for problem in problems:
                LOG.error("the new configuration is refused, the old one stays: %s (%s)", problem.message, problem.remedy)
            self._refusal = f"the new configuration is refused: {problems[0].message}" if problems else ""
            LOG.info("reading everything again, with the %s configuration", "old" if problems else "new")
            self._notifier.ready(self._refusal or "the configuration was reloaded")
            self._schedule.at_once()
        return running

    def _changed(self, before: Running, conf: cfg.ConfigOpts, store: Store) -> Running:
        """The fleet on ``conf``; the one before is only given up when this one is there.

        :raises AgentError: ``conf`` cannot be used; nothing has changed.
        """
        if any(before.conf.store[option] != conf.store[option] for option in STORE_OPTIONS):
            raise ConfigError("[store] path or connection has changed, and the store is open", "restart the agent to use another store")
        now = Running(conf, self._stopping)
        # A backend that is away says nothing against the configuration; the next audit tries again, and tells.
        with suppress(NotReady, DriverTimeout):
            now.start(store)
        try:
            self._set_up_log(conf)
        except ConfigError:
            self._set_up_log(before.conf)
            now.close()
            raise
        before.close()
        return now


def _refuse_to_begin(errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
    """End a start that no waiting will make a good one.

    :raises AgentError: the reason.
    """
    reasons = [problem for problem in errors if problem.fatal]
    by_node = [[problem for problem in node.errors if problem.fatal or node.state == "refused"] for node in nodes]
    if by_node and all(by_node):
        reasons += by_node[0]
    if reasons:
        raise AgentError(reasons[0].message, reasons[0].remedy)


def _do(work: Callable[[], Result], future: "Future[Result]") -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
        future.set_exception(error)


def _leave(what: str) -> NoReturn:
    """End the process now. Its threads would keep it alive, and all that has to last is in the store."""
    LOG.warning("stopped in the middle of %s that did not end; the next start goes on from there", what)
    logging.shutdown()
    os._exit(0)


def run(conf: cfg.ConfigOpts, reread: Reread, set_up_log: SetUpLog) -> int:
    """Be the daemon, in the foreground, until a signal ends it. Returns the exit code.

    :raises AgentError: it could not begin.
    """
    with Signals() as signals:
        Daemon(conf, reread, set_up_log, Notifier(), signals).run()
    return 0
