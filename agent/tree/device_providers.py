"""The PCI providers of a node: one provider for each card, with one resource class. Pure.

A card (a PF with its VFs, or one device) with contradicting specs keeps the provider that it has:
one wrong card must not prevent reporting the others.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Self

from agent.errors import ConfigError
from agent.model.devices import PciAddress
from agent.model.finding import Drift
from agent.model.mirror import Consumers, Journal
from agent.model.names import ConsumerUuid, ProviderUuid, is_custom, name_first, printable
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree, Provider
from agent.pci.device_spec import OPTION
from agent.pci.settings import Matched
from agent.placement.merge import Use, uses_of
from agent.tree.node_trees import shares_provider
from agent.tree.reported_cards import (
    DeviceUse,
    ReportedCard,
    ReservedOfCard,
    card_of,
    cards,
    counts_devices,
    device_provider_name,
    device_providers,
    problems,
)


@dataclass(frozen=True, slots=True)
class CardProvider:
    """The provider of one card."""

    name: str
    resource_class: str
    total: int
    traits: frozenset[str]
    numa_node: int | None
    uses: tuple[DeviceUse, ...] = ()
    """Those of its devices that guests have."""
    places: tuple[str, ...] = ()
    """The objects of device_spec that match it; none if it is only there because guests have
    devices of it.
    """
    consumers: tuple[ConsumerUuid, ...] = ()
    """Those that Placement has, if it was asked."""

    @property
    def users(self) -> list[ConsumerUuid]:
        """Who is known to use something of it."""
        return sorted({*self.consumers, *(use.owner for use in self.uses)})


@dataclass(frozen=True, slots=True)
class DeviceProviders:
    """The PCI providers that the node should have."""

    providers: Mapping[str, CardProvider] = field(default_factory=dict)
    """By name."""
    kept: frozenset[str] = frozenset()
    """Names of the providers that stay as Placement has them, whatever that is."""
    errors: tuple[ConfigError, ...] = ()
    drift: tuple[Drift, ...] = ()

    def with_provider(self, provider: CardProvider, *drift: Drift) -> "DeviceProviders":
        """Return a copy with that provider, and with more drift."""
        return replace(
            self,
            providers={**self.providers, provider.name: provider},
            drift=(*self.drift, *drift),
        )


@dataclass(frozen=True, slots=True)
class Reported:
    """What Placement has of the cards of a node, without what operators' files or other owners
    added.
    """

    root: str
    by_name: Mapping[str, Provider]
    """By name, without the inventories and traits that are not about devices."""

    @classmethod
    def of(
        cls,
        present: PresentTree,
        root: ProviderUuid,
        desired: DesiredTree,
        base: BaseTree,
        journal: Journal,
    ) -> Self:
        """Return the providers of cards in ``present``, without those that the driver wrote in
        ``desired`` (it was derived from ``base``): the driver manages these itself.
        """
        written_by_driver = {
            provider.name
            for provider in device_providers(desired, root)
            if not shares_provider(base, provider)
        }
        name = present.name_of(root) if present.exists(root) else ""
        by_name = {
            provider.name: _without_additions(provider, journal)
            for provider in map(present.provider, present.get_provider_uuids(root) if name else ())
            # Somebody else may have taken the marker off.
            if counts_devices(
                provider.name, provider.traits | journal.of(provider.uuid).traits, name
            )
            and provider.name not in written_by_driver
        }
        return cls(desired.name_of(root), by_name)

    def classes(self, name: str) -> frozenset[str]:
        """Return the classes that count devices there."""
        return frozenset(self.by_name[name].inventory) if name in self.by_name else frozenset()


def reserved_of_cards(
    present: PresentTree, root: ProviderUuid, journal: Journal
) -> Mapping[PciAddress, ReservedOfCard | None]:
    """Return what ``present`` has as reserved of each card; None where this is ambiguous: the card
    has several classes, or one that the agent reserved as a whole.
    """
    found: dict[PciAddress, ReservedOfCard | None] = {}
    for provider in device_providers(present, root):
        card = card_of(provider.name, present.name_of(root))
        # A card that was found without a journal, as after the loss of a store, has no known owner
        # of its classes.
        inventory = (
            _without_additions(provider, journal).inventory
            if journal.of(provider.uuid).classes
            else provider.inventory
        )
        if card is not None and inventory:
            ((name, record),) = inventory.items() if len(inventory) == 1 else (("", None),)
            unclear = record is None or name in journal.held.get(provider.uuid, ())
            found[card] = (
                None
                if record is None or unclear
                else ReservedOfCard(
                    int(record["reserved"]), int(record["total"]), provider.generation or 0
                )
            )
    return found


def device_providers_of(
    matched: Iterable[Matched],
    uses: Iterable[DeviceUse],
    reported: Reported,
    mediated: Mapping[PciAddress, str],
) -> DeviceProviders:
    """Return the providers of the cards that are offered, and of those that guests still have.
    ``mediated``: see :func:`problems`.
    """
    offered = {card.address: card for card in cards(matched)}
    held = _uses_by_card(uses)
    part = DeviceProviders()
    for address in sorted({*offered, *held}):
        name = device_provider_name(reported.root, address)
        if address not in offered:
            part = _add_held(
                part, name, tuple(use for use in held[address] if not use.of_network), reported
            )
        elif wrong := list(problems(offered[address], reported.root, mediated)):
            part = replace(part, kept=part.kept | {name}, errors=(*part.errors, *wrong))
        else:
            part = _add_offered(part, name, offered[address], held.get(address, ()), reported)
    return part


def shrinking(part: DeviceProviders, reported: Reported) -> list[ProviderUuid]:
    """Return the providers that will have less than Placement has: their consumers have to be known
    first.
    """
    return [
        provider.uuid
        for provider in reported.by_name.values()
        if (wanted := part.providers.get(provider.name)) is not None
        and any(
            name != wanted.resource_class or wanted.total < record["total"]
            for name, record in provider.inventory.items()
        )
    ]


def bounded(
    part: DeviceProviders,
    reported: Reported,
    consumers: Consumers,
    settled: AbstractSet[ConsumerUuid] = frozenset(),
) -> DeviceProviders:
    """Return ``part`` with nothing removed that ``consumers`` use: a total is at least what is
    used, and a class in use does not change. ``settled``: the guests whose devices are on record.
    """
    for provider in reported.by_name.values():
        if provider.uuid not in consumers or provider.name not in part.providers:
            continue
        wanted = part.providers[provider.name]
        uses = uses_of(consumers[provider.uuid])
        if uses:
            wanted = replace(wanted, consumers=tuple(consumers[provider.uuid]))
            part = part.with_provider(wanted)
        others = sorted(uses.keys() & provider.inventory.keys() - {wanted.resource_class})
        mine = uses.get(wanted.resource_class, Use(0))
        if len(others) > 1:
            part = _keep(part, wanted, {name: uses[name] for name in others}, provider.uuid)
        elif others:
            part = _hold_former(part, wanted, others[0], uses[others[0]], provider.uuid, settled)
        elif mine.amount > wanted.total:
            part = _raise_total(part, wanted, mine, provider.uuid)
    return part


def _hold_former(
    part: DeviceProviders,
    wanted: CardProvider,
    former: str,
    use: Use,
    uuid: ProviderUuid,
    settled: AbstractSet[ConsumerUuid],
) -> DeviceProviders:
    """Hold the class that the card has as long as it is used, and nothing more of it."""
    owners = {one.owner for one in wanted.uses}
    if not settled >= frozenset(use.consumers) or not owners.isdisjoint(use.consumers):
        total = max(use.amount, len(wanted.uses))
        held = replace(wanted, resource_class=former, total=total)
        return part.with_provider(held, _class_in_use(wanted, former, use, uuid))
    # Of the card that had the address before: the repair of the allocations lowers it.
    drift = Drift(
        "held-device",
        "warning",
        f"{printable(wanted.name)}: {use.amount} of {former} are allocated to guests that have no "
        f"such device by their records: {name_first(use.consumers)}; the host has another "
        "one there, which waits until these are free",
        "none: the allocations are lowered by themselves once two audits agree",
        uuid,
    )
    return part.with_provider(
        replace(wanted, resource_class=former, total=use.amount, uses=()), drift
    )


def _keep(
    part: DeviceProviders, wanted: CardProvider, used: Mapping[str, Use], uuid: ProviderUuid
) -> DeviceProviders:
    """Keep the card as Placement has it, because it has several other classes that are used."""
    drift = [_class_in_use(wanted, name, use, uuid) for name, use in used.items()]
    others = {name: one for name, one in part.providers.items() if name != wanted.name}
    return replace(
        part,
        providers=others,
        kept=part.kept | {wanted.name},
        drift=(*part.drift, *drift),
    )


def _add_offered(
    part: DeviceProviders,
    name: str,
    card: ReportedCard,
    uses: Iterable[DeviceUse],
    reported: Reported,
) -> DeviceProviders:
    """Add the provider of an offered card, with devices counted that guests have and that are not
    offered any more.
    """
    offered = {offer.device.address: offer.device for offer in card.devices}
    uses_of_offered = [use for use in uses if use.is_of(offered.get(use.address))]
    lost = [use for use in uses if use not in uses_of_offered and not use.of_network]
    counted = lost if card.resource_class in reported.classes(name) else []
    provider = CardProvider(
        name,
        card.resource_class,
        len(card.devices) + len(counted),
        card.traits,
        uses_of_offered[0].numa_node if uses_of_offered else card.numa_node,
        (*uses_of_offered, *counted),
        tuple(dict.fromkeys(offer.spec.place for offer in card.devices)),
    )
    former = reported.classes(name) or any(use.address in offered for use in lost)
    if lost and not counted and former:
        # The card has another class, or another card has the address by now. It is offered once the
        # guests of the former are gone, or on record with the address where that is.
        return _add_held(
            part, name, tuple(lost), reported, f"; {card.resource_class} waits until it is free"
        )
    return part.with_provider(provider, *(_held_drift(name, use, reported) for use in counted))


def _add_held(
    part: DeviceProviders,
    name: str,
    uses: tuple[DeviceUse, ...],
    reported: Reported,
    waits: str = "",
) -> DeviceProviders:
    """Add the provider of a card that is not offered any more and that guests have. Its class and
    traits are only known from Placement. ``waits``: what is offered instead once it is free.
    """
    classes = reported.classes(name)
    if not uses:
        return part
    if len(classes) != 1:
        return replace(part, kept=part.kept | ({name} if classes else set()))
    provider = CardProvider(
        name,
        min(classes),
        len(uses),
        frozenset(reported.by_name[name].traits),
        uses[0].numa_node,
        uses,
    )
    drift = (_held_drift(name, use, reported, waits) for use in uses)
    return part.with_provider(provider, *drift)


def _uses_by_card(uses: Iterable[DeviceUse]) -> dict[PciAddress, tuple[DeviceUse, ...]]:
    """Group the uses by card, sorted by device."""
    found: dict[PciAddress, tuple[DeviceUse, ...]] = {}
    for use in sorted(uses, key=lambda use: use.address):
        found[use.card] = (*found.get(use.card, ()), use)
    return found


def _without_additions(provider: Provider, journal: Journal) -> Provider:
    """Return the provider without what operators' files added, and without the classes that others
    put on a provider of ours.
    """
    own, owned = journal.of(provider.uuid), journal.owns(provider.uuid)
    added = {
        name
        for name in provider.inventory
        if name in own.configured.classes or (owned and is_custom(name) and name not in own.classes)
    }
    inventory = {name: record for name, record in provider.inventory.items() if name not in added}
    return replace(provider, inventory=inventory, traits=provider.traits - own.configured.traits)


def _raise_total(
    part: DeviceProviders, wanted: CardProvider, use: Use, uuid: ProviderUuid
) -> DeviceProviders:
    """Raise the total to what is used, and report drift."""
    drift = Drift(
        "held-device",
        "warning",
        (
            f"{printable(wanted.name)}: {use.amount} of {wanted.resource_class} are allocated to "
            f"{name_first(use.consumers)}, but the card has only {wanted.total}; the total stays "
            f"at {use.amount}"
        ),
        f"offer the devices again in {OPTION}, or {use.ending(uuid, wanted.resource_class)}",
        uuid,
    )
    return part.with_provider(replace(wanted, total=use.amount), drift)


def _held_drift(name: str, use: DeviceUse, reported: Reported, waits: str = "") -> Drift:
    """Return the drift of a device that is not offered any more and that an instance still has."""
    return Drift(
        "held-device",
        "warning",
        (
            f"{printable(name)}: device {use.address} is not offered any more, but instance "
            f"{use.owner} has it; it stays counted{waits}"
        ),
        "if it is there: offer it again in device_spec; or move the server away: openstack server "
        f"migrate {use.owner}; if the guest runs without it, have that recorded, then the next "
        "audit names what is to be given back: agent guests import",
        reported.by_name[name].uuid,
        use.owner,
    )


def _class_in_use(wanted: CardProvider, former: str, use: Use, uuid: ProviderUuid) -> Drift:
    """Return the drift of a card that keeps its class because it is used."""
    place = f"{OPTION} {', '.join(wanted.places)}" if wanted.places else OPTION
    owners = {one.owner for one in wanted.uses}
    moves = [f"openstack server migrate {one}" for one in use.consumers if one in owners]
    ending = f"move its guests away: {' && '.join(moves)}" if moves else use.ending(uuid, former)
    return Drift(
        "held-device",
        "warning",
        f"{printable(wanted.name)} stays {former}: {use}; {place} makes it "
        f"{wanted.resource_class}, which waits until that is free",
        f"give it {former} in {place} again; or {ending}",
        uuid,
        use.consumers[0] if len(use.consumers) == 1 else None,
    )


def still_reported(reported: Reported) -> list[ConfigError]:
    """Return the error that devices are no longer to be reported but Placement still has them:
    removing them would lose their allocations. Empty if Placement has none.
    """
    if not reported.by_name:
        return []
    names = name_first(
        [
            printable(name)
            for name in sorted(reported.by_name, key=lambda name: str(card_of(name, reported.root)))
        ]
    )
    return [
        ConfigError(
            (
                "[pci] report_in_placement is false, but Placement has the devices of "
                f"{printable(reported.root)}: {names}"
            ),
            (
                "set it to true again, or have them removed: agent pci unreport "
                f"{printable(reported.root)}"
            ),
            option="[pci] report_in_placement",
        )
    ]
