"""Puts the PCI providers into a desired tree. Pure but for the tree, which is edited."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.model.finding import Drift
from agent.model.inventory import Record
from agent.model.mirror import REPARENT, Journal, Ownership
from agent.model.names import ConsumerUuid, ProviderUuid, name_first, printable
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree, Provider
from agent.tree.device_providers import CardProvider, DeviceProviders
from agent.tree.node_trees import cell_or_root, ensure_child, last_parent, shares_provider
from agent.tree.reported_cards import MARKER, Withheld, device_providers


@dataclass(frozen=True, slots=True)
class ProviderPlace:
    """The tree in Placement that PCI providers are put into, and the rules for doing so."""

    present: PresentTree
    """What Placement has."""
    root: ProviderUuid
    journal: Journal
    owner_trait: str
    nested: bool = False
    """Providers of cards are below the cell of the card."""
    can_move: bool = True
    """Placement can give a provider another parent."""
    take_over: bool = False
    """Cards that another owner has put there become ours."""
    withheld: Mapping[str, Withheld] = field(default_factory=dict)
    """By provider name: what is to be reserved of the card."""


@dataclass(frozen=True, slots=True)
class PlacedProviders:
    """Result of putting PCI providers into a tree."""

    anew: frozenset[ProviderUuid] = frozenset()
    """Providers that were removed, to be created again below their right parent."""
    drift: tuple[Drift, ...] = ()
    """Providers that stay below a wrong parent."""


def put_devices(
    tree: DesiredTree, base: BaseTree, part: DeviceProviders, place: ProviderPlace
) -> PlacedProviders:
    """Give ``tree``, derived from ``base``, the providers of ``part``, and remove those of ours
    that are not needed.
    """
    for provider in list(device_providers(tree, place.root)):
        is_ours = place.take_over or place.journal.owns(provider.uuid)
        if (
            is_ours
            and shares_provider(base, provider)
            and provider.name not in part.providers
            and provider.name not in part.kept
            # One that was emptied is only there because others hang from it.
            and (
                not place.present.exists(provider.uuid) or shares_provider(place.present, provider)
            )
        ):
            tree.remove(provider.uuid)
    for name in sorted(part.kept):
        if place.present.exists(name):
            _keep_present(tree, place.present.provider(name), place)
    stuck = [] if place.can_move else misplaced(tree, part, place)
    anew, drift = set[ProviderUuid](), list[Drift]()
    for wanted in part.providers.values():
        parent = _wanted_parent(tree, wanted, place)
        if (
            place.present.exists(wanted.name)
            and (last := place.present.provider(wanted.name)).uuid in stuck
        ):
            if not wanted.users:
                anew.add(last.uuid)
                if tree.exists(last.uuid):
                    tree.remove(last.uuid)
                continue
            belongs, parent = tree.name_of(parent), _last_parent(tree, last, place)
            drift.append(_stuck_drift(last, tree.name_of(parent), belongs, wanted.users))
        _put_card(tree, wanted, parent, place)
    return PlacedProviders(frozenset(anew), tuple(drift))


def misplaced(tree: DesiredTree, part: DeviceProviders, place: ProviderPlace) -> list[ProviderUuid]:
    """Return the providers of ``part`` that have another parent in Placement than in ``tree``."""
    in_placement = [
        (wanted, place.present.provider(wanted.name))
        for wanted in part.providers.values()
        if place.present.exists(wanted.name)
    ]
    return [
        last.uuid
        for wanted, last in in_placement
        if last.parent_uuid not in (None, _wanted_parent(tree, wanted, place))
    ]


def with_cards(journal: Journal, part: DeviceProviders, place: ProviderPlace) -> Journal:
    """Return ``journal`` with all PCI providers of the node in Placement added: taking over a tree
    takes over their classes too.

    These providers are recognized by their marker trait alone. A class left to its former owner
    would be counted beside the class that replaces it.
    """
    taken = {
        provider.uuid: Ownership(
            frozenset(provider.inventory),
            frozenset(provider.traits) & _traits(part.providers[provider.name], place)
            if provider.name in part.providers
            else frozenset({MARKER}),
        )
        for provider in device_providers(place.present, place.root)
        if not journal.owns(provider.uuid)
    }
    return replace(journal, providers={**journal.providers, **taken}) if taken else journal


def _last_parent(tree: DesiredTree, last: Provider, place: ProviderPlace) -> ProviderUuid:
    """Return the provider's parent in Placement; if that is a cell that would go, it is created
    again.
    """
    parent = place.present.provider(str(last.parent_uuid))
    if not tree.exists(parent.uuid):
        tree.new_child(parent.name, place.root, parent.uuid)
    return parent.uuid


def _stuck_drift(last: Provider, parent: str, belongs: str, users: Sequence[ConsumerUuid]) -> Drift:
    return Drift(
        "identity",
        "warning",
        (
            f"{printable(last.name)} is used by {name_first(users)} below {printable(parent)} "
            f"and belongs below {printable(belongs)}; this Placement cannot move it"
        ),
        f"upgrade Placement to {REPARENT}; or move its servers away, then the agent creates the "
        f"provider anew: {' && '.join(f'openstack server migrate {user}' for user in users)}",
        last.uuid,
    )


def _wanted_parent(tree: DesiredTree, wanted: CardProvider, place: ProviderPlace) -> ProviderUuid:
    """Return the cell of the card in a nested layout, if ``tree`` has it; else the root."""
    return cell_or_root(tree, place.root, wanted.numa_node if place.nested else None)


def _put_card(tree: DesiredTree, wanted: CardProvider, parent: str, place: ProviderPlace) -> None:
    ensure_child(tree, wanted.name, parent)
    tree.update_inventory(wanted.name, {wanted.resource_class: _record(wanted, place)})
    uuid, traits = tree.provider(wanted.name).uuid, _traits(wanted, place)
    own = place.journal.of(uuid)
    tree.remove_traits(uuid, *(own.traits - own.configured.traits - traits))
    tree.add_traits(uuid, *traits)


def _traits(wanted: CardProvider, place: ProviderPlace) -> frozenset[str]:
    return wanted.traits | {MARKER, place.owner_trait}


def _record(wanted: CardProvider, place: ProviderPlace) -> Record:
    present = place.present.provider(wanted.name) if place.present.exists(wanted.name) else None
    last = present.inventory.get(wanted.resource_class) if present else None
    if present and wanted.resource_class in place.journal.held.get(present.uuid, ()):
        # The agent itself reserved all of it, because the class was to go and in use.
        last = None
    return {
        "total": wanted.total,
        "max_unit": wanted.total,
        "reserved": _reserved(wanted.name, wanted.total, last, place),
    }


def _reserved(name: str, total: int, last: Record | None, place: ProviderPlace) -> int:
    """Return the reserved amount: what Placement has stays, because its reason is unknown; what the
    records withhold and Placement does not have yet is added. ``last``: the record in Placement.
    """
    withheld = place.withheld.get(name, Withheld())
    present = int(last["reserved"]) if last is not None else 0
    amount = total if withheld.amount is None else withheld.amount
    if withheld.due and amount == 0:
        return 0
    return min(max(present, amount) if withheld.due or last is None else present, total)


def _keep_present(tree: DesiredTree, last: Provider, place: ProviderPlace) -> None:
    """Keep the provider as Placement has it, without what operators' files added: they add it
    again.
    """
    if shares_provider(tree, last):
        return
    own = place.journal.of(last.uuid)
    configured = own.configured
    ensure_child(tree, last.name, last_parent(tree, last, place.root))
    inventory = {
        name: record for name, record in last.inventory.items() if name not in configured.classes
    }
    if len(inventory) == 1:
        # A single class counts the devices, so a device that has to be cleaned is reserved there
        # too.
        inventory = {
            name: {**record, "reserved": _reserved(last.name, int(record["total"]), record, place)}
            for name, record in inventory.items()
        }
    tree.update_inventory(last.name, inventory)
    tree.add_traits(last.name, *((last.traits | own.traits) - configured.traits))
