"""The explanation of a request on one node, as a frozen value."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.explain.correction_sets import CorrectionSets
from agent.explain.holders import CellUse, RequestedDevice
from agent.explain.host_answer import HostAnswer
from agent.explain.reasons import Reason
from agent.explain.scheduler_query import SchedulerQuery
from agent.explain.suggestions import Suggestion
from agent.model.names import ProviderUuid
from agent.model.report import Problem
from agent.tracker.requests import InstanceClaim


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """What is asked for."""

    query: SchedulerQuery
    claim: InstanceClaim | None = None
    """The guest; None for a query alone, which hosts cannot judge."""


@dataclass(frozen=True, slots=True)
class CandidateAnswer:
    """What Placement says of one node, or of all nodes."""

    candidates: int = 0
    """How many candidates there are."""
    in_placement: bool = True
    """Whether Placement has the node's tree."""
    excluded_by: CorrectionSets[Reason] = field(
        default_factory=lambda: CorrectionSets((), complete=True)
    )
    """The smallest sets of constraints without which there would be candidates."""
    lacking: tuple[Reason, ...] = ()
    """Every constraint that no provider meets by itself, whether in one of the sets or not."""
    refused: str = ""
    """Why Placement refuses the query itself, for example for an unknown trait."""
    asked: int = 0
    """How many queries for candidates were sent."""


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """A node that Placement offers for a request."""

    name: str
    uuid: ProviderUuid
    candidates: int


@dataclass(frozen=True, slots=True)
class AnywhereAnswer:
    """What Placement says of all nodes together."""

    placement: CandidateAnswer
    nodes: tuple[NodeOffer, ...] = ()
    limited: bool = False
    """Whether Placement has more candidates than the query's limit, perhaps of further nodes."""


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Whether and why a request fits one node."""

    name: str
    uuid: ProviderUuid
    placement: CandidateAnswer | None = None
    """None if Placement was not asked, because of an error."""
    host: HostAnswer | None = None
    """None for a query alone."""
    cells: tuple[CellUse, ...] = ()
    devices: tuple[RequestedDevice, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    allocated: bool = False
    """Whether the claim names allocations, so that it needs no candidate."""
    pending: int = 0
    """How many changes of the node's tree are not in Placement yet."""
    problems: Sequence[Problem] = ()

    @property
    def fits(self) -> bool:
        """Whether there is a candidate, or an allocation already, and the host grants the guest."""
        if self.placement is None or not (self.placement.candidates or self.allocated):
            return False
        return self.host is None or self.host.granted is not None
