"""The nodes that need no audit now, because neither the backend nor Placement shows anything new of
them.
"""

import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

from agent.model.report import NodeReport

# A node that was well stays so for between half of the interval and all of it, each for a time of
# its own.
SPREAD = 131072


@dataclass(frozen=True, slots=True)
class _Unchanged:
    mark: Hashable
    report: NodeReport
    until: float


class UnchangedNodes:
    """What the last audits found, for up to ``interval`` seconds. ``clock`` never goes back."""

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._clock = interval, clock
        self._known: dict[str, _Unchanged] = {}

    def report(self, uuid: str, mark: Hashable) -> NodeReport | None:
        """What to tell of the node without an audit; None if it has to be audited."""
        known = self._known.get(uuid)
        return (
            known.report
            if known is not None and known.mark == mark and self._clock() < known.until
            else None
        )

    def audited(self, uuid: str, mark: Hashable, report: NodeReport) -> None:
        """Remember a node with which all was well; of any other the next pass wants to
        know more.
        """
        if report.state not in ("in-sync", "changed") or report.drift or report.errors:
            self._known.pop(uuid, None)
            return
        part = 0.5 + int(uuid[:4], 16) / SPREAD
        same = replace(report, state="in-sync", attempts=1, outcomes=(), requests={}, seconds={})
        self._known[uuid] = _Unchanged(mark, same, self._clock() + self._interval * part)

    def keep(self, present: Collection[str]) -> None:
        """Forget the nodes that are not among ``present``."""
        for uuid in self._known.keys() - set(present):
            del self._known[uuid]
