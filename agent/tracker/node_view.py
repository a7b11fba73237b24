"""What an audit tells of one node's records."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.names import ProviderUuid
from agent.model.report import Drift, Usage
from agent.tracker.node_state import NodeState


@dataclass(frozen=True, slots=True)
class NodeView:
    """``problems``: the records that cannot be counted, a line each; ``stats``: names and numbers for operators.

    ``version``: of the node's record, to tell whether anything has changed since. ``state``: all records, as they are once what
    the audit found is written; ``created``: the audit made the node's own record;
    ``taken``: nobody, or another host, had the lease on the node before.
    """

    node: ProviderUuid
    usage: Usage
    state: NodeState
    created: bool = False
    problems: tuple[str, ...] = ()
    drift: tuple[Drift, ...] = ()
    stats: Mapping[str, int | str | None] = field(default_factory=dict)
    version: int = 0
    taken: bool = False
