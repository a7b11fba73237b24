"""What an audit of a node has read, what it still needs to read, and what follows: data between the
reads and the pure plan. And the memo of an audit: what followed from the last observation follows
again as long as all that it followed from is as it was; nothing is kept that depends on the time,
or on what is asked anew in each pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.audit.context import AuditContext, AuditedNode, AuditOptions
from agent.driver.interface import Allocations
from agent.errors import AgentError
from agent.model.facts import HostFacts
from agent.model.finding import Drift
from agent.model.mirror import Consumers, Held, Journal, PlacementView, ServerCapabilities
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import AllocationOperation
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree
from agent.placement.merge import Target, Usages
from agent.placement.plan import Plan
from agent.placement.reshaping import AllocationMove
from agent.provider_config.applying import Key
from agent.tracker.node_state import NodeView
from agent.tracker.stored_state import TreeConsumers
from agent.tree.allocation_repair import AllocationRepair, Surplus
from agent.tree.device_providers import DeviceProviders
from agent.tree.policy import Policy
from agent.tree.reported_cards import DeviceUses
from agent.tree.reshape.allocation_editor import GuestPlaces

DriverShapes = Literal["nothing", "part", "all"]
"""What of the tree the driver itself shapes: nothing; its own part, from the facts alone, so that
equal facts make equal trees; or all of it, in nova's style, to which nothing is added from facts.
"""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that has to be read. Its fields that are compared say what; equal needs are read
    once in an attempt.
    """


@dataclass(frozen=True, slots=True)
class DriverTree(Need):
    """What the driver makes of a tree: ``base``, the edited tree and the edited allocations, or the
    :class:`ReshapeNeeded` that it raised.
    """

    moves: bool
    """With ``allocations``."""
    base: BaseTree | None = field(default=None, compare=False)
    """What ``tree`` was made from; providers that nobody wrote since are shared by both."""
    tree: DesiredTree | None = field(default=None, compare=False)
    """The driver edits it in place."""
    allocations: Allocations | None = field(default=None, compare=False)
    """The driver edits them in place."""


@dataclass(frozen=True, slots=True)
class ReshapeReads(Need):
    """Every consumer of the node's tree, each with its whole allocation by consumer, and what the
    providers that share with the node have left (:class:`Sharing`): tuple of both.
    """

    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Holders(Need):
    """Who holds what of these providers now: :data:`Consumers`. Giving back an allocation moves no
    generation.
    """

    providers: tuple[ProviderUuid, ...]


@dataclass(frozen=True, slots=True)
class Names(Need):
    """Whether the server knows these traits, and which of the names have to be created: the
    capabilities of the observation say so afterwards.
    """

    traits: frozenset[str]
    classes: frozenset[str]


@dataclass(frozen=True, slots=True)
class NewerServer(Need):
    """Whether Placement offers more by now, because something is held back for lack of it: bool."""


@dataclass(frozen=True, slots=True)
class Hold(Need):
    """The usages of inventories that consumers go on using although the node no longer has them:
    they are held from now on.
    """

    what: Held = field(compare=False)


@dataclass(frozen=True, slots=True)
class KnownHolders(Need):
    """Who holds what of these providers, read again where the provider has moved; the view of the
    observation has it afterwards.
    """

    providers: tuple[ProviderUuid, ...]


@dataclass(frozen=True, slots=True)
class HoldersInTurn(Need):
    """As :class:`KnownHolders`, and one of the providers is read again if its turn has come."""

    providers: tuple[ProviderUuid, ...]
    in_turn: frozenset[ProviderUuid]
    """The providers that take turns."""


@dataclass(frozen=True, slots=True)
class Reread(Need):
    """The allocations of consumers that are to be reported about one subject, as far as it is time
    to read them again; the view of the observation has them afterwards.
    """

    about: str
    consumers: frozenset[ConsumerUuid] = field(compare=False)


@dataclass(frozen=True, slots=True)
class WholeAllocations(Need):
    """All allocations of these consumers as they are now, by consumer; without those that have
    none.
    """

    about: str
    consumers: tuple[ConsumerUuid, ...] = field(compare=False)
    typed: bool = False
    """With the types of the consumers, if the server has them."""


@dataclass(frozen=True, slots=True)
class HeldElsewhere(Need):
    """All allocations of those of these consumers that hold CPUs or memory of another host than
    that of the providers ``own``, by consumer.
    """

    consumers: frozenset[ConsumerUuid] = field(compare=False)
    own: frozenset[ProviderUuid] = field(compare=False)


@dataclass(frozen=True, slots=True)
class LastingSurpluses(Need):
    """Those of these surpluses of devices that earlier passes have seen too, long enough ago."""

    seen: frozenset[Surplus] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Holdings(Need):
    """Who holds what of the node, and what the records have on them: :class:`HeldHere`. With guests
    or claims on record all that is offered is asked about, and one provider is read again if its
    turn has come. Without, all that is held is unknown: only what may be held is asked about, and
    all that is held again, because what is given back moves no generation.
    """

    providers: frozenset[ProviderUuid] = field(default=frozenset(), compare=False)
    """Those that are judged as far as they offer something."""


@dataclass(frozen=True, slots=True)
class HeldHere:
    """What is held of the node, and the records of who holds it."""

    on_record: bool
    """Whether any guest or claim is on record."""
    own: frozenset[ProviderUuid]
    """The providers of the node's tree."""
    offering: tuple[ProviderUuid, ...]
    """Those that are judged."""
    providers: tuple[ProviderUuid, ...]
    """Those of them that were asked about: the view has their consumers."""
    records: TreeConsumers | None
    """None if nothing was asked about."""


@dataclass(frozen=True, slots=True)
class TreeOf(Need):
    """The providers in the tree of another node: tuple of :class:`~agent.placement.answers.Row`."""

    member: ProviderUuid
    """Any of them."""


@dataclass(frozen=True, slots=True)
class GuestAllocations(Need):
    """All allocations of these consumers, as far as they were written since they were last read, by
    consumer.
    """

    held: Mapping[ConsumerUuid, Mapping[ProviderUuid, Mapping[str, int]]] = field(compare=False)
    """What each of them holds of the node."""


@dataclass(frozen=True, slots=True)
class NovasWord(Need):
    """``drift`` with what nova's API tells of it, if nova is to be asked."""

    share: Any = field(compare=False)
    drift: tuple[Drift, ...] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on the node's allocations."""

    operations: tuple[AllocationOperation, ...] = ()
    """Removals to send."""
    drift: tuple[Drift, ...] = ()
    errors: tuple[AgentError, ...] = ()
    """Why the allocations could not be judged; the audit goes on without."""
    cleared: frozenset[ConsumerUuid] = frozenset()
    """Evacuations that have nothing left on this node."""
    used_up: Mapping[ConsumerUuid, frozenset[ConsumerUuid]] = field(default_factory=dict)
    """By consumer to remove: the evacuations that have nothing left here once it is removed."""
    unknown_since: Mapping[ConsumerUuid, float] | None = None
    """The consumers without records, with the time since when they are unknown, in seconds since
    the epoch; None: as it was.
    """

    @property
    def quiet(self) -> bool:
        """Whether nothing is to be told or done: then the verdict does not depend on the time."""
        told = self.operations or self.drift or self.errors
        return not (told or self.cleared or self.used_up or self.unknown_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """The tree that Placement should hold for the node, and the way there but for moves of
    allocations.
    """

    move: AllocationMove | None
    """The move of allocations that this tree needs."""
    devices: DeviceProviders
    """The PCI providers that the devices of the node come to."""
    device_drift: tuple[Drift, ...]
    anew: bool
    """Some PCI providers are removed, to be created again at another place."""
    target: Target
    plan: Plan
    """Without moves of allocations."""
    problems: tuple[AgentError, ...]
    """Of the operator's provider files."""
    sighted: frozenset[Key]
    """The entries of the operator's files that match a provider here."""
    hint: str | None
    """What the operator's options could do better for the node; None if there is nothing."""
    layout: str | None
    """Which layout the tree has, and why; None for a host without cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """What follows from an observation: what has to be read before more follows, or the plan."""

    needs: Need | None = None
    """None: nothing more."""
    judges: bool = False
    """It is needed to judge the allocations: without it the audit goes on."""
    shaped: Shaped | None = None
    """As soon as it follows; None of a node that was deleted."""
    plan: Plan | None = None
    """None while something is needed."""
    repair: AllocationRepair = field(default_factory=AllocationRepair)
    """Corrections of the allocations of devices."""
    judged: Judged = field(default_factory=Judged)
    """The removals at the end of the plan."""
    drift: tuple[Drift, ...] = ()
    errors: tuple[AgentError, ...] = ()
    removes_node: bool = False
    """The node was deleted, so its providers go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeObservation:
    """What one attempt of an audit has read of a node's tree in Placement."""

    node: AuditedNode
    view: PlacementView
    named: PlacementView
    """The view with the root called as the node, and the agent's children by their roles."""
    journal: Journal
    capabilities: ServerCapabilities
    usages: Usages
    """The usages of what is held until it is free."""
    doubted: frozenset[ConsumerUuid]
    """The consumers that may hold something elsewhere since they were last asked about."""
    remembered: frozenset[str]
    """The subjects about which consumers were reported, see :class:`Reread`."""
    answers: Mapping[Need, Any] = field(default_factory=dict)
    """What was read because an outcome needed it."""
    unjudged: AgentError | None = None
    """Why something could not be read that is needed to judge the allocations."""
    shaped: Shaped | None = None
    """The shape, once it follows; what is needed after it does not change it."""

    @property
    def root(self) -> ProviderUuid:
        """The node's root provider."""
        return self.node.uuid

    def lacks(self, need: Need) -> bool:
        """Whether this was not read yet."""
        return need not in self.answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(TreeObservation):
    """All that one attempt of an audit has read of a node that exists."""

    context: AuditContext
    options: AuditOptions
    facts: HostFacts
    compute_capabilities: Mapping[str, bool]
    """By trait: whether the node has the capability, as the driver says."""
    records: NodeView
    uses: DeviceUses
    """Which consumer has which device."""
    places: GuestPlaces
    policy: Policy
    """The operator's, with the mediated devices that guests have and that are not made yet."""
    asks: bool
    """Who holds what of the node is to be asked about."""
    has_surpluses: bool
    """Earlier passes have seen surpluses of devices."""
    now: float
    """Seconds since the epoch."""
    first: bool
    """The agent starts with this audit, so that devices must be as the options say."""
    reshapes: bool
    """Reshapes are allowed that only an agent that starts may do."""
    driver_shapes: DriverShapes
    unrepaired: str = ""
    """Why allocations of devices cannot be corrected now; empty if they can."""
    tried: frozenset[ConsumerUuid] = frozenset()
    """Consumers that an earlier attempt of this pass could not remove."""
    last: "LastOutcome | None" = None

    @property
    def takes_care(self) -> bool:
        """Whether the agent manages the node, and goes on doing so."""
        return not (self.context.observes or self.context.gives_back)

    @property
    def running(self) -> frozenset[ConsumerUuid] | None:
        """The uuids of the guests that the hypervisor shows; None where this could not be read.

        Empty for a driver that never shows guests: then the records decide.
        """
        if not self.facts.complete("domains"):
            return None
        return frozenset(guest.uuid for guest in self.facts.domains or ())

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether the host may be published already, as another root: it has guests, no identity of
        its own, and no root of that uuid.
        """
        own = self.context.identity
        lost = own is not None and own.uuid == self.root and own.source in ("proposed", "made up")
        return lost and bool(self.facts.domains) and not self.view.tree.exists(self.root)

    def own_tree(self) -> PresentTree:
        """Return a copy of the node's tree alone, named by roles; empty if Placement does not have
        it.
        """
        return self.named.subtree(self.root)

    def needs_reread(self, need: Reread) -> bool:
        """Whether allocations are to be read again, or a subject has nothing to report any more."""
        return bool(need.consumers or need.about in self.remembered) and self.lacks(need)

    def consumers(self, providers: tuple[ProviderUuid, ...]) -> Consumers:
        """Return the known consumers of these providers."""
        return {uuid: self.view.consumers[uuid] for uuid in providers}

    # --- what followed from the last observation --------------------------------------------------

    def shape_again(self) -> Shaped | None:
        """Return the last shape if everything that it follows from is as it was; what a driver in
        nova's style makes of the tree has to be known.
        """
        if self.last is None or self.usages or self.first or self.reshapes or self.options.adopt:
            return None
        last = self.last.seen
        same = (
            last.view.above == self.view.above
            and last.view.tree.same_contents(self.view.tree)
            and last.journal == self.journal
            and last.capabilities == self.capabilities
            # A trait that the server did not know may have to be looked up again.
            and self.capabilities.left_out_traits(self.now) == self.capabilities.unknown_traits
            and last.uses == self.uses
            and last.places == self.places
            and last.policy == self.policy
            and last.compute_capabilities == self.compute_capabilities
            # Neither shape nor plan depends on their time.
            and last.facts.same_but_for_time(self.facts)
        )
        return self.last.shaped if same and self._same_driver_tree(last) else None

    def _same_driver_tree(self, last: "Observation") -> bool:
        """Return whether the driver makes the same tree; other drivers than those in nova's style
        make equal trees of equal facts.
        """
        if self.driver_shapes != "all":
            return True
        tree = DriverTree(moves=False)
        made, before = self.answers.get(tree), last.answers.get(tree)
        if not (isinstance(made, tuple) and isinstance(before, tuple)):
            return False
        return bool(made[1].same_contents(before[1]))

    def verdict_again(self, held: HeldHere) -> Judged | None:
        """Return the last verdict on the allocations if it told nothing, and nothing that it
        follows from has changed.
        """
        if self.last is None or self.doubted:
            return None
        last = self.last.seen
        same = (
            last.answers.get(Holdings()) == held
            and last.consumers(held.providers) == self.consumers(held.providers)
            and last.view.tree.same_contents(self.view.tree)
            and last.policy.purge_after == self.policy.purge_after
            and last.running == self.running
        )
        return self.last.judged if same else None


@dataclass(frozen=True, slots=True)
class LastOutcome:
    """What followed from the last observation of a node."""

    seen: Observation
    shaped: Shaped
    judged: Judged | None
    """None if it depends on the time."""


def last_outcome(seen: Observation, outcome: PlanOutcome) -> LastOutcome | None:
    """Return what is kept of an outcome; None if the same observation could lead to another shape,
    or if there is something to do.
    """
    last, shaped = seen.last, outcome.shaped
    assert shaped is not None
    judged = outcome.judged if outcome.judged.quiet else None
    if last is not None and last.shaped is shaped and last.judged is judged:
        return last
    # What is held until it is free depends on usages, and a question about the consumers of
    # providers that shrink has to be asked each time.
    asks = seen.usages or any(isinstance(need, Holders) for need in seen.answers)
    plan = shaped.plan
    if asks or shaped.move or plan.operations or plan.limited or plan.drift:
        return None
    return LastOutcome(replace(seen, last=None), shaped, judged)
