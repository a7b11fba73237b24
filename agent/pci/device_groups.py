"""What Placement is asked for devices: a group of its own for each, because one group would have to be met by one provider."""

from collections.abc import Mapping
from dataclasses import dataclass

import os_traits

from agent.pci.alias import Alternative


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """One request group with a suffix, for one device."""

    suffix: str
    resources: Mapping[str, int]
    required: frozenset[str]
    forbidden: frozenset[str]


def device_groups(request: str, count: int, wanted: Alternative) -> tuple[DeviceGroup, ...]:
    """The groups for ``count`` devices of the request with that id; none for an alias that does not name a class.

    They go together with ``group_policy=none``, because several devices may be one provider's.
    """
    name = wanted.counted_by
    if name is None:
        return ()
    required, forbidden = wanted.traits | {os_traits.COMPUTE_MANAGED_PCI_DEVICE}, frozenset[str]()
    if wanted.live_migratable is not None:
        chosen = frozenset({os_traits.HW_PCI_LIVE_MIGRATABLE})
        required, forbidden = (required | chosen, forbidden) if wanted.live_migratable else (required - chosen, chosen)
    return tuple(DeviceGroup(f"{request}-{index}", {name: 1}, required, forbidden) for index in range(count))
