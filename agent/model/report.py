"""Report of an audit: for each node its tree, operations, drift and errors. The JSON form is a
contract.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from agent.model.finding import (
    CHANGED,
    CONFLICTS,
    DONE,
    FAILED,
    PARTLY,
    WELL,
    AuditState,
    Drift,
    Problem,
)
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.version import agent_version

if TYPE_CHECKING:
    # Not at run time: to define these classes takes a command that asks the daemon longer than its
    # own work.
    from agent.model.facts import Section
    from agent.model.mirror import Consumers
    from agent.model.operation import Operation

OperationStatus = Literal["planned", "done", "failed", "skipped"]
METHODS = ("GET", "POST", "PUT", "DELETE")
STEPS = ("facts", "usage", "tree", "plan", "flush", "total")
"""What the time of an audit is told of: the facts of the driver, the count of the records, the
mirror that is brought up to date, the plan with what it reads on demand, the flush; and all.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One operation with its result."""

    operation: "Operation"
    status: OperationStatus = "planned"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the tracker counts on a node: amounts in use, and the number of records of each kind."""

    vcpus_used: int = 0
    memory_mb_used: int = 0
    """MiB."""
    disk_mb_used: int = 0
    """MiB."""
    instances: int = 0
    claims: int = 0
    migrations: int = 0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The result of one audit of one node."""

    name: str
    uuid: str
    driver: str
    state: AuditState
    attempts: int = 1
    outcomes: Sequence[Outcome] = ()
    drift: Sequence[Drift] = ()
    tree: ProviderTree = field(default_factory=ProviderTree)
    """The tree after the flush, or the desired tree in a dry run."""
    owned: frozenset[str] = frozenset()
    """The providers that are the agent's."""
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Provider to resource class to the amount in use by the agent's records, where known."""
    in_placement: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Provider to resource class to the amount in use that Placement counts, for the providers for
    whose usages it was asked; a class without an amount is not in use.
    """
    consumers: "Consumers" = field(default_factory=dict)
    """Provider to consumer to what it holds, as far as Placement was asked for it; not for
    programs.
    """
    usage: Usage = Usage()
    requests: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Step to its duration in seconds; empty if nothing of the node had changed, so that it was not
    audited: the other fields are then those of the last audit.
    """
    errors: Sequence[Problem] = ()
    provisional: bool = False
    """Whether the uuids were made up for a dry run without an identity."""
    hint: str | None = None
    """A choice that the operator could make; not for programs."""
    layout: str | None = None
    """Which layout the tree has, and why; None for a host without cells. Not for programs."""
    incomplete: "frozenset[Section]" = frozenset()
    """The sections of the facts that could not be read."""
    judged: bool = True
    """Whether the audit came as far as to find drift."""


@dataclass(frozen=True, slots=True)
class LastFound:
    """What the audits of a node have found, as the store keeps it."""

    root: ProviderUuid
    host: str
    """Whose agent audits it."""
    name: str
    driver: str
    state: AuditState
    drift: tuple[Drift, ...]
    errors: tuple[Problem, ...]
    found_at: float
    """Since when they find the same, in seconds since the epoch."""


def last_found(node: NodeReport, host: str, before: LastFound | None, now: float) -> LastFound:
    """Return what is found of a node of ``host`` after an audit; ``before`` itself if that is the
    same.
    """
    # What was changed is in sync from then on.
    found = LastFound(
        ProviderUuid(node.uuid),
        host,
        node.name,
        node.driver,
        "in-sync" if node.state == "changed" else node.state,
        tuple(drift_after(node, before.drift if before is not None else ())),
        tuple(node.errors),
        before.found_at if before is not None else now,
    )
    return before if before == found else replace(found, found_at=now)


def drift_after(node: NodeReport, before: Sequence[Drift]) -> Sequence[Drift]:
    """Return the drift of a node after an audit. One that could not look, as in an outage, has not
    ended any of the drift ``before``.
    """
    if node.judged:
        return node.drift
    # Conflicts are found before all other drift.
    kept = [
        drift
        for drift in before
        if drift not in node.drift and not (node.drift and drift.kind in CONFLICTS)
    ]
    return (*node.drift, *kept)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one run."""

    version: str
    host: str
    mode: Literal["http", "embedded"]
    endpoint: str | None
    max_version: str | None
    dry_run: bool
    nodes: Sequence[NodeReport] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    """The requests that serve many nodes."""
    errors: Sequence[Problem] = ()
    exit_code: int = 0
    seconds: float = 0.0
    notice: str = ""
    """A line to show first."""
    observes: bool = False
    """The agent only observes, so that what it plans is what it has found."""


def failed_report(
    host: str,
    errors: Sequence[Problem],
    *,
    embedded: bool = False,
    dry_run: bool = False,
    exit_code: int = 0,
) -> Report:
    """Return the report of a run that ended with errors before it came to any node."""
    return Report(
        version=agent_version(),
        host=host,
        mode="embedded" if embedded else "http",
        endpoint=None,
        max_version=None,
        dry_run=dry_run,
        errors=errors,
        exit_code=exit_code,
    )


def exit_code(
    nodes: Sequence[NodeReport], errors: Sequence[Problem] = (), *, detailed: bool = False
) -> int:
    """Return the exit code of a run over ``nodes`` with ``errors`` that belong to none of them.

    ``detailed``: if all went well, return ``CHANGED`` for changes made or pending and for drift of
    severity warning.
    """
    if errors or not all(map(_well, nodes)):
        return PARTLY if any(map(_succeeded, nodes)) else FAILED
    noteworthy = any(
        node.state != "in-sync" or any(drift.severity == "warning" for drift in node.drift)
        for node in nodes
    )
    return CHANGED if detailed and noteworthy else DONE


def _well(node: NodeReport) -> bool:
    return node.state in WELL


def _succeeded(node: NodeReport) -> bool:
    """Return whether anything was achieved for the node: for a degraded node, at least one
    operation was done or none failed.

    A degraded node counts too if its only errors are conflicts over names and uuids, and no failed
    operation is about its root.
    """
    if node.state != "degraded":
        return _well(node)
    statuses = {outcome.status for outcome in node.outcomes}
    failed = [outcome.operation.provider for outcome in node.outcomes if outcome.status == "failed"]
    conflicts = {
        drift.detail for drift in node.drift if drift.kind in ("name-conflict", "identity")
    }
    apart = all(error.message in conflicts for error in node.errors) and all(
        provider is not None and provider.uuid != node.uuid for provider in failed
    )
    return "done" in statuses or "failed" not in statuses or apart
