"""The daemon: a loop that audits when it is due, obeys signals, and reports to systemd."""

import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from oslo_config import cfg

from agent.api.local_api import LocalApi
from agent.api.record_views import RecordViews
from agent.api.service import Service
from agent.bootstrap.fleet import open_run_store
from agent.conf.default import host_name
from agent.errors import AgentBug, AgentError
from agent.model.names import printable
from agent.render.document import problems_of
from agent.service.audit_queue import DirtyNodes, Schedule
from agent.service.background import Background, Status
from agent.service.log_writer import WRITER
from agent.service.passes import Passes
from agent.service.runtime import Runtime, RuntimeBuilder, SetUpLog, Warn
from agent.service.systemd import Notifier, Signals
from agent.store.records import Records
from agent.store.store import Store

LOG = logging.getLogger(__name__)

# Seconds for which a computing thread keeps the interpreter from other threads.
SWITCH_SECONDS = 0.0005
# Seconds within which the files of a new configuration have to be read: a dead network file system
# does not answer at all.
READ_SECONDS = 10.0
UNREADABLE = (
    "check that the files of --config-file and of the folders --config-dir and "
    "[compute] provider_config_location can be read; then: agent reload"
)

Reread = Callable[[], cfg.ConfigOpts]


class Daemon:
    """The daemon's loop. Whatever may block runs in the background, so that the loop always takes
    the signals.

    ``reread`` builds the configuration anew from the command line and the files. ``set_up_log`` and
    ``warn``: see :class:`RuntimeBuilder`.
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
        self._conf, self._reread, self._signals = conf, reread, signals
        self._service = Service(signals.wake)
        self._api, self._status = (
            LocalApi(conf, self._service),
            Status(notifier, self._service),
        )
        self._background = Background(signals, self._service, self._api, self._status)
        dirty_nodes = DirtyNodes(signals.wake)
        self._runtimes = RuntimeBuilder(
            set_up_log, warn, self._background.stopping, dirty_nodes, self._api
        )
        self._passes = Passes(
            Schedule(conf.update_resources_interval),
            dirty_nodes,
            self._background,
            self._service,
            self._api,
            self._status,
        )

    def run(self) -> None:
        """Audit until a signal ends the daemon.

        :raises AgentError: the daemon could not start: configuration, store, identity, or a
            Placement that cannot be used.
        """
        self._status.notifier.status("starting")
        runtime = self._background.run(
            "checking the configuration", lambda: self._runtimes.build(self._conf)
        )
        with ExitStack() as stack:
            store = self._background.run(
                "opening the store", lambda: stack.enter_context(open_run_store(self._conf))
            )
            stopping = self._background.stopping
            try:
                # After the store, because its lock shows whether another agent runs here.
                self._service.set_records(RecordViews(Records(store), host_name(self._conf)))
                self._background.run("opening the local API", self._api.start)
                self._wait()
                while not stopping.is_set():
                    if self._signals.reload or self._service.reload_requested:
                        runtime = self._reload(runtime, store)
                    with self._passes.survive_bugs():
                        self._passes.run_due(runtime, store)
                    self._wait()
            finally:
                stopping.set()
                self._service.stop()
                self._api.stop()
                runtime.close()
                self._api.wait()
        LOG.info("stopped")

    def _reload(self, before: Runtime, store: Store) -> Runtime:
        """Return a runtime on the configuration as it is now; if that cannot be used, report why
        and return the one ``before``.
        """
        self._signals.reload = False
        self._service.begin_reload()
        self._status.begin_reload()
        self._passes.reread()
        runtime = before
        refusal: AgentError | None = None
        try:
            # Making a driver may take longer than a lease lasts.
            with before.keep_leases():
                conf = self._background.run(
                    "reading the configuration",
                    self._reread,
                    limit=READ_SECONDS,
                    late_remedy=UNREADABLE,
                )
                made = self._background.run(
                    "checking the configuration",
                    lambda: self._runtimes.rebuild(before, conf),
                    limit=READ_SECONDS + 2 * conf.compute.start_deadline,
                    late_remedy=UNREADABLE,
                )
                runtime = self._background.run(
                    "reloading the configuration",
                    lambda: self._runtimes.replace(before, made, store),
                )
        except AgentError as error:
            refusal = error
        except Exception as error:
            LOG.exception("reading the configuration")
            refusal = AgentBug.of(error)
        with self._passes.survive_bugs():
            if not self._background.stopping.is_set():
                accepted = refusal is None
                self._passes.restart(runtime.conf.update_resources_interval if accepted else None)
                self._status.end_reload(problems_of(refusal) if refusal is not None else ())
                self._service.end_reload(refusal)
        return runtime

    def _wait(self) -> None:
        """Wait until a pass is due, or a signal or a request comes."""
        with self._passes.survive_bugs():
            self._background.take_signals()
            watchdog = (self._status.notifier.watchdog_interval or math.inf) / 3
            while not (
                self._background.stopping.is_set()
                or self._signals.reload
                or self._service.has_requests
            ):
                self._status.notifier.watchdog()
                if (left := self._passes.due - time.monotonic()) <= 0:
                    return
                self._background.take_signals(min(left, watchdog))


def run(conf: cfg.ConfigOpts, reread: Reread, set_up_log: SetUpLog, warn: Warn) -> int:
    """Run the daemon in the foreground until a signal ends it. Return the exit code.

    :raises AgentError: the daemon could not start.
    """
    # A claim gives the interpreter up a dozen times, and would wait 5 ms for it each time while
    # another thread searches for cells.
    sys.setswitchinterval(SWITCH_SECONDS)
    threading.excepthook = _log_end_of_thread
    with Signals() as signals:
        # Here, because a thread from before this context would be ended by the signals.
        WRITER.take_over()
        Daemon(conf, reread, set_up_log, warn, Notifier(), signals).run()
    return 0


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log an exception that ended a thread, instead of printing it to stderr."""
    name = ended.thread.name if ended.thread is not None else "?"
    LOG.critical(
        "the thread %s was ended by %s",
        printable(name),
        ended.exc_type.__name__,
        exc_info=ended.exc_value,
    )
