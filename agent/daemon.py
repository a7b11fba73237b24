"""The service: audits when they are due, obeys signals, tells systemd how it is."""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from glob import escape
from threading import Event, Thread
from typing import TYPE_CHECKING, NoReturn, TypeVar

from oslo_config import cfg

from agent.api.access import Access
from agent.api.record_views import RecordViews
from agent.assembly import opened
from agent.audit_record import Mode
from agent.audit_requests import Asked
from agent.conf.default import host_name
from agent.errors import AgentError, ConfigError, DriverError, DriverTimeout, NotReady, PlacementUnreachable
from agent.model.exit_codes import exit_code
from agent.model.report import NodeReport, Problem, Report
from agent.news import News, summary
from agent.publishing import Publishing
from agent.render.json_report import dumps, report_document
from agent.render.problems import problems_of
from agent.running import Running
from agent.schedule import Schedule
from agent.sd_notify import Notifier
from agent.service import DaemonService
from agent.signals import Signals
from agent.store.records import Records
from agent.store.store import Store
from agent.version import agent_version

if TYPE_CHECKING:
    from agent.api.local_api import LocalApi

LOG = logging.getLogger(__name__)

# How long work that is under way may go on after SIGTERM, in seconds; systemd and operators expect an end within 5.
GRACE = 3.0
# How often waiting for work looks at signals, in seconds.
TURN = 0.2
# After how long work is late, in seconds; systemd gives up on a service that is not ready after 90.
PATIENCE = 30.0
# The store and the socket stay open for as long as the process lives.
LASTING = (("store", "path"), ("store", "connection"), ("api", "socket"), ("api", "group"))

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
        self._service = DaemonService(signals.wake)
        self._publishing = Publishing(signals.wake)
        self._api: LocalApi | None = None

    def run(self) -> None:
        """Audit until told to stop.

        :raises AgentError: it could not even begin: configuration, store, identity, or a Placement that never will do.
        """
        self._notifier.status("starting")
        running = self._apart("looking at the configuration", lambda: Running(self._conf, self._stopping, self._publishing.changed))
        with ExitStack() as stack:
            store = self._apart("opening the store", lambda: stack.enter_context(opened(self._conf)))
            self._service.opened(RecordViews(Records(store), host_name(self._conf)))
            try:
                # After the store, because that is what tells who else runs here.
                self._apart("opening the local API", self._open_api)
                self._rest()
                while not self._stopping.is_set():
                    if self._signals.reload or self._service.reload_wanted:
                        running = self._reloaded(running, store)
                    self._turn(running, store)
                    self._rest()
            finally:
                self._stopping.set()
                self._close_api()
                running.close()
                if self._api is not None:
                    self._api.wait()
        LOG.info("stopped")

    # --- one turn ---------------------------------------------------------------------------------------------

    def _turn(self, running: Running, store: Store) -> None:
        """Audit what is due, and what was asked for."""
        asked = self._service.audits.take(whole=True)
        if asked or not self._begun or self._schedule.due <= time.monotonic():
            self._cycle(running, store, asked)
        for one in self._service.audits.take(whole=False):
            if not self._stopping.is_set():
                self._special(running, store, one)
        if self._publishing.due <= time.monotonic() and not self._stopping.is_set():
            self._publish(running, store)

    def _cycle(self, running: Running, store: Store, asked: Sequence[Asked]) -> None:
        """Audit every node, and tell of it."""
        # What changes from here on may come too late for this audit.
        self._publishing.take()
        try:
            report = self._apart("an audit", lambda: self._audit(running, store))
        except AgentError as error:
            # A driver may need what starts later than the agent; all else that keeps it from its first audit is there to stay.
            if not self._begun and not isinstance(error, DriverError):
                raise
            report = _failure(running, error)
        if self._stopping.is_set():
            return
        if not self._begun:
            _refuse_to_begin(report.errors, report.nodes)
        self._begun = True
        self._plan_next(report.errors, report.nodes)
        self._news.tell(report.errors, report.nodes)
        self._show(report, asked, running.hanging, whole=True)
        self._say(summary(report.errors, report.nodes, running.hanging))

    def _audit(self, running: Running, store: Store) -> Report:
        self._service.measured(running.monitors.poll())
        fleet = running.start(store)
        self._service.serves(fleet.house, audited=False)
        report = fleet.run(Mode(start=True, reread=self._reread_asked), progress=self._progress)
        self._service.serves(fleet.house, audited=True)
        return report

    def _special(self, running: Running, store: Store, asked: Asked) -> None:
        """An audit that is none of the daemon's own: of some nodes only, or a dry run."""

        def audit() -> Report:
            fleet = running.start(store)
            names = [escape(name) for name in asked.nodes]
            return (fleet.rehearsal() if asked.dry_run else fleet).run(Mode(dry_run=asked.dry_run, start=not asked.dry_run), names, self._progress)

        try:
            report = self._apart(f"audit {asked.id}", audit)
        except AgentError as error:
            report = replace(_failure(running, error), dry_run=asked.dry_run)
        if not self._stopping.is_set():
            self._show(report, [asked], running.hanging, whole=False)

    def _publish(self, running: Running, store: Store) -> None:
        """Audit the nodes of which something has changed."""
        nodes = sorted(self._publishing.take())
        with suppress(AgentError):
            report = self._apart("publishing", lambda: running.start(store).run(Mode(start=True), nodes, self._progress, refresh=False))
            if not self._stopping.is_set():
                self._show(report, [], running.hanging, whole=False)

    def _show(self, report: Report, asked: Sequence[Asked], hanging: int, *, whole: bool) -> None:
        """Tell those who look at the agent or have asked for this."""
        self._service.audited(report, whole=whole)
        if self._api is not None:
            self._api.metrics.audited(report, hanging, whole=whole)
        if asked:
            document = report_document(replace(report, exit_code=exit_code(report.nodes, report.errors)))
            self._service.audits.answer(asked, dumps(document).encode())

    def _progress(self, _count: int) -> Callable[[str], None]:
        def goes_on(_name: str) -> None:
            self._notifier.watchdog()
            self._service.goes_on()

        return goes_on

    def _plan_next(self, errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
        lost = any(problem.code == PlacementUnreachable.code for node in nodes for problem in node.errors)
        if errors or lost or (nodes and all(node.state == "failed" for node in nodes)):
            self._schedule.failed()
        else:
            self._schedule.succeeded()
            self._reread_asked = False

    def _rest(self) -> None:
        """Until the next audit is due, or a signal or a request comes."""
        self._listen(0)
        while not (self._stopping.is_set() or self._signals.reload or self._service.wanted):
            self._notifier.watchdog()
            if (left := min(self._schedule.due, self._publishing.due) - time.monotonic()) <= 0:
                return
            self._listen(min(left, (self._notifier.watchdog_interval or math.inf) / 3))

    def _say(self, status: str) -> None:
        """Tell systemd; the first time also that the service is ready."""
        text = f"{status}; {self._refusal}" if self._refusal else status
        LOG.log(logging.DEBUG if self._told_ready else logging.INFO, text)
        (self._notifier.status if self._told_ready else self._notifier.ready)(text)
        self._told_ready = True
        self._service.says(text)

    # --- the local API ----------------------------------------------------------------------------------------

    def _open_api(self) -> None:
        if self._conf.api.socket:
            # Here, because it takes memory that an agent without it saves.
            from agent.api.local_api import LocalApi

            api = LocalApi(self._conf, self._service)
            api.start()
            self._api = api

    def _close_api(self) -> None:
        """At once, so that whoever waits for an answer gets one."""
        self._service.stops()
        if self._api is not None:
            self._api.stop()

    # --- signals ----------------------------------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        """Take signals, and wait so long for one."""
        self._signals.take(seconds)
        if self._signals.stop and not self._stopping.is_set():
            LOG.info("stopping")
            self._notifier.stopping("stopping")
            self._stopping.set()
            self._close_api()

    def _apart(self, what: str, work: Callable[[], Result]) -> Result:
        """What ``work`` returns or raises, done while this thread listens. If it does not end in time after SIGTERM, the process does."""
        self._service.begins(what)
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
        self._service.ends()
        return future.result()

    def _reloaded(self, running: Running, store: Store) -> Running:
        """The fleet on the configuration as it is now, if all of that can be used; else say why, and go on with the old one."""
        self._signals.reload = False
        self._service.reloads()
        self._notifier.reloading("reloading the configuration")
        self._reread_asked = True
        refusal: AgentError | None = None
        try:
            conf = self._reread()
            running = self._apart("reloading the configuration", lambda: self._changed(running, conf, store))
            self._schedule = Schedule(conf.update_resources_interval)
        except AgentError as error:
            refusal = error
        if not self._stopping.is_set():
            problems = problems_of(refusal) if refusal is not None else ()
            for problem in problems:
                LOG.error("the new configuration is refused, the old one stays: %s (%s)", problem.message, problem.remedy)
            self._refusal = f"the new configuration is refused: {problems[0].message}" if problems else ""
            LOG.info("reading everything again, with the %s configuration", "old" if problems else "new")
            self._notifier.ready(self._refusal or "the configuration was reloaded")
            self._schedule.at_once()
            self._service.reloaded(refusal)
        return running

    def _changed(self, before: Running, conf: cfg.ConfigOpts, store: Store) -> Running:
        """The fleet on ``conf``; the one before is only given up when this one is there.

        :raises AgentError: ``conf`` cannot be used; nothing has changed.
        """
        changed = [f"[{group}] {option}" for group, option in LASTING if before.conf[group][option] != conf[group][option]]
        if changed:
            raise ConfigError(f"{', '.join(changed)}: changed, and in use for as long as the agent runs", "restart the agent to have it otherwise")
        now = Running(conf, self._stopping, self._publishing.changed)
        # A backend that is away says nothing against the configuration; the next audit tries again, and tells.
        with suppress(NotReady, DriverTimeout):
            now.start(store)
        try:
            self._set_up_log(conf)
        except ConfigError:
            self._set_up_log(before.conf)
            now.close()
            raise
        if self._api is not None:
            self._api.allow(Access.from_options(conf))
        before.close()
        return now


def _failure(running: Running, error: AgentError) -> Report:
    """The report of an audit that could not even begin."""
    return Report(
        version=agent_version(), host=host_name(running.conf), mode="http", endpoint=None, max_version=None, dry_run=False, errors=problems_of(error),
    )  # fmt: skip


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
