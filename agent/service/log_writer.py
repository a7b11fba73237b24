"""Writes the log in a thread of its own, so that a log that nobody takes (a journal that hangs, a
full pipe, a disk) holds neither a claim nor the end of the daemon; and the
reports of passes: one line when a problem comes and one when it goes.
"""

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from agent.errors import (
    AgentError,
    PlacementUnreachable,
    ProviderIdentityConflict,
    ProviderNameConflict,
    ReshapeFailed,
    ReshapeNeeded,
    StandingBy,
    StoreError,
)
from agent.model.finding import WELL, Problem
from agent.model.names import printable
from agent.model.report import NodeReport, Report
from agent.render.document import problems_of
from agent.store.store import Store

# Lines that wait to be written; further ones are dropped and counted.
MOST_WAITING = 10_000
# Seconds that the end of the daemon waits for lines to be written.
END_SECONDS = 2.0

LOG = logging.getLogger(__name__)


class LogWriter:
    """The queue of lines and the thread that writes them."""

    def __init__(self) -> None:
        # Functions, because the end of the daemon waits for its own place in the queue.
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._dropped = 0
        self._counting = threading.Lock()
        self._thread: threading.Thread | None = None

    def take_over(self) -> None:
        """Put the queue before the handlers of every logger; again after each set-up of the log."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()
        for logger in (logging.getLogger(), *logging.root.manager.loggerDict.values()):
            if not isinstance(logger, logging.Logger):
                continue
            new = tuple(one for one in logger.handlers if not isinstance(one, _Queued))
            if new:
                kept = [one for one in logger.handlers if one not in new]
                logger.handlers = [*kept, _Queued(self, new)]

    def add(self, handlers: Sequence[logging.Handler], record: logging.LogRecord) -> None:
        """Queue a line, or drop and count it if too many wait."""
        if self._work.qsize() < MOST_WAITING:
            self._work.put(partial(_handle, handlers, record))
        else:
            with self._counting:
                self._dropped += 1

    def finish(self) -> bool:
        """Return whether all lines that are in the queue now are written in ``END_SECONDS``."""
        if self._thread is None:
            return True
        written = threading.Event()
        self._work.put(written.set)
        return written.wait(END_SECONDS)

    def _write(self) -> None:
        while True:
            work = self._work.get()
            # A handler reports its own errors; whatever it raises must not end the log.
            with suppress(Exception):
                work()
            if self._dropped and self._work.qsize() <= MOST_WAITING // 2:
                with self._counting:
                    dropped, self._dropped = self._dropped, 0
                LOG.warning("%d lines of the log were dropped, because nobody took them", dropped)


class _Queued(logging.Handler):
    """Stands before the handlers of a logger."""

    def __init__(self, writer: LogWriter, handlers: Sequence[logging.Handler]) -> None:
        super().__init__(min(handler.level for handler in handlers))
        self._writer, self._handlers = writer, handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line. It is put together here, because its arguments may change until it is
        written.
        """
        line = copy.copy(record)
        line.msg, line.args = record.getMessage(), None
        self._writer.add(self._handlers, line)


def _handle(handlers: Sequence[logging.Handler], record: logging.LogRecord) -> None:
    for handler in handlers:
        if record.levelno >= handler.level:
            handler.handle(record)


WRITER = LogWriter()
"""One for the process, as its loggers are."""


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


def with_store_state(report: Report, store: Store, before: Sequence[NodeReport]) -> Report:
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
            _degrade(node, problem)
            for node in report.nodes
            or [replace(node, seconds={}, requests={}, outcomes=()) for node in before]
        )
        others = _without_store_errors(report.errors)
        return replace(report, nodes=nodes, errors=others if nodes else (*others, problem))
    return report


def _degrade(node: NodeReport, problem: Problem) -> NodeReport:
    if node.state == "refused":
        return node
    others = _without_store_errors(node.errors)
    return replace(node, state="degraded" if not others else node.state, errors=(*others, problem))


def _without_store_errors(errors: Sequence[Problem]) -> tuple[Problem, ...]:
    return tuple(error for error in errors if error.code != StoreError.code)


def check_start(report: Report) -> None:
    """Check that waiting may mend all problems of the first pass.

    :raises AgentError: a problem that waiting cannot mend.
    """
    reasons = [problem for problem in report.errors if problem.fatal]
    # A refused node is no reason: the daemon tries it again, later each time.
    by_node = [[problem for problem in node.errors if problem.fatal] for node in report.nodes]
    if by_node and all(by_node):
        reasons += by_node[0]
    if reasons:
        raise AgentError(reasons[0].message, reasons[0].remedy)
