"""A PCI device as the records know it: there or gone, free or held by one claim."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from agent.model.names import ProviderUuid

DeviceType = Literal["type-PCI", "type-PF", "type-VF", "vdpa"]
DeviceState = Literal["available", "claimed", "allocated"]
Serves = Literal["guests", "nobody", "host"]
DEVICE_TYPES: frozenset[DeviceType] = frozenset(get_args(DeviceType))
DEVICE_STATES: frozenset[DeviceState] = frozenset(get_args(DeviceState))
SERVES: frozenset[Serves] = frozenset(get_args(Serves))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device of one node, told apart by its address.

    ``state`` is that of the device itself; that a PF is out of reach while one of its VFs is held, and the reverse,
    follows from the ``parent`` addresses and is not kept. ``holder``: the id of the claim that has it, None exactly if
    it is available; ``request``: the id of what the claim asked. ``tags``: what the operator says of it, and by which
    requests may tell it from others; two devices of one pool have equal ones.

    ``serves``: ``guests`` if the operator offers it. The others are there because a function of the same card is offered:
    ``host`` if the host itself uses it, so that its PF cannot be had, else ``nobody``. ``present``: whether the host
    still shows it and the operator still offers it; one that is gone while held is dropped when it becomes free.
    ``version``: see :mod:`agent.model.changes`.
    """

    node: ProviderUuid
    address: str
    vendor_id: str
    product_id: str
    type: DeviceType = "type-PCI"
    parent: str | None = None
    numa_node: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    serves: Serves = "guests"
    state: DeviceState = "available"
    holder: str | None = None
    request: str | None = None
    present: bool = True
    version: int = 0
