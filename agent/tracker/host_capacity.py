"""The host's side of a node: what it has and keeps for itself, before any guest."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from agent.model.domain import Domain
from agent.model.facts import CpuFacts, HostFacts
from agent.model.flavor import NOTHING, Amounts
from agent.model.mdev import MdevSource
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.numa.devices import Strategy
from agent.numa.host import HostCell
from agent.pci.alias import Aliases
from agent.tree.policy import Policy


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """``reserved``: what the operator keeps for the host, and what ``orphans`` take, guests without
    records that count. ``cells``: empty where there is nothing to fit. ``strategy``: which cells
    are taken first. ``taken_at``: of the facts. ``strict``: every guest has to have a topology.

    ``available``: whether the driver offers the node. ``device_providers``: which provider counts
    the device of an address, if any does; ``cell_providers``: which cell a provider counts, if any
    does; ``mdevs``: the parents of mediated devices as providers count them; ``aliases``: by which
    flavors ask for devices. All that a claim needs to know beside the records. ``cpu``: as the
    hypervisor last showed it. ``guests``: all that it shows, None if it does not tell;
    ``guests_untold``: why it could not tell all.
    """

    reserved: Amounts = NOTHING
    cells: tuple[HostCell, ...] = ()
    strategy: Strategy = "spread"
    taken_at: float = 0.0
    strict: bool = False
    available: bool = True
    device_providers: Mapping[str, ProviderUuid] = field(default_factory=dict)
    cell_providers: Mapping[ProviderUuid, int] = field(default_factory=dict)
    aliases: Aliases = field(default_factory=dict)
    orphans: Mapping[ConsumerUuid, Amounts] = field(default_factory=dict)
    mdevs: tuple[MdevSource, ...] = ()
    cpu: CpuFacts | None = None
    guests: tuple[Domain, ...] | None = None
    guests_untold: str = ""

    def with_orphans(self, orphans: Mapping[ConsumerUuid, Amounts]) -> Self:
        """The host with these guests to be counted beside what is reserved."""
        return replace(self, reserved=sum(orphans.values(), self.reserved), orphans=orphans)

    def without_orphans(self, claimed: Collection[ConsumerUuid]) -> Self:
        """The host once these guests have claims, which count."""
        found = self.orphans.keys() & set(claimed) if self.orphans else ()
        if not found:
            return self
        left = {uuid: amounts for uuid, amounts in self.orphans.items() if uuid not in found}
        return replace(
            self,
            reserved=self.reserved - sum((self.orphans[uuid] for uuid in found), NOTHING),
            orphans=left,
        )


def host_capacity(
    facts: HostFacts, policy: Policy, aliases: Aliases, last: HostCapacity, *, nested: bool
) -> HostCapacity:
    """The host's side as these facts show it; of what they could not tell, as it was ``last``.
    ``nested``: its cells have providers.
    """
    has_cpus = facts.cpu is not None or not facts.complete("cpu")
    reserved = (
        Amounts(
            policy.reserved_memory_mib,
            policy.reserved_cpus,
            policy.reserved_disk_mib + facts.image_cache_gib * 1024,
        )
        if has_cpus
        else NOTHING
    )
    cells: tuple[HostCell, ...] = ()
    if not (facts.complete("cpu") and facts.complete("numa")):
        cells = last.cells
    elif facts.numa is not None and facts.cpu is not None:
        cells = policy.host.cells(facts.numa, facts.cpu.online, facts.cpu.sleeping)
    return HostCapacity(
        reserved,
        cells,
        policy.host.strategy,
        facts.taken_at,
        strict=policy.strict and nested and bool(cells),
        aliases=aliases,
        mdevs=last.mdevs,
        cpu=facts.cpu if facts.complete("cpu") else last.cpu,
        guests=facts.domains,
        guests_untold=facts.incomplete.get("domains", ""),
    )
