"""What the audits of all nodes of a process share, and what is said to each of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Condition, Event

from agent.driver.interface import Driver
from agent.driver.worker import DriverWorker
from agent.http.nova_api import NovaApi
from agent.model.names import ProviderUuid
from agent.pci.settings import PciSettings
from agent.placement.mirror import Freshness
from agent.placement.server import Server
from agent.provider_config.applying import Absences, ProviderConfig
from agent.store.identity import HostIdentity
from agent.tracker.tracker import TrackerServices
from agent.tree.policy import Policy


class AuditOrder:
    """The unfinished audits of one pass, in the order of their nodes. Threads share it.

    Nodes of one kind add the same names to Placement. The first audit that needs a name asks for
    it and creates it, and the later ones wait; so the requests do not depend on which thread runs
    first.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._unfinished: dict[ProviderUuid, None] = {}

    def begin(self, nodes: Iterable[ProviderUuid]) -> None:
        """Add the audits of ``nodes`` at the end."""
        with self._changed:
            self._unfinished |= dict.fromkeys(nodes)

    def end(self, node: ProviderUuid) -> None:
        """Remove the audit of ``node``."""
        with self._changed:
            self._unfinished.pop(node, None)
            self._changed.notify_all()

    def wait_for_all(self, seconds: float) -> None:
        """Wait until no audit is unfinished, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished, seconds)

    def wait_for_earlier(self, node: ProviderUuid) -> None:
        """Wait until no audit before that of ``node`` is unfinished; an audit that is not in the
        order waits for none.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: node not in self._unfinished or next(iter(self._unfinished)) == node
            )


@dataclass(frozen=True, slots=True)
class AuditContext:
    """What the audits of all nodes of a process share."""

    server: Server
    driver: Driver
    worker: DriverWorker
    policy: Policy
    agent: str
    """The name that marks the root providers of this agent."""
    cancelled: Event
    """Set when the process is to end; interrupts the waits between attempts."""
    tracking: TrackerServices
    facts_deadline: float = 60
    """Deadline of each call to the driver for one node, in seconds."""
    freshness: Freshness = field(default_factory=Freshness)
    provider_config: ProviderConfig = field(default_factory=ProviderConfig)
    absences: Absences = field(default_factory=Absences)
    """Tracks which providers of the operator's files no node has."""
    pci: PciSettings = field(default_factory=PciSettings)
    nodes_deadline: float = 300
    """Deadline of the driver's list of nodes, in seconds."""
    order: AuditOrder = field(default_factory=AuditOrder)
    observes: bool = False
    """Nothing is written to Placement, because another program manages the nodes."""
    gives_back: bool = False
    """The trees are left to nova-compute: without marks and devices that only the agent reports."""
    nova: NovaApi | None = None
    """None: nova is not to be asked."""
    identity: HostIdentity | None = None
    """The uuid of this host's own node; None if the uuids are those of a backend that other hosts
    see too.
    """

    @property
    def provisional(self) -> bool:
        """Whether the uuids were made up for a dry run on a host without an identity."""
        return self.identity is not None and self.identity.source == "made up"

    @property
    def mark(self) -> str:
        """The name that roots are marked with; empty if they are not to be marked."""
        return "" if self.observes or self.gives_back else self.agent


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How to audit."""

    dry_run: bool = False
    """Plan and report, send nothing."""
    adopt: bool = False
    """Take over a tree that another agent or program wrote."""
    rename: bool = False
    """Give the root the node's name."""
    start: bool = False
    """Allocations may move to another layout, until an audit with all facts of it left nothing to
    move; and again after another agent may have had the node, or the cells of a displaced guest are
    known again.
    """
    reread: bool = False
    """Read the whole tree from Placement; trust no saved mirror."""
    with_usages: bool = False
    """Ask Placement for the usages that the report shows."""
    remove_deleted: bool = False
    """Delete the providers of every node that the driver says is deleted, however many they are."""
    asked: bool = False
    """The audit was requested, so a refused node is tried again at once."""
    on_mirror: bool = False
    """Placement is taken to be as the mirror has it, and is asked only about nodes of which the
    mirror does not suffice: because there is something to do, or to read.
    """


@dataclass(frozen=True, slots=True)
class AuditedNode:
    """A node to audit."""

    uuid: ProviderUuid
    name: str
    driver: str
    provisional: bool = False
    """The uuid was generated for a dry run on a host without an identity."""
