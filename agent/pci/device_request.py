"""What a guest asks for: so many devices for each alias that its flavor names."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from agent.errors import AgentError
from agent.model.guest import PciPolicy
from agent.model.names import ProviderUuid, printable
from agent.pci.alias import Aliases
from agent.pci.option_value import unknown_key

Source = Literal["flavor", "port"]
EXTRA_SPEC = "pci_passthrough:alias"
# More than any host has.
MAX_COUNT = 1024


class DeviceRequestError(AgentError):
    """A flavor that asks for devices in a way that makes no sense."""

    code = "pci.request"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """``count`` devices that have everything in one of ``specs``: vendor_id, product_id, type, or tags of the operator.

    ``alias``: by which a flavor asked; None for a port. ``providers``: those that Placement chose, one for each device,
    the same several times if it gives several; empty if Placement was not asked.
    """

    id: str
    count: int
    specs: tuple[Mapping[str, str], ...]
    policy: PciPolicy = "legacy"
    alias: str | None = None
    source: Source = "flavor"
    providers: tuple[ProviderUuid, ...] = ()


def device_requests(specs: Mapping[str, str], aliases: Aliases, policy: PciPolicy | None, claim: str) -> tuple[DeviceRequest, ...]:
    """What a flavor with these extra ``specs`` asks for. ``policy``: that of flavor and image, which wins over the aliases'.

    ``claim``: the uuid of the claim; the same one asks by the same ids again.

    :raises DeviceRequestError: all that is wrong with what it asks.
    """
    items = [item.strip() for item in specs[EXTRA_SPEC].split(",")] if EXTRA_SPEC in specs else []
    wrong = [problem for item in items for problem in _problems(item, aliases)]
    if wrong:
        what = "; ".join(printable(why) for why, _ in wrong)
        raise DeviceRequestError(f"{EXTRA_SPEC} = {printable(specs[EXTRA_SPEC])}: {what}", "; ".join(dict.fromkeys(remedy for _, remedy in wrong)))
    return tuple(_request(*_parts(item), aliases, policy, f"{claim}/{number}") for number, item in enumerate(items))


def _request(name: str, count: str, aliases: Aliases, policy: PciPolicy | None, seed: str) -> DeviceRequest:
    alias = aliases[name]
    specs = tuple(one.spec for one in alias.alternatives)
    return DeviceRequest(id=str(uuid.uuid5(uuid.NAMESPACE_OID, seed)), count=int(count), specs=specs, policy=policy or alias.policy, alias=name)


def _problems(item: str, aliases: Aliases) -> Iterable[tuple[str, str]]:
    name, count = _parts(item)
    if not (count.isascii() and count.isdecimal() and len(count) <= len(str(MAX_COUNT)) and 1 <= int(count) <= MAX_COUNT):
        yield f"{count or 'nothing'} is no number of devices", f"write name:count with a count from 1 to {MAX_COUNT}, or name alone for one"
    if name not in aliases:
        yield f"there is no alias {name or 'without a name'}", unknown_key(name, aliases) if aliases else "[pci] alias has none"


def _parts(item: str) -> tuple[str, str]:
    """Name and count; names may have colons too, so that the last one counts."""
    name, colon, count = item.rpartition(":")
    return (name.strip(), count.strip()) if colon else (item, "1")
