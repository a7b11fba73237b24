"""Requested audits, with the reports of the last ones."""

import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Literal

from agent.api.problem import Stopping, TooManyAudits, UnknownAudit

KEPT = 100
"""How many audits are kept, done or not."""


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit that was requested."""

    id: str
    state: Literal["queued", "running", "done"]
    report: bytes | None = None
    """The report as a JSON document, once the audit is done."""


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
