"""Runs the daemon's work in a thread while the daemon's own thread takes signals; and the status
line, reported to systemd, to the local API and to the log.
"""

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Event
from typing import Any, NoReturn, TypeVar, get_args

from agent.api.local_api import LocalApi
from agent.api.service import Service
from agent.driver.worker import start_thread
from agent.errors import AgentBug, AgentError, ConfigError, StandingBy
from agent.model.finding import WELL, AgentState, Problem
from agent.model.report import NodeReport
from agent.service.log_writer import WRITER
from agent.service.systemd import Notifier, Signals


class Status:
    """The status of the daemon, as systemd, the local API and the log show it."""

    def __init__(self, notifier: Notifier, service: Service) -> None:
        self.notifier, self._service = notifier, service
        self._state: AgentState = "starting"
        # Whether systemd was notified that the service is ready.
        self._ready = False
        # Why the last new configuration was refused; empty if it was not.
        self._refusal = ""

    def report(self, status: str) -> None:
        """Report the status; the first time also that the service is ready."""
        text = f"{status}; {self._refusal}" if self._refusal else status
        self._state = agent_state(status)
        LOG.log(logging.DEBUG if self._ready else logging.INFO, text)
        (self.notifier.status if self._ready else self.notifier.ready)(text)
        self._ready = True
        self._service.status = text

    def report_delay(self, work: str, seconds: float) -> None:
        """Report that the work has taken more than so many seconds, in the present state."""
        awaited = self._service.awaited()
        self.report(
            f"{self._state}: {work} takes longer than {seconds:.0f} s"
            + (f"; it waits for {awaited}" if awaited else "")
        )

    def begin_reload(self) -> None:
        """Report that the configuration is being reloaded."""
        self.notifier.reloading("reloading: the configuration is read again")

    def end_reload(self, problems: Sequence[Problem]) -> None:
        """Report the end of a reload; with ``problems``, the new configuration is refused."""
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
        text = f"{self._state}: {self._refusal or 'the configuration was reloaded'}"
        self.notifier.ready(text)
        # At once, because whoever asked for the reload may ask for the status next.
        self._service.status = text

    def stop(self) -> None:
        """Report that the daemon stops."""
        LOG.info("stopping")
        self.notifier.stopping("stopping")


def agent_state(status: str) -> AgentState:
    """Return the state that a status line begins with."""
    return next(
        (state for state in get_args(AgentState) if status.partition(":")[0] == state), "degraded"
    )


def summary(errors: Sequence[Problem], nodes: Sequence[NodeReport], hanging: int) -> str:
    """Return the status line that sums up a report. ``hanging``: how many driver calls never
    returned.
    """
    if [error.code for error in errors] == [StandingBy.code]:
        return errors[0].message
    states = Counter(node.state for node in nodes)
    problems = [*errors, *(problem for node in nodes for problem in node.errors)]
    well = not errors and not hanging and all(state in WELL for state in states)
    parts = (
        [", ".join(f"{count} {state}" for state, count in sorted(states.items()))]
        if states or well
        else []
    )
    parts += [problems[0].message] if problems else []
    parts += [f"hanging driver calls: {hanging}"] if hanging else []
    return f"{'ready' if well else 'degraded'}: {'; '.join(part or 'no nodes' for part in parts)}"


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

    def __init__(self, signals: Signals, service: Service, api: LocalApi, status: Status) -> None:
        self.stopping = Event()
        self._signals, self._service, self._api, self._status = signals, service, api, status
        self._abandoned: list[Future[Any]] = []

    def take_signals(self, seconds: float = 0) -> None:
        """Take signals, and wait up to ``seconds`` for one; begin to stop at SIGTERM or SIGINT."""
        self._signals.take(seconds)
        if self._signals.stop and not self.stopping.is_set():
            self._status.stop()
            self.stopping.set()
            self._service.stop()
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
