"""What each guest should hold of the providers below a node's root, by the cells, devices and
mediated devices that the hypervisor shows it with. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import os_resource_classes as orc

from agent.model.claim import Claim
from agent.model.facts import HostFacts
from agent.model.host_units import MdevSource
from agent.model.inventory import Holdings, Resources
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.tracker.node_state import NodeState
from agent.tree.cell_tree import OF_CELLS
from agent.tree.reported_cards import device_class, device_providers

Place = tuple[ProviderUuid, str]
"""A provider and one of its classes."""


@dataclass(frozen=True, slots=True)
class GuestShares:
    """The places whose holders follow from what guests have, and what each guest has of them."""

    cells: frozenset[Place]
    """Places that count the CPUs and the memory of a cell; a guest that floats may hold any."""
    devices: frozenset[Place]
    mdevs: frozenset[Place]
    """Places that count mediated devices."""
    due: Mapping[ConsumerUuid, Mapping[Place, int]]
    """By guest: what it has of these places."""
    floating: frozenset[ConsumerUuid]
    """The guests that are in no cell."""

    @classmethod
    def of(cls, state: NodeState, facts: HostFacts, tree: ProviderTree) -> Self:
        """Return the shares of the guests that ``state`` has claims of. ``tree``: of the node, as
        Placement has it.
        """
        cells, cards = _cell_places(state, tree), _card_places(state, tree)
        mdevs = _mdev_places(state, tree) if facts.complete("mdev") else {}
        owners = {claim.id: claim.instance for claim in state.claims.values()}
        due: dict[ConsumerUuid, Counter[Place]] = defaultdict(Counter)
        for claim in state.claims.values():
            due[claim.instance].update(
                {place: count for place, count in _of_cells(state, claim) if place in cells}
            )
        for device in state.devices.values():
            place = cards.get(state.host.device_providers.get(device.address))
            if device.holder in owners and place is not None:
                due[owners[device.holder]][place] += 1
        for parent in facts.mdev or ():
            for mdev in parent.mdevs:
                place = mdevs.get((parent.name, mdev.type))
                if mdev.owner is not None and place is not None:
                    due[mdev.owner][place] += 1
        return cls(
            cells,
            frozenset(cards.values()),
            frozenset(mdevs.values()),
            due,
            frozenset(claim.instance for claim in state.claims.values() if not claim.cells),
        )

    def counted_for(
        self, guest: ConsumerUuid, held: Holdings, *, of_cells: bool = False
    ) -> frozenset[Place]:
        """Return the places of which it is known what ``guest`` should hold. ``of_cells``: what it
        should hold of cells is known, whatever it holds.

        Those of cells only if it holds as much of their class as it has, or nothing at all, because
        other amounts have another cause; those of mediated devices only if it does not hold more
        than it has, because the devices of a stopped guest may not exist.
        """
        have, holds = Counter[str](), Counter[str]()
        for provider, name in self.cells | self.mdevs:
            have[name] += self._due_of(guest, (provider, name))
            holds[name] += held.get(provider, {}).get(name, 0)
        cells = frozenset[Place]() if guest in self.floating else self.cells
        return (
            self.devices
            | {
                place
                for place in cells
                if of_cells or not held or have[place[1]] == holds[place[1]]
            }
            | {place for place in self.mdevs if have[place[1]] >= holds[place[1]]}
        )

    def misplaced(self, guest: ConsumerUuid, held: Holdings, tree: ProviderTree) -> Iterator[str]:
        """Yield what ``guest`` holds otherwise than it has, for a message. ``held``: its allocation
        of the node's tree.
        """
        for uuid, name in sorted(self.counted_for(guest, held)):
            has, should = held.get(uuid, {}).get(name, 0), self._due_of(guest, (uuid, name))
            if has != should:
                yield f"{has} {name} of {printable(tree.name_of(uuid))} instead of {should}"

    def has_more_than_root(self, guest: ConsumerUuid) -> bool:
        """Return whether some of what ``guest`` has is counted below the root."""
        return any(self.due.get(guest, {}).values())

    def corrected(self, guest: ConsumerUuid, held: Holdings, *, of_cells: bool) -> Holdings:
        """Return ``held``, an allocation of ``guest``, with what it should hold of the places that
        are known, see :meth:`counted_for`.
        """
        found: dict[ProviderUuid, dict[str, int]] = {
            uuid: dict(resources) for uuid, resources in held.items()
        }
        for uuid, name in self.counted_for(guest, held, of_cells=of_cells):
            found.setdefault(uuid, {})[name] = self._due_of(guest, (uuid, name))
        return without_zeros(found)

    def _due_of(self, guest: ConsumerUuid, place: Place) -> int:
        return self.due.get(guest, {}).get(place, 0)


def without_zeros(held: Mapping[ProviderUuid, Resources]) -> Holdings:
    """Return ``held`` without amounts of 0, and without providers of which nothing is held."""
    rest = {
        uuid: {name: amount for name, amount in resources.items() if amount}
        for uuid, resources in held.items()
    }
    return {uuid: resources for uuid, resources in rest.items() if resources}


def _cell_places(state: NodeState, tree: ProviderTree) -> frozenset[Place]:
    """Return the places of the cells whose class the root does not have too."""
    root = state.node.uuid
    on_root = tree.provider(root).inventory.keys() if tree.exists(root) else frozenset[str]()
    return frozenset(
        (uuid, name)
        for uuid in state.host.cell_providers
        if tree.exists(uuid)
        for name in tree.provider(uuid).inventory.keys() & OF_CELLS - on_root
    )


def _of_cells(state: NodeState, claim: Claim) -> Iterable[tuple[Place, int]]:
    """Return what a claim has of each cell's provider."""
    found = Counter[Place]()
    providers = {number: uuid for uuid, number in state.host.cell_providers.items()}
    for placed in claim.cells:
        if (uuid := providers.get(placed.host_cell)) is not None:
            found[uuid, orc.PCPU] += len(placed.pinned_cpus)
            found[uuid, orc.VCPU] += len(placed.cell.shared)
            found[uuid, orc.MEMORY_MB] += placed.cell.memory_mib
    return found.items()


def _card_places(state: NodeState, tree: ProviderTree) -> Mapping[ProviderUuid | None, Place]:
    """Return the place of each provider that counts the devices of a card."""
    return {
        provider.uuid: (provider.uuid, name)
        for provider in device_providers(tree, state.node.uuid)
        if (name := device_class(provider)) is not None
    }


def _mdev_places(state: NodeState, tree: ProviderTree) -> Mapping[tuple[str, str], Place]:
    """Return the place that counts each type of mediated devices of each parent."""
    return {
        (source.parent, source.type): (source.provider, source.resource_class)
        for source in state.host.mdevs or ()
        if _is_counted(source, tree)
    }


def _is_counted(source: MdevSource, tree: ProviderTree) -> bool:
    return (
        tree.exists(source.provider)
        and source.resource_class in tree.provider(source.provider).inventory
    )
