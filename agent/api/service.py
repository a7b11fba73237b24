"""What the API needs of the agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agent.api.record_views import RecordViews
from agent.model.report import NodeReport
from agent.monitors.monitor import Measurement
from agent.placement.client import PlacementClient
from agent.tracker.tracker import Tracker

Document = Mapping[str, Any]
"""A JSON document, as openapi.yaml describes it."""


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit that was asked for. ``report``: the JSON document, once it is done."""

    id: str
    state: Literal["queued", "running", "done"]
    report: bytes | None = None


@dataclass(frozen=True, slots=True)
class LastAudit:
    """A node as its last audit left it; what an audit could not look at is as the one before it has
    found it.

    ``at``: when that was, in seconds since the epoch; ``good_at``: when one last left it well, None
    if none has yet.
    """

    report: NodeReport
    endpoint: str | None
    at: float
    good_at: float | None


class Service(Protocol):
    """The agent as its API sees it. Called from many threads."""

    def status(self) -> str:
        """How things are, in one line."""

    def check_health(self) -> None:
        """:raises Unwell, Stopping: the process does not work as it should."""

    def check_readiness(self) -> None:
        """:raises Unready, Stopping: not every node was audited and is well."""

    def seen(self) -> Sequence[LastAudit]:
        """Every node, in the order of their uuids."""

    def nodes(self) -> Sequence[Document]:
        """A summary of each node, in the order of their uuids."""

    def node(self, uuid: str) -> Document:
        """A node as its last audit left it.

        :raises UnknownNode: there is none of that uuid.
        """

    def tree(self, uuid: str) -> Document:
        """A node's tree.

        :raises UnknownNode: there is none of that uuid.
        """

    def request_audit(self, nodes: Sequence[str], *, dry_run: bool) -> str:
        """Have all nodes audited, or those of these names or uuids, as soon as can be. Returns the
        audit's id.

        :raises TooManyAudits: too many wait already.
        :raises Stopping: there will be no more audits.
        """

    def audit(self, audit_id: str, wait: float) -> Audit:
        """The audit, waited for up to so many seconds.

        :raises UnknownAudit: there is none of that id, or no more.
        :raises Stopping: it will not be done.
        """

    def records(self) -> RecordViews:
        """The records of this host.

        :raises Stopping: nobody may read them any more.
        """

    def tracker(self) -> Tracker:
        """What can be done with them.

        :raises NodeNotReady: the agent has not come that far.
        :raises Stopping: nothing will be done any more.
        """

    def placement(self) -> PlacementClient:
        """Placement, for one piece of work.

        :raises NodeNotReady, Stopping: as :meth:`tracker`.
        """

    def readings(self) -> Sequence[Measurement]:
        """What the monitors said of the host when they were last asked."""

    def reload(self) -> None:
        """Read the configuration again.

        :raises ConfigError: it cannot be used, and the old one stays.
        """
