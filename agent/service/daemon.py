"""The daemon: audits when they are due, handles signals, and reports its state to systemd."""

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from glob import escape
from threading import Event, Thread
from typing import TYPE_CHECKING, NoReturn, TypeVar

from oslo_config import cfg

from agent.api.access import Access
from agent.api.record_views import RecordViews
from agent.audit.run import AuditOptions
from agent.bootstrap import open_run_store
from agent.conf.default import host_name
from agent.driver.worker import Outcome
from agent.errors import (
    AgentBug,
    AgentError,
    ConfigError,
    DriverError,
    DriverTimeout,
    NotReady,
    PlacementUnreachable,
    StoreError,
)
from agent.model.names import printable
from agent.model.report import AgentState, NodeReport, Problem, Report, exit_code
from agent.render.json_report import dumps, problems_of, report_document
from agent.service.audit_queue import RequestedAudit
from agent.service.daemon_service import DaemonService
from agent.service.problem_log import ProblemLog, agent_state, summary
from agent.service.runtime import Runtime
from agent.service.schedule import DirtyNodes, Schedule
from agent.service.signals import Signals
from agent.service.systemd import Notifier
from agent.store.records import Records
from agent.store.store import Store
from agent.version import agent_version

if TYPE_CHECKING:
    from agent.api.local_api import LocalApi

LOG = logging.getLogger(__name__)

# Seconds that work under way may go on after SIGTERM; systemd and operators expect an end within 5.
GRACE = 3.0
# Seconds for which a computing thread keeps the interpreter from other threads.
SWITCH_SECONDS = 0.0005
# Seconds between looks at the signals while waiting for work.
TURN = 0.2
# Seconds after which work counts as late; systemd gives up on a service that is not ready after 90.
PATIENCE = 30.0
# Options that only a restart can change: store and sockets stay open for the life of the process.
LASTING = (
    ("store", "path"),
    ("store", "connection"),
    ("api", "socket"),
    ("api", "group"),
    ("api", "metrics_address"),
)

Result = TypeVar("Result")
Reread = Callable[[], cfg.ConfigOpts]
SetUpLog = Callable[[cfg.ConfigOpts], None]
Warn = Callable[[cfg.ConfigOpts, bool], None]


class Daemon:
    """The daemon's loop. Whatever may block runs in a thread of its own, so that the loop always
    hears the signals.

    ``reread`` builds the configuration anew from the command line and the files; ``set_up_log``
    sets up logging as a configuration says; ``warn`` logs options that may be mistakes, and takes
    whether the configuration could be used.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        reread: Reread,
        set_up_log: SetUpLog,
        warn: Warn,
        notifier: Notifier,
        signals: Signals,
    ) -> None:
        self._conf, self._reread, self._set_up_log, self._warn = conf, reread, set_up_log, warn
        self._notifier, self._signals, self._stopping = notifier, signals, Event()
        self._schedule, self._news = Schedule(conf.update_resources_interval), ProblemLog()
        # ``_told_ready``: systemd was told that the service is ready. ``_refusal``: why the last
        # new configuration was refused.
        self._told_ready, self._refusal = False, ""
        self._state: AgentState = "starting"
        self._begun = self._reread_asked = False
        # As last reported by an audit of all nodes that had any.
        self._nodes: Sequence[NodeReport] = ()
        self._service = DaemonService(signals.wake)
        self._publishing = DirtyNodes(signals.wake)
        self._api: LocalApi | None = None

    def run(self) -> None:
        """Audit until a signal ends the daemon.

        :raises AgentError: the daemon could not start: configuration, store, identity, or a
            Placement that cannot be used.
        """
        self._notifier.status("starting")
        running = self._apart("looking at the configuration", lambda: self._running(self._conf))
        with ExitStack() as stack:
            store = self._apart(
                "opening the store", lambda: stack.enter_context(open_run_store(self._conf))
            )
            self._service.opened(RecordViews(Records(store), host_name(self._conf)))
            try:
                # After the store, because its lock shows whether another agent runs here.
                self._apart("opening the local API", self._open_api)
                with self._surviving():
                    self._rest()
                while not self._stopping.is_set():
                    if self._signals.reload or self._service.reload_wanted:
                        running = self._reloaded(running, store)
                    with self._surviving():
                        self._turn(running, store)
                    with self._surviving():
                        self._rest()
            finally:
                self._stopping.set()
                self._close_api()
                running.close()
                if self._api is not None:
                    self._api.wait()
        LOG.info("stopped")

    def _running(self, conf: cfg.ConfigOpts) -> Runtime:
        """Return a runtime on ``conf``. Unread options are reported afterwards, because a driver
        has options of its own; also when it fails.
        """
        usable = False
        try:
            found = Runtime(conf, self._stopping, self._publishing.changed, self)
            usable = True
        finally:
            self._warn(conf, usable)
        return found

    # --- one turn ---------------------------------------------------------------------------------

    def _turn(self, running: Runtime, store: Store) -> None:
        """Audit what is due, and what was requested."""
        if self._api is not None:
            self._api.keep_up()
        asked = self._service.audits.take(whole=True)
        if asked or not self._begun or self._schedule.due <= time.monotonic():
            with self._surviving(running, asked):
                self._cycle(running, store, asked)
        for one in self._service.audits.take(whole=False):
            if not self._stopping.is_set():
                with self._surviving(running, [one]):
                    self._special(running, store, one)
        if self._publishing.due <= time.monotonic() and not self._stopping.is_set():
            with self._surviving():
                self._publish(running, store)

    @contextmanager
    def _surviving(
        self, running: Runtime | None = None, asked: Sequence[RequestedAudit] = ()
    ) -> Iterator[None]:
        """Keep a bug in the block from ending the daemon: report it, also to the requests in
        ``asked``, and try again soon.
        """
        try:
            yield
        except AgentError:
            raise
        except Exception as error:
            LOG.exception("what the daemon did")
            bug = AgentBug.of(error)
        else:
            return
        # Not at once, whatever fails.
        self._schedule.failed()
        self._stopping.wait(TURN)
        self._told_bug(bug, running, asked)

    def _told_bug(
        self, bug: AgentBug, running: Runtime | None, asked: Sequence[RequestedAudit]
    ) -> None:
        """Report a bug to systemd and to the requests in ``asked``, unless that fails too."""
        try:
            if running is not None:
                failure = _failure(running, bug)
                self._show(failure, running.hanging, whole=True)
                self._answer(failure, asked)
            self._say(f"degraded: {bug.message}")
        except Exception:
            LOG.exception("telling of a failure")

    def _cycle(self, running: Runtime, store: Store, asked: Sequence[RequestedAudit]) -> None:
        """Audit every node, and report the result."""
        # A change from here on may be too late for this audit.
        self._publishing.take()
        try:
            report = self._apart("an audit", lambda: self._audit(running, store, asked=bool(asked)))
        except AgentError as error:
            # A driver may need a service that starts later than the agent, and a bug may not come
            # again; any other error before the first audit is permanent.
            if not self._begun and not isinstance(error, DriverError | AgentBug):
                raise
            report = _failure(running, error)
        if self._stopping.is_set():
            return
        if not self._begun:
            _refuse_to_begin(report.errors, report.nodes)
        self._begun, self._nodes = True, report.nodes or self._nodes
        self._plan_next(report.errors, report.nodes)
        self._news.tell(report.errors, report.nodes)
        self._show(report, running.hanging, whole=True)
        self._say(summary(report.errors, report.nodes, running.hanging))
        self._answer(report, asked)

    def _audit(self, running: Runtime, store: Store, *, asked: bool) -> Report:
        """Poll the monitors and audit every node."""
        self._service.measured(running.monitors.poll())
        fleet = running.start(store)
        self._service.serves(fleet.context, audited=False)
        report = fleet.run(
            AuditOptions(start=True, reread=self._reread_asked, asked=asked),
            progress=self._progress,
        )
        self._service.serves(fleet.context, audited=True)
        return _with_store(report, store, self._nodes)

    def _special(self, running: Runtime, store: Store, asked: RequestedAudit) -> None:
        """Run a requested audit of some nodes, or a requested dry run."""

        def audit() -> Report:
            fleet = running.start(store)
            names = [escape(name) for name in asked.nodes]
            mode = AuditOptions(dry_run=asked.dry_run, start=not asked.dry_run, asked=True)
            if asked.dry_run:
                return fleet.rehearsal().run(mode, names, self._progress)
            return _with_store(fleet.run(mode, names, self._progress), store, ())

        try:
            report = self._apart(f"audit {asked.id}", audit)
        except AgentError as error:
            report = replace(_failure(running, error), dry_run=asked.dry_run)
        if not self._stopping.is_set():
            self._show(report, running.hanging, whole=False)
            self._tell_bugs(report, running)
            self._answer(report, [asked])

    def _publish(self, running: Runtime, store: Store) -> None:
        """Audit the nodes that have changed."""
        nodes = sorted(self._publishing.take())
        try:
            report = self._apart(
                "publishing",
                lambda: _with_store(
                    running.start(store).run(
                        AuditOptions(start=True), nodes, self._progress, refresh=False
                    ),
                    store,
                    (),
                ),
            )
        except AgentError as error:
            report = _failure(running, error)
        if self._stopping.is_set():
            return
        self._show(report, running.hanging, whole=False)
        self._tell_bugs(report, running)

    def _tell_bugs(self, report: Report, running: Runtime) -> None:
        """Report a bug in an audit of some nodes to systemd; the next audit of all nodes shows
        whether it lasts.
        """
        if any(one.code == AgentBug.code for one in report.errors):
            self._schedule.failed()
            self._say(summary(report.errors, (), running.hanging))

    def _show(self, report: Report, hanging: int, *, whole: bool) -> None:
        """Hand a report to the local API and to the metrics."""
        self._service.audited(report, whole=whole)
        if self._api is not None:
            self._api.metrics.audited(report, hanging, whole=whole)

    def _answer(self, report: Report, asked: Sequence[RequestedAudit]) -> None:
        """Hand a report to the requests in ``asked``: last, because a client that has it may ask
        for the status at once.
        """
        if asked:
            document = report_document(
                replace(report, exit_code=exit_code(report.nodes, report.errors))
            )
            self._service.audits.answer(asked, dumps(document).encode())

    def _progress(self, _count: int) -> Callable[[str], None]:
        def goes_on(_name: str) -> None:
            self._notifier.watchdog()
            self._service.goes_on()

        return goes_on

    def _plan_next(self, errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
        lost = any(
            problem.code == PlacementUnreachable.code for node in nodes for problem in node.errors
        )
        if errors or lost or (nodes and all(node.state == "failed" for node in nodes)):
            self._schedule.failed()
        else:
            self._schedule.succeeded()
            self._reread_asked = False

    def _rest(self) -> None:
        """Wait until the next audit is due, or a signal or a request comes."""
        self._listen(0)
        while not (self._stopping.is_set() or self._signals.reload or self._service.wanted):
            self._notifier.watchdog()
            if (left := min(self._schedule.due, self._publishing.due) - time.monotonic()) <= 0:
                return
            self._listen(min(left, (self._notifier.watchdog_interval or math.inf) / 3))

    def _say(self, status: str) -> None:
        """Tell systemd the status; the first time also that the service is ready."""
        text = f"{status}; {self._refusal}" if self._refusal else status
        self._state = agent_state(status)
        LOG.log(logging.DEBUG if self._told_ready else logging.INFO, text)
        (self._notifier.status if self._told_ready else self._notifier.ready)(text)
        self._told_ready = True
        self._service.says(text)

    def requested(self, method: str, status: int | None, seconds: float) -> None:
        """Count a request to Placement."""
        if self._api is not None:
            self._api.metrics.requested(method, status, seconds)

    def called(self, call: str, outcome: Outcome, seconds: float) -> None:
        """Count a call of the driver."""
        if self._api is not None:
            self._api.metrics.called(call, outcome, seconds)

    # --- the local API ----------------------------------------------------------------------------

    def _open_api(self) -> None:
        if self._conf.api.socket:
            # Imported here, because it takes memory that an agent without it saves.
            from agent.api.local_api import LocalApi

            api = LocalApi(self._conf, self._service)
            api.start()
            self._api = api
            api.start_figures()

    def _close_api(self) -> None:
        """Stop the API at once, so that every waiting request gets an answer."""
        self._service.stops()
        if self._api is not None:
            self._api.stop()

    # --- signals ----------------------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        """Take signals, and wait up to ``seconds`` for one."""
        self._signals.take(seconds)
        if self._signals.stop and not self._stopping.is_set():
            LOG.info("stopping")
            self._notifier.stopping("stopping")
            self._stopping.set()
            self._close_api()

    def _apart(self, what: str, work: Callable[[], Result]) -> Result:
        """Run ``work`` in a thread while this thread listens to signals; return or raise what it
        does. The process ends if ``work`` does not end in time after SIGTERM.

        :raises AgentBug: ``work`` raised anything but an :class:`AgentError`.
        """
        self._service.begins(what)
        future: Future[Result] = Future()
        Thread(target=_do, args=(work, future), name=what, daemon=True).start()
        late = time.monotonic() + PATIENCE
        while not wait([future], TURN).done and not self._stopping.is_set():
            self._listen(0)
            if time.monotonic() > late:
                late = math.inf
                self._say(f"{self._state}: {what} takes longer than {PATIENCE:.0f} s")
        if not wait([future], GRACE).done:
            _leave(what)
        self._service.ends()
        try:
            return future.result()
        except AgentError:
            raise
        except BaseException as error:
            # Also SystemExit and the like, because it ended the thread that did the work and not
            # this one.
            LOG.critical("%s", what, exc_info=True)
            raise AgentBug.of(error) from error

    def _reloaded(self, running: Runtime, store: Store) -> Runtime:
        """Return a runtime on the configuration as it is now; if that cannot be used, report why
        and return ``running``.
        """
        self._signals.reload = False
        self._service.reloads()
        self._notifier.reloading("reloading: the configuration is read again")
        self._reread_asked = True
        refusal: AgentError | None = None
        try:
            conf = self._reread()
            running = self._apart(
                "reloading the configuration",
                lambda: self._changed_keeping_leases(running, conf, store),
            )
            self._schedule = Schedule(conf.update_resources_interval)
        except AgentError as error:
            refusal = error
        except Exception as error:
            LOG.exception("reading the configuration")
            refusal = AgentBug.of(error)
        with self._surviving():
            self._tell_reload(refusal)
        return running

    def _tell_reload(self, refusal: AgentError | None) -> None:
        """Report to log, systemd and API how the reload ended."""
        if not self._stopping.is_set():
            problems = problems_of(refusal) if refusal is not None else ()
            for problem in problems:
                LOG.error(
                    "the new configuration is refused, the old one stays: %s (%s)",
                    problem.message,
                    problem.remedy,
                )
            self._refusal = (
                f"the new configuration is refused: {problems[0].message}" if problems else ""
            )
            LOG.info(
                "reading everything again, with the %s configuration", "old" if problems else "new"
            )
            self._notifier.ready(
                f"{self._state}: {self._refusal or 'the configuration was reloaded'}"
            )
            self._schedule.at_once()
            self._service.reloaded(refusal)

    def _changed_keeping_leases(
        self, before: Runtime, conf: cfg.ConfigOpts, store: Store
    ) -> Runtime:
        """Call :meth:`_changed` while the leases are renewed, because starting a driver may take
        longer than a lease lasts.
        """
        with before.keeping_leases():
            return self._changed(before, conf, store)

    def _changed(self, before: Runtime, conf: cfg.ConfigOpts, store: Store) -> Runtime:
        """Return a runtime on ``conf``; the one before is closed only once this one is ready.

        :raises AgentError: ``conf`` cannot be used; nothing has changed.
        """
        changed = [
            f"[{group}] {option}"
            for group, option in LASTING
            if before.conf[group][option] != conf[group][option]
        ]
        if changed:
            raise ConfigError(
                f"{', '.join(changed)}: changed, and in use for as long as the agent runs",
                "restart the agent to have it otherwise",
            )
        now = self._running(conf)
        try:
            access = Access.from_options(conf)
            # An unavailable backend does not make the configuration wrong; the next audit tries
            # again, and reports it.
            with suppress(NotReady, DriverTimeout):
                now.start(store)
            try:
                self._set_up_log(conf)
            except BaseException:
                self._set_up_log(before.conf)
                raise
        except BaseException:
            now.close()
            raise
        if self._api is not None:
            self._api.allow(access)
        try:
            before.close(now)
        except Exception:
            # From here on the new runtime is the one in use.
            LOG.exception("closing what the old configuration made")
        return now


def _failure(running: Runtime, error: AgentError) -> Report:
    """Return the report of an audit that could not begin."""
    return Report(
        version=agent_version(),
        host=host_name(running.conf),
        mode="http",
        endpoint=None,
        max_version=None,
        dry_run=False,
        errors=problems_of(error),
    )


def _with_store(report: Report, store: Store, before: Sequence[NodeReport]) -> Report:
    """Return the report, degraded if the store cannot be written, because then no claim can be
    made, even if no audit had anything to write.

    ``before``: the nodes as last reported, for a pass that did not get as far as any node.
    """
    try:
        store.check_writable()
    except StoreError as error:
        (problem,) = problems_of(error)
        # The nodes of ``before`` were not audited in this pass.
        nodes = tuple(
            _degraded(node, problem)
            for node in report.nodes
            or [replace(one, seconds={}, requests={}, outcomes=()) for one in before]
        )
        others = tuple(one for one in report.errors if one.code != StoreError.code)
        return replace(report, nodes=nodes, errors=others if nodes else (*others, problem))
    return report


def _degraded(node: NodeReport, problem: Problem) -> NodeReport:
    others = tuple(one for one in node.errors if one.code != StoreError.code)
    return (
        node
        if node.state == "refused"
        else replace(
            node, state="degraded" if not others else node.state, errors=(*others, problem)
        )
    )


def _refuse_to_begin(errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
    """End a start that no waiting can mend.

    :raises AgentError: the reason.
    """
    reasons = [problem for problem in errors if problem.fatal]
    # A refused node is no reason: the daemon tries it again, later each time.
    by_node = [[problem for problem in node.errors if problem.fatal] for node in nodes]
    if by_node and all(by_node):
        reasons += by_node[0]
    if reasons:
        raise AgentError(reasons[0].message, reasons[0].remedy)


def _do(work: Callable[[], Result], future: "Future[Result]") -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
        future.set_exception(error)


def _tell_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log an exception that ended a thread, instead of printing it to stderr."""
    name = ended.thread.name if ended.thread is not None else "?"
    LOG.critical(
        "the thread %s was ended by %s",
        printable(name),
        ended.exc_type.__name__,
        exc_info=ended.exc_value,
    )


def _leave(what: str) -> NoReturn:
    """End the process now. Its threads would keep it alive, and all persistent state is in the
    store.
    """
    LOG.warning(
        "stopped in the middle of %s that did not end; the next start goes on from there", what
    )
    logging.shutdown()
    os._exit(0)


def run(conf: cfg.ConfigOpts, reread: Reread, set_up_log: SetUpLog, warn: Warn) -> int:
    """Run the daemon in the foreground until a signal ends it. Return the exit code.

    :raises AgentError: the daemon could not start.
    """
    # A claim gives the interpreter up a dozen times, and would wait 5 ms for it each time while
    # another thread searches for cells.
    sys.setswitchinterval(SWITCH_SECONDS)
    threading.excepthook = _tell_of_thread
    with Signals() as signals:
        Daemon(conf, reread, set_up_log, warn, Notifier(), signals).run()
    return 0
