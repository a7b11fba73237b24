"""Capacity of a node's host: what it has and what is kept for the host, before any guest."""

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
    """What a claim needs to know of the host, beside the records."""

    reserved: Amounts = NOTHING
    """What the operator keeps for the host, with the amounts of ``orphans``."""
    cells: tuple[HostCell, ...] = ()
    """The NUMA cells; empty where there is nothing to fit."""
    strategy: Strategy = "spread"
    """Which cells are taken first."""
    taken_at: float = 0.0
    """When the facts were taken, in seconds since the epoch."""
    strict: bool = False
    """Whether every guest has to have a topology."""
    available: bool = True
    """Whether the driver offers the node."""
    device_providers: Mapping[str, ProviderUuid] = field(default_factory=dict)
    """Device address to the provider that counts the device, if any does."""
    cell_providers: Mapping[ProviderUuid, int] = field(default_factory=dict)
    """Provider to the id of the cell that it counts."""
    aliases: Aliases = field(default_factory=dict)
    """The aliases by which flavors request devices."""
    orphans: Mapping[ConsumerUuid, Amounts] = field(default_factory=dict)
    """The guests without records, with the amounts that are counted for them."""
    mdevs: tuple[MdevSource, ...] = ()
    """The parents of mediated devices as the providers count them."""
    cpu: CpuFacts | None = None
    """The CPUs as the hypervisor last showed them."""
    guests: tuple[Domain, ...] | None = None
    """All guests that the hypervisor shows, None if its driver does not report guests."""
    guests_incomplete: str = ""
    """Why the driver could not report all guests; else empty."""

    def with_orphans(self, orphans: Mapping[ConsumerUuid, Amounts]) -> Self:
        """Return the capacity with these guests counted in ``reserved``."""
        return replace(self, reserved=sum(orphans.values(), self.reserved), orphans=orphans)

    def without_orphans(self, claimed: Collection[ConsumerUuid]) -> Self:
        """Return the capacity without those orphans that have claims now, because the claims are
        counted.
        """
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
    """Return the capacity by these facts; what they do not report completely is taken from
    ``last``. ``nested``: the cells have providers.
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
        guests_incomplete=facts.incomplete.get("domains", ""),
    )
