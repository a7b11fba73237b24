"""The page of nodes that the local API answers with, made of their last audits and of the records
in memory.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agent.api.node_documents import JsonObject, node_page_document
from agent.model.finding import Problem
from agent.model.names import choose_nodes, printable
from agent.model.report import NodeReport
from agent.render.document import error_rows
from agent.render.json_report import node_document
from agent.render.page import page_of
from agent.render.page_html import render_page
from agent.tracker.errors import UnknownNode
from agent.tracker.node_state import NodeState
from agent.tracker.tracker import Tracker
from agent.version import agent_version

SOURCE = "as the daemon has it"


@dataclass(frozen=True, slots=True)
class LastAudit:
    """A node as its last audit left it. Drift that this audit could not look for is that of the
    audit before.
    """

    report: NodeReport
    endpoint: str | None
    """The Placement that the audit used; None if unknown."""
    at: float
    """When the node was last audited or found unchanged, in seconds since the epoch."""
    good_at: float | None
    """When an audit last left the node well, in seconds since the epoch; None if none has."""


def audit_document(audit: LastAudit) -> JsonObject:
    """Return the document of a node as its last audit left it."""
    return {
        **node_document(audit.report),
        "audited_at": audit.at,
        "last_good_audit_at": audit.good_at,
    }


def make_report_page(
    audits: Sequence[LastAudit],
    errors: Sequence[Problem],
    tracker: Tracker | None,
    wanted: Sequence[str],
) -> bytes:
    """Return the page, in HTML, of the audited nodes that ``wanted`` names by name, pattern or
    uuid; of all of them if it is empty.

    ``errors``: those that belong to no node. ``tracker``: None if there is none yet.

    :raises UnknownNode: one of ``wanted`` matches no node.
    """
    chosen, unmatched = choose_nodes(
        audits, wanted, lambda audit: (audit.report.uuid, audit.report.name)
    )
    if unmatched:
        raise UnknownNode(
            f"no node {printable(unmatched[0])[:200]} was audited here",
            "see /v1/nodes for those that were",
        )
    # From memory, so that a page of thousands of nodes takes no lock that a claim waits for.
    states = tracker.states_in_memory() if tracker is not None else []
    by_node: dict[str, NodeState] = {state.node.uuid: state for state in states}
    page = page_of(
        # One by one, because the documents of thousands of nodes are large.
        (
            node_page_document(
                {**audit_document(audit), "hint": audit.report.hint},
                audit.report.consumers,
                by_node.get(audit.report.uuid),
                tracker,
            )
            for audit in sorted(chosen, key=lambda audit: audit.report.name)
        ),
        source=SOURCE,
        made_at=time.time(),
        version=agent_version(),
        placement=next((audit.endpoint for audit in chosen if audit.endpoint), ""),
        errors=error_rows(errors),
    )
    return render_page(page).encode("utf-8", "backslashreplace")
