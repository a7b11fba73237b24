"""The exit codes, and which one a run ends with."""

from collections.abc import Sequence

from agent.model.report import NodeReport, Problem

DONE = 0
FAILED = 1
CHANGED = 2
PARTLY = 3
USAGE = 64
INTERRUPTED = 130  # What a shell reports for SIGINT.


def exit_code(nodes: Sequence[NodeReport], errors: Sequence[Problem] = (), *, detailed: bool = False) -> int:
    """The code for a run over ``nodes`` with ``errors`` that belong to none of them.

    ``detailed``: changes made or pending, and drift of severity warning, give ``CHANGED`` where all went well.
    """
    if errors or not all(map(_well, nodes)):
        return PARTLY if any(map(_succeeded, nodes)) else FAILED
    return CHANGED if detailed and any(map(_noteworthy, nodes)) else DONE


def _well(node: NodeReport) -> bool:
    return node.state in ("in-sync", "changed", "pending")


def _succeeded(node: NodeReport) -> bool:
    """Whether something was done for the node: a degraded one whose every operation failed got nothing.

    One that is whole but for children that somebody else keeps from it needs no more.
    """
    if node.state != "degraded":
        return _well(node)
    statuses = {outcome.status for outcome in node.outcomes}
    failed = [outcome.operation.provider for outcome in node.outcomes if outcome.status == "failed"]
    conflicts = {drift.detail for drift in node.drift if drift.kind in ("name-conflict", "identity")}
    apart = all(error.message in conflicts for error in node.errors) and all(one is not None and one.uuid != node.uuid for one in failed)
    return "done" in statuses or "failed" not in statuses or apart


def _noteworthy(node: NodeReport) -> bool:
    return node.state != "in-sync" or any(drift.severity == "warning" for drift in node.drift)
