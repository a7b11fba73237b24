"""Audits that somebody asked for: waiting, under way, and the reports of the last ones."""

import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition

from agent.api.errors import Stopping, TooManyAudits, UnknownAudit
from agent.api.service import Audit

KEPT = 100


@dataclass(slots=True)
class RequestedAudit:
    """One audit. ``nodes`` are names or uuids, empty for all; ``report`` is the JSON document,
    compressed.
    """

    id: str
    nodes: tuple[str, ...] = ()
    dry_run: bool = False
    running: bool = False
    report: bytes | None = None

    @property
    def whole(self) -> bool:
        """Whether an audit such as the daemon makes by itself will do."""
        return not self.nodes and not self.dry_run


class AuditRequests:
    """Threads ask and wait, the daemon takes and answers. ``wake``: called when there is something
    to take.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._all: OrderedDict[str, RequestedAudit] = OrderedDict()
        self._changed = Condition()
        self._closed = False

    # --- who asks ---------------------------------------------------------------------------------

    def ask(self, nodes: Sequence[str], *, dry_run: bool) -> str:
        """Ask for an audit; the same that waits already serves both. Returns its id.

        :raises TooManyAudits: there is no room for it.
        :raises Stopping: nobody will make it.
        """
        wanted = tuple(sorted(set(nodes)))
        with self._changed:
            if self._closed:
                raise Stopping
            for one in self._all.values():
                if (one.nodes, one.dry_run, one.running, one.report) == (
                    wanted,
                    dry_run,
                    False,
                    None,
                ):
                    return one.id
            if len(self._all) >= KEPT:
                self._drop_oldest()
            asked = RequestedAudit(str(uuid.uuid4()), wanted, dry_run)
            self._all[asked.id] = asked
        self._wake()
        return asked.id

    def look(self, audit_id: str, wait: float) -> Audit:
        """How it stands, waited for up to so many seconds.

        :raises UnknownAudit: there is none of that id, or no more.
        :raises Stopping: nobody will make it.
        """
        end = time.monotonic() + wait
        with self._changed:
            while True:
                asked = self._all.get(audit_id)
                if asked is None:
                    raise UnknownAudit(
                        f"there is no audit {audit_id}",
                        f"ask for a new one; the last {KEPT} are kept",
                    )
                if asked.report is not None:
                    return Audit(audit_id, "done", zlib.decompress(asked.report))
                if self._closed:
                    raise Stopping
                if (left := end - time.monotonic()) <= 0:
                    return Audit(audit_id, "running" if asked.running else "queued")
                self._changed.wait(left)

    # --- who answers ------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        with self._changed:
            return any(self._waits(one) for one in self._all.values())

    def take(self, *, whole: bool) -> list[RequestedAudit]:
        """What waits to be made, now under way: those of all nodes, or the others."""
        with self._changed:
            taken = [one for one in self._all.values() if self._waits(one) and one.whole == whole]
            for one in taken:
                one.running = True
            return taken

    def answer(self, taken: Sequence[RequestedAudit], report: bytes) -> None:
        """They are made; ``report`` is the JSON document."""
        # Compressed, because a hundred reports of a large fleet would not be small.
        small = zlib.compress(report)
        with self._changed:
            for one in taken:
                one.report = small
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody answers any more; whoever waits is told."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _waits(self, asked: RequestedAudit) -> bool:
        return not asked.running and asked.report is None

    def _drop_oldest(self) -> None:
        done = next((one.id for one in self._all.values() if one.report is not None), None)
        if done is None:
            raise TooManyAudits(
                f"{len(self._all)} audits wait", "wait for them, or ask for one of all nodes"
            )
        del self._all[done]
