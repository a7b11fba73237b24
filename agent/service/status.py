"""The daemon's status line, reported to systemd, to the local API and to the log."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from agent.errors import StandingBy
from agent.model.report import WELL, AgentState, NodeReport, Problem
from agent.service.daemon_service import DaemonService
from agent.service.systemd import Notifier

LOG = logging.getLogger(__name__)


class Status:
    """The status of the daemon, as systemd, the local API and the log show it."""

    def __init__(self, notifier: Notifier, service: DaemonService) -> None:
        self._notifier, self._service = notifier, service
        self._state: AgentState = "starting"
        # Whether systemd was notified that the service is ready.
        self._ready = False
        # Why the last new configuration was refused; empty if it was not.
        self._refusal = ""

    @property
    def watchdog_interval(self) -> float | None:
        """Seconds in which :meth:`feed_watchdog` must be called at least once (twice, to be safe);
        None: no watchdog.
        """
        return self._notifier.watchdog_interval

    def start(self) -> None:
        """Report that the daemon starts."""
        self._notifier.status("starting")

    def report(self, status: str) -> None:
        """Report the status; the first time also that the service is ready."""
        text = f"{status}; {self._refusal}" if self._refusal else status
        self._state = agent_state(status)
        LOG.log(logging.DEBUG if self._ready else logging.INFO, text)
        (self._notifier.status if self._ready else self._notifier.ready)(text)
        self._ready = True
        self._service.set_status(text)

    def report_delay(self, work: str, seconds: float) -> None:
        """Report that the work has taken more than so many seconds, in the present state."""
        awaited = self._service.awaited()
        self.report(
            f"{self._state}: {work} takes longer than {seconds:.0f} s"
            + (f"; it waits for {awaited}" if awaited else "")
        )

    def feed_watchdog(self) -> None:
        """Report to systemd that the daemon is alive."""
        self._notifier.watchdog()

    def begin_reload(self) -> None:
        """Report that the configuration is being reloaded."""
        self._notifier.reloading("reloading: the configuration is read again")

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
        self._notifier.ready(text)
        # At once, because whoever asked for the reload may ask for the status next.
        self._service.set_status(text)

    def stop(self) -> None:
        """Report that the daemon stops."""
        LOG.info("stopping")
        self._notifier.stopping("stopping")


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
