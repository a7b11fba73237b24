"""Gives a wish the providers of its cards. Pure but for the tree, which is edited."""

from dataclasses import dataclass, replace

from agent.desired.device_names import MARKER, device_providers
from agent.desired.device_part import CardProvider, DevicePart
from agent.desired.host_tree import cell_name
from agent.model.inventory import Record
from agent.model.journal import Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider, ProviderTree


@dataclass(frozen=True, slots=True)
class Place:
    """Where a wish stands: what Placement has (``present``), what of it is ours, and how cards are put there.

    ``nested``: below the cell that they are in. ``can_move``: Placement can give a provider another parent.
    """

    present: ProviderTree
    root: ProviderUuid
    journal: Journal
    owner_trait: str
    nested: bool = False
    can_move: bool = True


def put_devices(tree: ProviderTree, base: ProviderTree, part: DevicePart, place: Place) -> frozenset[ProviderUuid]:
    """Give ``tree``, made from ``base``, the providers of ``part``, and take out those of ours that nobody needs.

    Returns those that have to be made anew: they are left out, because this Placement cannot move them and nobody uses them.
    """
    for one in list(device_providers(tree, place.root)):
        ours = place.journal.owns(one.uuid) and base.exists(one.uuid) and base.provider(one.uuid) is one
        if ours and one.name not in part.providers and one.name not in part.kept and not _is_emptied(one, place):
            tree.remove(one.uuid)
    for name in sorted(part.kept):
        if place.present.exists(name):
            _keep(tree, place.present.provider(name), place)
    anew: set[ProviderUuid] = set()
    for one_wanted in part.providers.values():
        if (parent := _parent(tree, one_wanted, place)) is None:
            anew.add(place.present.provider(one_wanted.name).uuid)
            if tree.exists(one_wanted.name):
                tree.remove(one_wanted.name)
        else:
            _put(tree, one_wanted, parent, place)
    return frozenset(anew)


def misplaced(tree: ProviderTree, part: DevicePart, place: Place) -> list[ProviderUuid]:
    """The providers of ``part`` that hang under another parent in Placement than ``tree`` would have them under."""
    there = [(one, place.present.provider(one.name)) for one in part.providers.values() if place.present.exists(one.name)]
    return [last.uuid for one, last in there if last.parent_uuid not in (None, _wanted_parent(tree, one, place))]


def with_cards(journal: Journal, part: DevicePart, place: Place) -> Journal:
    """``journal``, and in it all cards of the node that Placement has: who takes a tree over takes their classes too.

    They are told by their mark alone. A class that stayed somebody else's would be counted beside the one that replaces it.
    """
    taken = {
        one.uuid: Ownership(frozenset(one.inventory), frozenset(one.traits) & _traits(part.providers[one.name], place) if one.name in part.providers else
                            frozenset({MARKER}))
        for one in device_providers(place.present, place.root) if not journal.owns(one.uuid)
    }  # fmt: skip
    return replace(journal, providers={**journal.providers, **taken}) if taken else journal


def _is_emptied(one: Provider, place: Place) -> bool:
    """Whether it is only there because others hang from it."""
    return place.present.exists(one.uuid) and place.present.provider(one.uuid) is not one


def _parent(tree: ProviderTree, wanted: CardProvider, place: Place) -> ProviderUuid | None:
    """The provider that it hangs under; None if it cannot get there, and need not stay."""
    parent = _wanted_parent(tree, wanted, place)
    if place.can_move or not place.present.exists(wanted.name):
        return parent
    present = place.present.provider(wanted.name)
    if present.parent_uuid in (None, parent):
        return parent
    if not wanted.uses and not wanted.allocated:
        return None
    last = place.present.provider(str(present.parent_uuid))
    if not tree.exists(last.uuid):
        tree.new_child(last.name, place.root, last.uuid)
    return last.uuid


def _wanted_parent(tree: ProviderTree, wanted: CardProvider, place: Place) -> ProviderUuid:
    name = tree.name_of(place.root)
    cell = cell_name(name, wanted.numa_node) if place.nested and wanted.numa_node is not None else name
    return tree.provider(cell).uuid if tree.exists(cell) else place.root


def _put(tree: ProviderTree, wanted: CardProvider, parent: str, place: Place) -> None:
    _have(tree, wanted.name, parent)
    tree.update_inventory(wanted.name, {wanted.resource_class: _record(wanted, place)})
    uuid, traits = tree.provider(wanted.name).uuid, _traits(wanted, place)
    own = place.journal.of(uuid)
    tree.remove_traits(uuid, *(own.traits - own.configured.traits - traits))
    tree.add_traits(uuid, *traits)


def _have(tree: ProviderTree, name: str, parent: str) -> None:
    if not tree.exists(name):
        tree.new_child(name, parent)
    elif tree.provider(name).parent_uuid != tree.provider(parent).uuid:
        tree.reparent(tree.provider(name).uuid, parent)


def _traits(wanted: CardProvider, place: Place) -> frozenset[str]:
    return wanted.traits | {MARKER, place.owner_trait}


def _record(wanted: CardProvider, place: Place) -> Record:
    """What is reserved stays reserved: whoever did that knows why. Only a device that nobody may have a second time the agent reserves itself."""
    present = place.present.provider(wanted.name) if place.present.exists(wanted.name) else None
    last = present.inventory.get(wanted.resource_class, {}) if present else {}
    reserved = min(int(last.get("reserved", 0)), wanted.total)
    if present and wanted.resource_class in place.journal.held.get(present.uuid, ()):
        # It was the agent that reserved all, because the class was gone and in use.
        reserved = 0
    if wanted.once and wanted.uses:
        reserved = wanted.total
    return {"total": wanted.total, "max_unit": wanted.total, "reserved": reserved}


def _keep(tree: ProviderTree, last: Provider, place: Place) -> None:
    """Have the provider as Placement has it, without what operators' files added: they add it again."""
    if tree.exists(last.uuid) and tree.provider(last.uuid) is last:
        return
    configured = place.journal.of(last.uuid).configured
    parent = str(last.parent_uuid) if last.parent_uuid and tree.exists(last.parent_uuid) else place.root
    _have(tree, last.name, parent)
    tree.update_inventory(last.name, {name: record for name, record in last.inventory.items() if name not in configured.classes})
    tree.add_traits(last.name, *(last.traits - configured.traits))
