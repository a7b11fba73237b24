"""Logs the problems of reports: one line when a problem comes and one when it goes, none while it
lasts.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence

from agent.errors import (
    PlacementUnreachable,
    ProviderIdentityConflict,
    ProviderNameConflict,
    ReshapeFailed,
    ReshapeNeeded,
    StandingBy,
)
from agent.model.names import printable
from agent.model.report import WELL, NodeReport, Problem

LOG = logging.getLogger(__name__)

# Stands for problems of no node in particular.
AGENT = "the agent"
# Levels other than warning, by error code: a node that is not served is an error.
LEVELS = {
    ReshapeFailed.code: logging.CRITICAL,
    ReshapeNeeded.code: logging.ERROR,
    ProviderNameConflict.code: logging.ERROR,
    ProviderIdentityConflict.code: logging.ERROR,
    # Another agent does the work, as intended.
    StandingBy.code: logging.INFO,
}
# Logged again after some time, because only an operator can end it.
REPEATED = (ProviderNameConflict.code, ProviderIdentityConflict.code)
REPEAT_AFTER = 3600.0
"""Seconds."""


class ProblemLog:
    """Remembers the problems of each node and of the agent, and when each was last logged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By node (or ``AGENT``): the messages, and when each was logged, in seconds of ``clock``.
        self._known: dict[str, dict[str, float]] = {}

    def log_changes(self, errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
        """Log every new problem, and every node that is well again."""
        self._log_problems(AGENT, errors)
        if not errors:
            self._known = {
                owner: logged
                for owner, logged in self._known.items()
                if owner in (AGENT, *map(_node_title, nodes))
            }
        for node in nodes:
            owner, problems = _node_title(node), tuple(_problems(node))
            if problems:
                self._log_problems(owner, problems)
            # A node without problems may still be degraded, because a refused operation is not sent
            # again.
            elif node.state in WELL:
                self._log_problems(owner, ())

    def _log_problems(self, owner: str, problems: Sequence[Problem]) -> None:
        """Log the new and the repeated problems of ``owner``, and the end of all of them."""
        before, now = self._known.get(owner, {}), self._clock()
        # The transport logs outages itself, by their kind; during an outage the other problems are
        # unknown, so they are kept.
        loggable = [problem for problem in problems if problem.code != PlacementUnreachable.code]
        outage = len(loggable) < len(problems)
        known = {problem.message: before.get(problem.message, now) for problem in loggable}
        for problem in loggable:
            if problem.message not in before or (
                problem.code in REPEATED and now - before[problem.message] >= REPEAT_AFTER
            ):
                LOG.log(
                    LEVELS.get(problem.code, logging.WARNING),
                    "%s: %s%s",
                    owner,
                    problem.message,
                    f" ({problem.remedy})" if problem.remedy else "",
                )
                known[problem.message] = now
        if before and not problems:
            LOG.info("%s: well again", owner)
        self._known[owner] = before | known if outage else known


def _node_title(node: NodeReport) -> str:
    return f"node {printable(node.name)}"


def _problems(node: NodeReport) -> Iterator[Problem]:
    yield from node.errors
    messages = {error.message for error in node.errors}
    for drift in node.drift:
        # Over-commitment is logged when it happens, and shows in that one audit only.
        if (
            drift.severity == "warning"
            and drift.kind != "overcommitted"
            and drift.detail not in messages
        ):
            yield Problem(drift.kind, drift.detail, drift.remedy)
