"""Device requests of a guest: a number of devices for each alias that its flavor names."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.errors import AgentError
from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.guest import PciPolicy
from agent.model.names import ProviderUuid, printable
from agent.pci.alias import Aliases
from agent.pci.option_value import unknown_key

# Names that a request may use beside the operator's tags, and those that only Placement uses.
OF_PLACEMENT = frozenset({"resource_class", "traits"})
FAR = 1_000_000


@dataclass(frozen=True, slots=True)
class Nearness:
    """The sockets and distances of the host's cells."""

    sockets: Mapping[int, int | None] = field(default_factory=dict)
    """Cell to its socket, None if not known."""
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Cell to the distances of other cells."""

    def same_socket(self, node: int | None, cells: frozenset[int]) -> bool:
        """Return whether a device's cell is on a socket of one of ``cells``; False unless the
        socket of every cell is known.
        """
        if node is None or node not in self.sockets or None in self.sockets.values():
            return False
        return self.sockets[node] in {self.sockets.get(cell) for cell in cells}


def matches(device: DeviceRecord, request: DeviceRequest) -> bool:
    """Return whether the device is of a kind that the request names. PFs, vDPA devices and remote
    managed ones have to be named explicitly.
    """
    has = {
        **device.tags,
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "type": device.type,
    }
    fitting = [spec for spec in request.specs if _is_kind(has, spec)]
    is_named = any(spec.get("type") == device.type or "address" in spec for spec in fitting)
    if not fitting or (device.type in ("type-PF", "vdpa") and not is_named):
        return False
    if device.tags.get("remote_managed") == "true" and not any(
        "remote_managed" in spec for spec in fitting
    ):
        return False
    migratable = {spec.get("live_migratable") for spec in request.specs}
    return len(migratable) > 1 or migratable in ({None}, {device.tags.get("live_migratable")})


def _is_kind(has: Mapping[str, str], spec: Mapping[str, str]) -> bool:
    return all(
        has.get(name, "").lower() == value.lower()
        for name, value in spec.items()
        if name not in OF_PLACEMENT | {"live_migratable"}
    )


EXTRA_SPEC = "pci_passthrough:alias"
# More than any host has.
MAX_COUNT = 1024


class DeviceRequestError(AgentError):
    """A flavor's request for devices is invalid.
    Remedy: correct the flavor's request, or ``[pci] alias``.
    """

    code = "pci.request"


def device_requests(
    specs: Mapping[str, str], aliases: Aliases, policy: PciPolicy | None, claim: str
) -> tuple[DeviceRequest, ...]:
    """Return the requests of a flavor with these extra ``specs``. ``policy``: that of flavor and
    image, which counts before the aliases'.

    ``claim``: the uuid of the claim, from which the ids of the requests are derived, so that a
    repeated request has the same ids.

    :raises DeviceRequestError: all that is wrong with the flavor's request.
    """
    items = [item.strip() for item in specs[EXTRA_SPEC].split(",")] if EXTRA_SPEC in specs else []
    wrong = [problem for item in items for problem in _problems(item, aliases)]
    if wrong:
        what = "; ".join(printable(why) for why, _ in wrong)
        raise DeviceRequestError(
            f"{EXTRA_SPEC} = {printable(specs[EXTRA_SPEC])}: {what}",
            "; ".join(dict.fromkeys(remedy for _, remedy in wrong)),
        )
    return tuple(
        _request(*_parts(item), aliases, policy, f"{claim}/{number}")
        for number, item in enumerate(items)
    )


def _request(
    name: str, count: str, aliases: Aliases, policy: PciPolicy | None, seed: str
) -> DeviceRequest:
    alias = aliases[name]
    first, *others = alias.alternatives
    return DeviceRequest(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, seed)),
        count=int(count),
        spec=first.spec,
        alternatives=tuple(other.spec for other in others),
        policy=policy or alias.policy,
        alias=name,
        resource_class=first.counted_by,
    )


def _problems(item: str, aliases: Aliases) -> Iterable[tuple[str, str]]:
    name, count = _parts(item)
    if not (
        count.isascii()
        and count.isdecimal()
        and len(count) <= len(str(MAX_COUNT))
        and 1 <= int(count) <= MAX_COUNT
    ):
        yield (
            f"{count or 'nothing'} is no number of devices",
            f"write name:count with a count from 1 to {MAX_COUNT}, or name alone for one",
        )
    if name not in aliases:
        yield (
            f"there is no alias {name or 'without a name'}",
            unknown_key(name, aliases) if aliases else "[pci] alias has none",
        )


def _parts(item: str) -> tuple[str, str]:
    """Return name and count, separated by the last colon, because names may have colons too."""
    name, colon, count = item.rpartition(":")
    return (name.strip(), count.strip()) if colon else (item, "1")


def with_providers(
    requests: Iterable[DeviceRequest], allocated: Mapping[ProviderUuid, Mapping[str, int]]
) -> tuple[DeviceRequest, ...]:
    """Return the requests with the providers that the scheduler ``allocated`` of their resource
    classes, as many as each request counts.
    """
    left = {
        name: [
            uuid for uuid, amounts in sorted(allocated.items()) for _ in range(amounts.get(name, 0))
        ]
        for name in _classes(allocated)
    }
    requests = tuple(requests)
    for request in requests:
        # Providers of a request that names them itself are not left for the others.
        for provider in request.providers:
            if provider in (there := left.get(request.resource_class or "", [])):
                there.remove(provider)
    return tuple(
        request if request.providers else _with_providers(request, left) for request in requests
    )


def _classes(allocated: Mapping[ProviderUuid, Mapping[str, int]]) -> set[str]:
    return {name for amounts in allocated.values() for name in amounts}


def _with_providers(request: DeviceRequest, left: dict[str, list[ProviderUuid]]) -> DeviceRequest:
    there = left.get(request.resource_class or "", [])
    if len(there) < request.count:
        return request
    left[request.resource_class or ""] = there[request.count :]
    return replace(request, providers=tuple(there[: request.count]))
