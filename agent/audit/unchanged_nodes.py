"""Nodes that need no audit now, because neither the driver nor Placement shows a change."""

import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

from agent.model.report import NodeReport

# Divisor that spreads the full audits: the first four hex digits of a node's uuid give a fraction
# below 0.5 of the interval, added to the first half of it.
SPREAD = 131072


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """The report of a node's last audit, the driver's mark then, and when the report expires."""

    mark: Hashable
    report: NodeReport
    until: float


class UnchangedNodes:
    """Reports of the last audits, valid for up to ``interval`` seconds.

    ``clock`` never goes back.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._clock = interval, clock
        self._known: dict[str, _Unchanged] = {}

    def report(self, uuid: str, mark: Hashable) -> NodeReport | None:
        """Return the node's last report; None if the node has to be audited."""
        known = self._known.get(uuid)
        return (
            known.report
            if known is not None and known.mark == mark and self._clock() < known.until
            else None
        )

    def audited(self, uuid: str, mark: Hashable, report: NodeReport) -> None:
        """Remember the report of a node without drift and errors. Any other node is forgotten,
        because the next pass must audit it again.
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
