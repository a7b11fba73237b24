"""When the next audit is due: the schedule of audits of all nodes, the nodes that wait for an audit
of their own, and requested audits with the reports of the last ones.
"""

import math
import random
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Lock

from agent.api.problem import Stopping, TooManyAudits, UnknownAudit
from agent.api.service import Audit

KEPT = 100
"""How many audits are kept, done or not."""


@dataclass(slots=True)
class RequestedAudit:
    """One requested audit."""

    id: str
    nodes: tuple[str, ...] = ()
    """Names or uuids; empty for all nodes."""
    dry_run: bool = False
    running: bool = False
    report: bytes | None = None
    """The JSON document, zlib-compressed; None until the audit is done."""

    @property
    def whole(self) -> bool:
        """Whether a regular audit of all nodes answers the request."""
        return not self.nodes and not self.dry_run


class AuditRequests:
    """Queue of requested audits: API threads ask and wait, the daemon takes and answers.

    ``wake``: called when there is a request to take.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._all: OrderedDict[str, RequestedAudit] = OrderedDict()
        self._changed = Condition()
        self._closed = False

    # --- requesting threads -----------------------------------------------------------------------

    def request(self, nodes: Sequence[str], *, dry_run: bool) -> str:
        """Request an audit, or join an equal one that is still queued. Return its id.

        :raises TooManyAudits: the queue is full.
        :raises Stopping: the daemon is stopping, and will not run it.
        """
        wanted = tuple(sorted(set(nodes)))
        with self._changed:
            if self._closed:
                raise Stopping
            for queued in self._all.values():
                if (queued.nodes, queued.dry_run, queued.running, queued.report) == (
                    wanted,
                    dry_run,
                    False,
                    None,
                ):
                    return queued.id
            if len(self._all) >= KEPT:
                self._drop_oldest()
            request = RequestedAudit(str(uuid.uuid4()), wanted, dry_run)
            self._all[request.id] = request
        self._wake()
        return request.id

    def wait_for(self, audit_id: str, wait: float) -> Audit:
        """Return the state of an audit; wait up to ``wait`` seconds until it is done.

        :raises UnknownAudit: there is no audit of that id, or not any more.
        :raises Stopping: the daemon is stopping, and will not run it.
        """
        end = time.monotonic() + wait
        with self._changed:
            while True:
                request = self._all.get(audit_id)
                if request is None:
                    raise UnknownAudit(
                        f"there is no audit {audit_id}",
                        f"ask for a new one; the last {KEPT} are kept",
                    )
                if request.report is not None:
                    return Audit(audit_id, "done", zlib.decompress(request.report))
                if self._closed:
                    raise Stopping
                if (left := end - time.monotonic()) <= 0:
                    return Audit(audit_id, "running" if request.running else "queued")
                self._changed.wait(left)

    # --- the daemon -------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether an audit is queued."""
        with self._changed:
            return any(self._waits(request) for request in self._all.values())

    def take(self, *, whole: bool) -> list[RequestedAudit]:
        """Return the queued audits, of all nodes (``whole``) or the others, and mark them as
        running.
        """
        with self._changed:
            taken = [
                request
                for request in self._all.values()
                if self._waits(request) and request.whole == whole
            ]
            for request in taken:
                request.running = True
            return taken

    def answer(self, taken: Sequence[RequestedAudit], report: bytes) -> None:
        """Complete audits that were taken; ``report`` is the JSON document."""
        # Compressed, because a hundred reports of a large fleet would not be small.
        small = zlib.compress(report)
        with self._changed:
            for request in taken:
                request.report = small
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse new requests, and end the waits for queued ones with :class:`Stopping`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _waits(self, request: RequestedAudit) -> bool:
        return not request.running and request.report is None

    def _drop_oldest(self) -> None:
        done = next(
            (request.id for request in self._all.values() if request.report is not None), None
        )
        if done is None:
            raise TooManyAudits(
                f"{len(self._all)} audits wait", "wait for them, or ask for one of all nodes"
            )
        del self._all[done]


# In seconds. A change waits so long for others, then until none came for ``QUIET``, and no longer
# than ``LONGEST`` in all: an audit beside a burst of claims would hold the node's lock and the
# interpreter while they wait.
GATHERING = 1.0
QUIET = 0.25
LONGEST = 10.0


class DirtyNodes:
    """The nodes that have changed and wait for an audit, by uuid or by a pattern of their names.

    Threads report changes, the daemon's loop takes them; ``wake`` wakes the loop. A failed audit is
    not repeated from here: the next audit of all nodes covers the node, after a pause of its own.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._lock = wake, Lock()
        self._nodes: set[str] = set()
        # When the first of the changes came.
        self._first = 0.0
        self.due = math.inf

    def add(self, node: str) -> None:
        """Add a node: something was claimed or released on it, or its host has changed."""
        now = time.monotonic()
        with self._lock:
            first = not self._nodes
            self._nodes.add(node)
            if first:
                self._first = now
            self.due = max(self._first + GATHERING, min(now + QUIET, self._first + LONGEST))
        if first:
            self._wake()

    def take(self) -> frozenset[str]:
        """Return the waiting nodes and empty the set."""
        with self._lock:
            taken = frozenset(self._nodes)
            self._nodes.clear()
            self.due = math.inf
        return taken


DEFAULT_INTERVAL = 60.0
"""Seconds."""
# The first audit comes within this part of the interval, because hosts that got power at the same
# moment start together.
START_JITTER = 0.05
# The first pause after a failure, in seconds; every further one is twice as long.
FIRST_PAUSE = 1.0


class Schedule:
    """Computes when the next audit is due, in seconds of the monotonic clock, which no change of
    the wall clock moves.

    ``interval``: seconds as in [DEFAULT] update_resources_interval, where 0 is the default and -1
    never.
    """

    def __init__(self, interval: int) -> None:
        now = time.monotonic()
        self.interval = interval if interval > 0 else DEFAULT_INTERVAL
        """Seconds from one audit to the next."""
        self.repeats = interval >= 0
        """Whether another audit follows by itself."""
        # A host's own offset within the interval, so that many hosts spread over all of it.
        self._phase = now + random.uniform(0, self.interval)
        self._failures = 0
        self.due = now + random.uniform(0, START_JITTER) * self.interval

    def at_once(self) -> None:
        """Make the next audit due now."""
        self.due = time.monotonic()

    def plan_after_success(self) -> None:
        """Schedule the next audit at the host's offset in the next interval; missed audits are not
        made up for.
        """
        self._failures = 0
        periods = math.floor((time.monotonic() - self._phase) / self.interval) + 1
        self.due = self._phase + periods * self.interval if self.repeats else math.inf

    def plan_after_failure(self) -> None:
        """Schedule the next audit after a pause that grows with each failure, never exceeds the
        interval, and is not in step with other hosts.
        """
        longest = min(self.interval, FIRST_PAUSE * 2 ** min(self._failures, 16))
        self._failures += 1
        self.due = time.monotonic() + random.uniform(0.5, 1.0) * longest
