"""What audits and commands find: drift and problems, how a node stands, and the exit codes."""

from dataclasses import dataclass
from typing import Literal

AgentState = Literal["starting", "ready", "degraded", "standing by", "reloading", "stopping"]
AuditState = Literal["in-sync", "changed", "pending", "degraded", "failed", "refused"]
DriftKind = Literal[
    "orphaned-allocation",
    "missing-allocation",
    "allocation-mismatch",
    "overcommitted",
    "foreign-provider",
    "foreign-allocation",
    "unknown-domain",
    "missing-domain",
    "held-device",
    "identity",
    "name-conflict",
    "adoption-needed",
    "stranded-claim",
    "rival-writer",
    "disabled",
    "guest-conflict",
    "misplaced-guest",
    "contradictory-flavor",
    "reported-otherwise",
    "nova-not-asked",
]
# The states of a node without problems; pending where changes are only planned.
WELL: tuple[AuditState, ...] = ("in-sync", "changed", "pending")
# Kinds of drift that even an audit without a plan finds.
CONFLICTS: tuple[DriftKind, ...] = ("name-conflict", "identity", "adoption-needed")


@dataclass(frozen=True, slots=True)
class Drift:
    """Something that is not as it should be, which the agent reports and does not change by
    itself.
    """

    kind: DriftKind
    severity: Literal["info", "warning"]
    detail: str
    remedy: str
    provider: str | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as the report shows it."""

    code: str
    message: str
    remedy: str
    fatal: bool = False
    """Whether waiting cannot remove the error, so that a daemon that meets it at its start ends."""


DONE = 0
FAILED = 1
CHANGED = 2
PARTLY = 3
USAGE = 64
INTERRUPTED = 130  # What a shell reports for SIGINT.
