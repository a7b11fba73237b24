"""What the API needs of the agent: the Protocol Service, and its values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agent.api.record_views import RecordViews
from agent.model.report import NodeReport
from agent.monitors import Measurement
from agent.placement.client import PlacementClient
from agent.tracker.tracker import Tracker

Document = Mapping[str, Any]
"""A JSON document, as openapi.yaml describes it."""


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit that was requested."""

    id: str
    state: Literal["queued", "running", "done"]
    report: bytes | None = None
    """The report as a JSON document, once the audit is done."""


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


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A page of nodes for a browser."""

    html: bytes
    policy: str
    """Its Content-Security-Policy."""


class Service(Protocol):
    """The agent as its API sees it. Called from many threads."""

    def status(self) -> str:
        """Return the status line; its first word is the agent's state."""

    def check_health(self) -> None:
        """Do nothing if the process works.

        :raises Unwell, Stopping: it does not.
        """

    def check_readiness(self) -> None:
        """Do nothing if every node was audited and is well.

        :raises Unready, Stopping: not every node was and is.
        """

    def last_audits(self) -> Sequence[LastAudit]:
        """Return the last audit of every node, ordered by the nodes' uuids."""

    def nodes(self) -> Sequence[Document]:
        """Return a summary of every node, ordered by uuid."""

    def node(self, uuid: str) -> Document:
        """Return a node as its last audit left it.

        :raises UnknownNode: there is no node with that uuid.
        """

    def tree(self, uuid: str) -> Document:
        """Return a node's tree.

        :raises UnknownNode: there is no node with that uuid.
        """

    def report_page(self, wanted: Sequence[str]) -> ReportPage:
        """Return the page of the nodes with these names, patterns or uuids; of all nodes if there
        are none.

        :raises UnknownNode: one of them matches no node.
        :raises Stopping: the agent ends.
        """

    def request_audit(self, nodes: Sequence[str], *, dry_run: bool) -> str:
        """Request an audit of all nodes, or of the given names or uuids, as soon as possible.
        Return the audit's id.

        :raises TooManyAudits: too many audits wait already.
        :raises Stopping: there will be no more audits.
        """

    def audit(self, audit_id: str, wait: float) -> Audit:
        """Return the audit, after waiting for its end for up to ``wait`` seconds.

        :raises UnknownAudit: no audit with that id is known, or no longer.
        :raises Stopping: the audit will not be done.
        """

    def records(self) -> RecordViews:
        """Return the views of this host's records.

        :raises Stopping: records are no longer read.
        """

    def tracker(self) -> Tracker:
        """Return the tracker.

        :raises NodeNotReady: the agent has no tracker yet.
        :raises Stopping: there are no more operations.
        """

    def check_manages(self) -> None:
        """Do nothing if the agent manages its nodes.

        :raises ObservesOnly: it only observes them.
        :raises NodeNotReady, Stopping: as :meth:`tracker`.
        """

    def placement(self) -> PlacementClient:
        """Return a client of Placement, for one piece of work.

        :raises NodeNotReady, Stopping: as :meth:`tracker`.
        """

    def readings(self) -> Sequence[Measurement]:
        """Return what the monitors last measured."""

    def reload(self) -> None:
        """Reload the configuration.

        :raises ConfigError: it cannot be used; the former one stays.
        """
