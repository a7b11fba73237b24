"""The cards whose devices Placement counts: how the provider of a card is recognized, which
consumer has which device, and the reasons why a card cannot be one provider.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

import os_traits

from agent.errors import ConfigError
from agent.model.devices import PciAddress, PciDevice
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.model.provider_tree import Provider, ProviderTree
from agent.pci.device_spec import OPTION, DeviceSpec
from agent.pci.settings import VIRTUAL, Matched
from agent.tree.policy import MdevPolicy

MARKER = os_traits.COMPUTE_MANAGED_PCI_DEVICE


def device_provider_name(root: str, card: PciAddress | str) -> str:
    """Return the name of the provider that counts the devices of ``card`` on the node called
    ``root``. The address is in upper case, as in trees of earlier releases.
    """
    return f"{root}_{str(card).upper()}"


def card_of(name: str, root: str) -> PciAddress | None:
    """Return the card whose provider is called ``name``; None if it is no provider of a card."""
    text = name.removeprefix(f"{root}_")
    try:
        card = PciAddress.parse(text)
    except ValueError:
        return None
    return card if name == device_provider_name(root, card) else None


def counts_devices(name: str, traits: Set[str], root: str) -> bool:
    """Whether a provider of that name and with these traits counts devices of a card of the node
    called ``root``.
    """
    return MARKER in traits and card_of(name, root) is not None


def device_providers(tree: ProviderTree, root: ProviderUuid) -> Iterator[Provider]:
    """Yield the providers of cards in the node's tree."""
    if tree.exists(root):
        name = tree.name_of(root)
        yield from (
            provider
            for provider in map(tree.provider, tree.get_provider_uuids(root))
            if counts_devices(provider.name, provider.traits, name)
        )


def device_class(provider: Provider) -> str | None:
    """Return the class that counts the devices; None if operators' files added classes, so that it
    is ambiguous.
    """
    return next(iter(provider.inventory)) if len(provider.inventory) == 1 else None


@dataclass(frozen=True, slots=True)
class ReportedCard:
    """A PF or other whole device, or the VFs of one PF."""

    address: PciAddress
    """The address of the provider's card: the PF, or the device itself."""
    devices: tuple[Matched, ...]
    """The devices that are offered, ordered by address."""

    @property
    def resource_class(self) -> str:
        """The class that counts the devices."""
        return self.devices[0].resource_class

    @property
    def traits(self) -> frozenset[str]:
        """The traits that the operator set."""
        return self.devices[0].traits

    @property
    def numa_node(self) -> int | None:
        """The cell of the card."""
        return self.devices[0].device.numa_node


def cards(matched: Iterable[Matched]) -> tuple[ReportedCard, ...]:
    """Return the cards of the devices that are offered. Devices of a physical network are left out:
    networking counts them itself.
    """
    found: dict[PciAddress, list[Matched]] = {}
    for match in matched:
        if not match.spec.physical_network:
            found.setdefault(match.device.physical_function or match.device.address, []).append(
                match
            )
    return tuple(
        ReportedCard(address, tuple(devices)) for address, devices in sorted(found.items())
    )


def problems(
    card: ReportedCard, root: str, mediated: Mapping[PciAddress, str]
) -> Iterator[ConfigError]:
    """Yield the reasons why one provider cannot count the card. ``root``: the node's name;
    ``mediated``: the functions that are offered as mediated devices, with their types.
    """
    name = printable(device_provider_name(root, card.address))
    yield from _offered_twice(card, name, mediated)
    whole = [match for match in card.devices if match.device.type not in VIRTUAL]
    virtual = [match for match in card.devices if match.device.type in VIRTUAL]
    if whole and virtual:
        yield _error(
            name,
            whole[0],
            virtual[0],
            (
                "the first is a physical function and the second one of its virtual functions, and "
                "only one of both can be counted"
            ),
            "let device_spec match either the one (by its product_id) or the others",
        )
    if len(virtual) == len(card.devices):
        yield from _differences(name, virtual, "resource_class", lambda match: match.resource_class)
        yield from _differences(
            name, virtual, "traits", lambda match: ", ".join(sorted(match.traits)) or "none"
        )
    for match in virtual:
        if match.spec.one_time_use is not None:
            what = (
                f"provider {name}: {match.device.address} is a virtual function, of which "
                f"one_time_use = {str(match.spec.one_time_use).lower()} cannot be said"
            )
            yield ConfigError(
                f"{OPTION} {match.spec.place}: {what}",
                "remove the key",
                option=OPTION,
                place=match.spec.place,
                key="one_time_use",
            )
            break


def named_twice(specs: Iterable[DeviceSpec], mdevs: MdevPolicy) -> Iterator[ConfigError]:
    """Yield an error for each card that the options name both whole and as a parent of mediated
    devices, whatever the host has.
    """
    for spec in specs:
        parent = "" if spec.address.single is None else str(spec.address.single)
        kind = next((kind for kind in mdevs.types if parent in kind.parents), None)
        # With ids an address may mean the VFs of a PF, and none of the parents.
        if kind is not None and (spec.vendor_id, spec.product_id) == (None, None):
            yield ConfigError(
                (
                    f"{OPTION} {spec.place}: {parent} is offered whole, and by [mdev_"
                    f"{printable(kind.name)}] device_addresses as mediated devices"
                ),
                "remove it from one of them",
                option=OPTION,
                place=spec.place,
                key="address",
            )


def _offered_twice(
    card: ReportedCard, name: str, mediated: Mapping[PciAddress, str]
) -> Iterator[ConfigError]:
    """Yield an error if a device is offered whole, and itself, its PF or one of its VFs in parts: a
    guest that has one would take the other from its guest.
    """
    for match in card.devices:
        device = match.device
        related = (device.address, device.physical_function, *device.virtual_functions)
        both = next((one for one in related if one in mediated), None)
        if both is None:
            continue
        place, kind = match.spec.place, printable(mediated[both])
        yield ConfigError(
            (
                f"{OPTION} {place}: provider {name}: {device.address} is offered whole, and {both} "
                f"as mediated devices of {kind}"
            ),
            (
                f"let device_spec match other devices, or name the parents of {kind} in "
                f"[mdev_{kind}] device_addresses without it"
            ),
            option=OPTION,
            place=place,
            provider=name,
        )
        return


def _differences(
    name: str, devices: list[Matched], key: str, value: Callable[[Matched], str]
) -> Iterator[ConfigError]:
    """Yield an error for each value of ``key`` that differs from the first: all VFs of a PF are
    counted together, so they have to be alike.
    """
    first, reported = devices[0], {value(devices[0])}
    for match in devices[1:]:
        if value(match) not in reported:
            reported.add(value(match))
            yield _error(
                name,
                first,
                match,
                (
                    f"{key} is {value(first)} of the first and {value(match)} of the second, but "
                    "they are virtual functions of one card"
                ),
                "set the same for all virtual functions of a card",
            )


def _error(name: str, first: Matched, second: Matched, what: str, remedy: str) -> ConfigError:
    places = list(dict.fromkeys((first.spec.place, second.spec.place)))
    devices = " and ".join(
        f"{match.device.address} ({match.spec.place})" for match in (first, second)
    )
    return ConfigError(
        f"{OPTION} {', '.join(places)}: provider {name}: {devices}: {what}",
        remedy,
        option=OPTION,
        place=places[0],
        provider=name,
    )


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device that a consumer has."""

    address: PciAddress
    card: PciAddress
    """The address of its PF, or its own."""
    owner: ConsumerUuid
    """The consumer, usually an instance."""
    numa_node: int | None = None
    """The cell of the device when it was assigned."""
    of_network: bool = False
    """The device was assigned for a physical network. Networking counts it, unless its card is
    counted here by now.
    """
    ids: tuple[str, str] | None = None
    """Vendor and product of the device when it was assigned; None if unknown."""

    def is_of(self, device: PciDevice | None) -> bool:
        """Whether ``device``, which the host shows at the address, is the one that was assigned,
        and not another that has its address since.
        """
        return device is not None and self.ids in (None, (device.vendor_id, device.product_id))


@dataclass(frozen=True, slots=True)
class ReservedOfCard:
    """What Placement has as reserved of a card."""

    reserved: int
    """Devices that are reserved."""
    total: int
    """Devices in all."""
    generation: int
    """The generation of the provider when this was read."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """How many of a card's devices are to be reserved."""

    amount: int | None = 0
    """None for all."""
    due: bool = False
    """Placement does not have it yet; once it has, Placement's amount counts."""


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """All devices of a node that are in use."""

    uses: tuple[DeviceUse, ...] = ()
    settled: frozenset[ConsumerUuid] = frozenset()
    """Guests that are on the node and not moving, so that they themselves hold what they have
    here.
    """
    busy: frozenset[ConsumerUuid] = frozenset()
    """Guests with an open task, so that more may be allocated to them than they have yet."""
    withheld: Mapping[PciAddress, Withheld] = field(default_factory=dict)
    """By card: what is to be reserved, so that no consumer gets it."""
    known: frozenset[ConsumerUuid] = frozenset()
    """The consumers that the node's records mention."""
