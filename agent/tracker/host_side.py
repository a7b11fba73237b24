"""The host's side of a node: what it has and keeps for itself, before any guest."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.desired.policy import Policy
from agent.model.amounts import NOTHING, Amounts
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid
from agent.numa.host import HostCell
from agent.numa.preference import Strategy
from agent.pci.alias import Aliases


@dataclass(frozen=True, slots=True)
class HostSide:
    """``reserved``: what the operator keeps for the host. ``cells``: empty where there is nothing to fit.
    ``strategy``: which cells are taken first. ``taken_at``: of the facts. ``strict``: every guest has to have a topology.

    ``available``: whether the driver offers the node. ``device_providers``: which provider counts the device of an address, as far as
    Placement has it; ``aliases``: by which flavors ask for devices. All that a claim needs to know beside the records.
    """

    reserved: Amounts = NOTHING
    cells: tuple[HostCell, ...] = ()
    strategy: Strategy = "spread"
    taken_at: float = 0.0
    strict: bool = False
    available: bool = True
    device_providers: Mapping[str, ProviderUuid] = field(default_factory=dict)
    aliases: Aliases = field(default_factory=dict)


def host_side(facts: HostFacts, policy: Policy, aliases: Aliases, last: HostSide, *, nested: bool) -> HostSide:
    """The host's side as these facts show it; of what they could not tell, as it was ``last``. ``nested``: its cells have providers.

    :raises ConfigErrors: the operator's sets, pages or networks contradict the host.
    """
    has_cpus = facts.cpu is not None or not facts.complete("cpu")
    reserved = Amounts(policy.reserved_memory_mib, policy.reserved_cpus, policy.reserved_disk_mib) if has_cpus else NOTHING
    cells: tuple[HostCell, ...] = ()
    if not (facts.complete("cpu") and facts.complete("numa")):
        cells = last.cells
    elif facts.numa is not None and facts.cpu is not None:
        cells = policy.host.cells(facts.numa, facts.cpu.online)
    return HostSide(reserved, cells, policy.host.strategy, facts.taken_at, strict=policy.strict and nested and bool(cells), aliases=aliases)
