"""One way to place a guest, as Placement offered it to whoever asked for candidates."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.model.allocation import Holdings
from agent.placement.allocations.checks import holdings_problems, normal_holdings
from agent.placement.client import ALLOCATIONS, CONSUMER_TYPES

_VERSION = re.compile(r"1\.[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """``body`` is the candidate as it was read, with at least ``allocations``; ``version`` the microversion that it was read with.

    It is written back as it is and with that version, because an older one refuses its ``mappings``.
    """

    body: Mapping[str, Any]
    version: str

    @property
    def resources(self) -> Holdings:
        """What it asks for. Only of a request without :meth:`problems`."""
        return normal_holdings({uuid: entry["resources"] for uuid, entry in self.body["allocations"].items()})

    def problems(self) -> Iterator[str]:
        """Why it cannot be claimed."""
        if not _VERSION.fullmatch(self.version):
            yield f"{self.version!r} is no microversion"
        elif _number(self.version) < _number(ALLOCATIONS):
            yield f"an allocation request of microversion {self.version} is too old, it takes {ALLOCATIONS}"
        allocations = self.body.get("allocations")
        if not isinstance(allocations, Mapping) or not allocations:
            yield "an allocation request names no provider"
        elif not all(isinstance(entry, Mapping) for entry in allocations.values()):
            yield "an allocation request has no resources for a provider"
        else:
            yield from holdings_problems({uuid: entry.get("resources") for uuid, entry in allocations.items()})

    @property
    def needs_type(self) -> bool:
        """Whether it can only be written with the type of its consumer."""
        return _number(self.version) >= _number(CONSUMER_TYPES)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
