"""Completes the report of a pass with what no audit of a node finds: a pass that could not begin, a
store that cannot be written, a start that cannot succeed.
"""

from collections.abc import Sequence
from dataclasses import replace

from agent.errors import AgentError, StoreError
from agent.model.report import NodeReport, Problem, Report
from agent.render.json_report import problems_of
from agent.store.store import Store
from agent.version import agent_version


def failure_report(host: str, error: AgentError) -> Report:
    """Return the report of a pass that could not begin."""
    return Report(
        version=agent_version(),
        host=host,
        mode="http",
        endpoint=None,
        max_version=None,
        dry_run=False,
        errors=problems_of(error),
    )


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
