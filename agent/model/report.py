"""What an audit tells: per node its tree, operations, drift and errors. The JSON form is a
contract.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent.model.facts import Section
from agent.model.operation import Operation
from agent.model.provider_tree import ProviderTree

AgentState = Literal["starting", "ready", "degraded", "standing by", "reloading", "stopping"]
NodeState = Literal["in-sync", "changed", "pending", "degraded", "failed", "refused"]
OperationStatus = Literal["planned", "done", "failed", "skipped"]
DriftKind = Literal[
    "orphaned-allocation",
    "missing-allocation",
    "allocation-mismatch",
    "overcommitted",
    "foreign-provider",
    "unknown-domain",
    "missing-domain",
    "held-device",
    "identity",
    "name-conflict",
    "adoption-needed",
    "stranded-claim",
    "rival-writer",
]
# The states of a node with which all is well.
WELL: tuple[NodeState, ...] = ("in-sync", "changed")
# Kinds of drift that even an audit finds that makes no plan.
CONFLICTS: tuple[DriftKind, ...] = ("name-conflict", "identity", "adoption-needed")
METHODS = ("GET", "POST", "PUT", "DELETE")
STEPS = ("facts", "usage", "tree", "plan", "flush", "total")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One operation and what became of it."""

    operation: Operation
    status: OperationStatus = "planned"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """Something that is not as it should be and that the agent will not touch by itself."""

    kind: DriftKind
    severity: Literal["info", "warning"]
    detail: str
    remedy: str
    provider: str | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as the report shows it. ``fatal``: no waiting will mend it, so that a daemon that
    meets it at its start need not begin.
    """

    code: str
    message: str
    remedy: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What the tracker counts on a node: CPUs, MiB, MiB, and how many of each kind of record."""

    vcpus_used: int = 0
    memory_mb_used: int = 0
    disk_mb_used: int = 0
    instances: int = 0
    claims: int = 0
    migrations: int = 0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The result of one audit of one node.

    ``tree`` is the tree after the flush, or the desired one in a dry run; ``owned`` the providers
    that are the agent's; ``used`` the amounts in use by provider and class, where known;
    ``provisional`` says that the uuids were made up for a dry run without an identity; ``hint`` is
    for people alone: a choice that they could make; ``incomplete`` names the sections of the facts
    that could not be read. ``judged``: whether the audit came as far as to say what drifts.
    ``seconds`` are empty if nothing of the node had changed, so that it was not audited: then the
    rest is what the last audit found.
    """

    name: str
    uuid: str
    driver: str
    state: NodeState
    attempts: int = 1
    outcomes: Sequence[Outcome] = ()
    drift: Sequence[Drift] = ()
    tree: ProviderTree = field(default_factory=ProviderTree)
    owned: frozenset[str] = frozenset()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    usage: Usage = Usage()
    requests: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    errors: Sequence[Problem] = ()
    provisional: bool = False
    hint: str | None = None
    incomplete: frozenset[Section] = frozenset()
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one run. ``requests`` are those that serve many nodes; ``notice`` is a line to
    show first.
    """

    version: str
    host: str
    mode: Literal["http", "embedded"]
    endpoint: str | None
    max_version: str | None
    dry_run: bool
    nodes: Sequence[NodeReport] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    errors: Sequence[Problem] = ()
    exit_code: int = 0
    seconds: float = 0.0
    notice: str = ""


DONE = 0
FAILED = 1
CHANGED = 2
PARTLY = 3
USAGE = 64
INTERRUPTED = 130  # What a shell reports for SIGINT.


def exit_code(
    nodes: Sequence[NodeReport], errors: Sequence[Problem] = (), *, detailed: bool = False
) -> int:
    """The code for a run over ``nodes`` with ``errors`` that belong to none of them.

    ``detailed``: changes made or pending, and drift of severity warning, give ``CHANGED`` where all
    went well.
    """
    if errors or not all(map(_well, nodes)):
        return PARTLY if any(map(_succeeded, nodes)) else FAILED
    return CHANGED if detailed and any(map(_noteworthy, nodes)) else DONE


def _well(node: NodeReport) -> bool:
    return node.state in ("in-sync", "changed", "pending")


def _succeeded(node: NodeReport) -> bool:
    """Whether something was done for the node: a degraded one whose every operation failed got
    nothing.

    One that is whole but for children that somebody else keeps from it needs no more.
    """
    if node.state != "degraded":
        return _well(node)
    statuses = {outcome.status for outcome in node.outcomes}
    failed = [outcome.operation.provider for outcome in node.outcomes if outcome.status == "failed"]
    conflicts = {
        drift.detail for drift in node.drift if drift.kind in ("name-conflict", "identity")
    }
    apart = all(error.message in conflicts for error in node.errors) and all(
        one is not None and one.uuid != node.uuid for one in failed
    )
    return "done" in statuses or "failed" not in statuses or apart


def _noteworthy(node: NodeReport) -> bool:
    return node.state != "in-sync" or any(drift.severity == "warning" for drift in node.drift)
