"""What consumers hold, one line a provider."""

from collections.abc import Iterator, Mapping

from agent.model.allocation import Holdings
from agent.model.names import ProviderUuid


def holdings_lines(holdings: Holdings, names: Mapping[ProviderUuid, str]) -> Iterator[str]:
    """Each provider, by its name where that is known, and what is held of it."""
    for uuid, resources in holdings.items():
        amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(resources.items()))
        yield f"  {names[uuid]} ({uuid}): {amounts}" if uuid in names else f"  {uuid}: {amounts}"
