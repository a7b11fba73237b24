"""What is new in a report: a log line when a trouble comes and when it goes, none while it lasts."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from agent.errors import PlacementUnreachable
from agent.model.names import printable
from agent.model.report import NodeReport, Problem

LOG = logging.getLogger(__name__)

WELL = ("in-sync", "changed")
# What is wrong with no node in particular.
HOUSE = "the agent"


class News:
    """Remembers what was wrong with whom when it was last told."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Problem, ...]] = {}

    def tell(self, errors: Sequence[Problem], nodes: Sequence[NodeReport]) -> None:
        """Log every trouble that was not there before, and everyone who is well again."""
        self._troubled(HOUSE, errors)
        if not errors:
            self._known = {who: what for who, what in self._known.items() if who in (HOUSE, *map(_called, nodes))}
        for node in nodes:
            who, problems = _called(node), tuple(_problems(node))
            if problems:
                self._troubled(who, problems)
            # A node can be degraded without a word, because what was refused once is not sent again.
            elif node.state in WELL:
                self._troubled(who, ())

    def _troubled(self, who: str, problems: Sequence[Problem]) -> None:
        before, now = self._known.get(who, ()), tuple(problems)
        known = {one.message for one in before}
        for one in now:
            # The traffic with Placement tells of outages itself, by their kind.
            if one.message not in known and one.code != PlacementUnreachable.code:
                LOG.warning("%s: %s%s", who, one.message, f" ({one.remedy})" if one.remedy else "")
        if before and not now:
            LOG.info("%s: well again", who)
        self._known[who] = now


def summary(errors: Sequence[Problem], nodes: Sequence[NodeReport], hanging: int) -> str:
    """How things are, in one line for ``systemctl status``. ``hanging``: driver calls that never came back."""
    states = Counter(node.state for node in nodes)
    problems = [*errors, *(problem for node in nodes for problem in node.errors)]
    well = not errors and not hanging and all(state in WELL for state in states)
    parts = [", ".join(f"{count} {state}" for state, count in sorted(states.items()))] if states or well else []
    parts += [problems[0].message] if problems else []
    parts += [f"hanging driver calls: {hanging}"] if hanging else []
    return f"{'ready' if well else 'degraded'}: {'; '.join(part or 'no nodes' for part in parts)}"


def _called(node: NodeReport) -> str:
    return f"node {printable(node.name)}"


def _problems(node: NodeReport) -> Iterator[Problem]:
    yield from node.errors
    told = {one.message for one in node.errors}
    for drift in node.drift:
        # Over-commitment is told when it happens, and shows in that one audit only.
        if drift.severity == "warning" and drift.kind != "overcommitted" and drift.detail not in told:
            yield Problem(drift.kind, drift.detail, drift.remedy)
