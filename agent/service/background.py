"""Runs the daemon's work in a thread while the daemon's own thread takes signals."""

import logging
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Event
from typing import Any, NoReturn, TypeVar

from agent.driver.worker import start_thread
from agent.errors import AgentBug, AgentError, ConfigError
from agent.service.daemon_service import DaemonService
from agent.service.log_writer import WRITER
from agent.service.runtime import OptionalApi
from agent.service.status import Status
from agent.service.systemd import Signals

LOG = logging.getLogger(__name__)

# Seconds that work under way may go on after SIGTERM; systemd and operators expect an end within 5.
GRACE = 3.0
# Seconds between looks at the signals while work is under way.
POLL = 0.2
# Seconds after which work counts as late; systemd gives up on a service that is not ready after 90.
PATIENCE = 30.0
# How many pieces of abandoned work may hang; each keeps a thread.
MOST_ABANDONED = 4

Result = TypeVar("Result")


class Background:
    """Runs one piece of work at a time; the thread that waits for it takes the signals. Once
    ``stopping`` is set, the work has :data:`GRACE` seconds to end.
    """

    def __init__(
        self, signals: Signals, service: DaemonService, api: OptionalApi, status: Status
    ) -> None:
        self.stopping = Event()
        self._signals, self._service, self._api, self._status = signals, service, api, status
        self._abandoned: list[Future[Any]] = []

    def take_signals(self, seconds: float = 0) -> None:
        """Take signals, and wait up to ``seconds`` for one; begin to stop at SIGTERM or SIGINT."""
        self._signals.take(seconds)
        if self._signals.stop and not self.stopping.is_set():
            self._status.stop()
            self.stopping.set()
            self._api.stop()

    def run(
        self,
        title: str,
        work: Callable[[], Result],
        *,
        limit: float = math.inf,
        late_remedy: str = "",
    ) -> Result:
        """Return or raise what ``work`` returns or raises. The process ends if ``work`` does not
        end in time after SIGTERM.

        ``limit``: seconds after which ``work``, which only reads, is abandoned.

        :raises AgentBug: ``work`` raised anything but an :class:`AgentError`.
        :raises ConfigError: ``limit`` has passed, with ``late_remedy``.
        """
        self._abandoned = [future for future in self._abandoned if not future.done()]
        if limit < math.inf and len(self._abandoned) >= MOST_ABANDONED:
            raise ConfigError(f"{title} was not begun: earlier attempts still hang", late_remedy)
        self._service.begin_work(title)
        future = start_thread(work, title)
        late, end = time.monotonic() + PATIENCE, time.monotonic() + limit
        while not wait([future], POLL).done and not self.stopping.is_set():
            self.take_signals()
            if time.monotonic() > late:
                late = math.inf
                self._status.report_delay(title, PATIENCE)
            if time.monotonic() > end and not future.done():
                self._abandoned.append(future)
                self._service.end_work()
                raise ConfigError(f"{title} takes longer than {limit:g} s", late_remedy)
        if not wait([future], GRACE).done:
            _end_process(title)
        self._service.end_work()
        try:
            return future.result()
        except AgentError:
            raise
        except BaseException as error:
            # Also SystemExit and the like, because it ended the thread that did the work and not
            # this one.
            LOG.critical("%s", title, exc_info=True)
            raise AgentBug.of(error) from error


def _end_process(title: str) -> NoReturn:
    """End the process now. Its threads would keep it alive, and all persistent state is in the
    store.
    """
    LOG.warning(
        "stopped in the middle of %s that did not end; the next start continues from there", title
    )
    WRITER.finish()
    os._exit(0)
