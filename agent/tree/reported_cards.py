"""The cards whose devices Placement counts, and the reasons why a card cannot be one provider."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agent.errors import ConfigError
from agent.model.devices import PciAddress
from agent.model.names import printable
from agent.pci.device_spec import OPTION
from agent.pci.matching import VIRTUAL, Matched
from agent.tree.device_names import device_provider_name


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


def problems(card: ReportedCard, root: str) -> Iterator[ConfigError]:
    """Yield the reasons why one provider cannot count the card. ``root``: the node's name."""
    name = printable(device_provider_name(root, card.address))
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
            what = (
                f"{key} is {value(first)} of the first and {value(match)} of the second, but they "
                "are virtual functions of one card"
            )
            yield _error(
                name, first, match, what, "set the same for all virtual functions of a card"
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
