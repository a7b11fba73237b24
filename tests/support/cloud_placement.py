"""What Placement has to have of the hosts of a cloud, provider by provider: who holds what, and
what each provider offers.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent.tree.policy import Layout
from tests.support.orchestrator import Resources
from tests.support.walked_host import DEVICES, WalkedHost

Held = dict[str, Counter[str]]
"""What somebody holds of a host: the name of the provider to class to amount."""
Moved = Callable[[str, str, Held, Held], bool]
"""Whether an agent may have moved what a consumer holds of a host from there to there."""
Offered = dict[tuple[str, str], float]
"""What guests can have of each provider in all, by its name and class."""


@dataclass
class Holdings:
    """Who holds what in Placement, by consumer and host.

    ``over``: consumers and hosts whose share nobody needs any more, so that an agent may remove it,
    and in the end has to.
    """

    shares: dict[str, dict[str, Held]] = field(default_factory=dict)
    over: set[tuple[str, str]] = field(default_factory=set)

    def wrong(self, found: Mapping[str, Mapping[str, Held]], moved: Moved) -> list[str]:
        """What somebody has lost or got; a share that is over may be gone, and another be of other
        providers of its host if ``moved`` says so.
        """
        wrong = []
        for consumer in sorted(self.shares.keys() | found.keys()):
            mine = self.shares.get(consumer, {})
            for host in sorted(mine.keys() | found.get(consumer, {}).keys()):
                there, wanted = found.get(consumer, {}).get(host), mine.get(host)
                if there is None and (consumer, host) in self.over:
                    del mine[host]
                    # What he holds there later he may need.
                    self.over.remove((consumer, host))
                elif (
                    there is not None
                    and wanted is not None
                    and there != wanted
                    and moved(consumer, host, wanted, there)
                ):
                    mine[host] = there
                elif there != wanted:
                    wrong.append(f"consumer {consumer} holds {there} of {host} instead of {wanted}")
        return wrong

    def left(self) -> list[str]:
        """What somebody still holds although it is over."""
        return [
            f"consumer {consumer} still holds {self.shares[consumer][host]} of {host}"
            for consumer, host in sorted(self.over)
            if host in self.shares.get(consumer, {})
        ]


@dataclass
class Offers:
    """What the providers of each host offered when they were looked at last. Only a pass changes
    that, and to nothing but what the host has.
    """

    last: dict[str, Offered] = field(default_factory=dict)

    def wrong(
        self,
        host: WalkedHost,
        found: Offered,
        layouts: Collection[Layout],
        *,
        calm: bool,
        held: Collection[str],
        used: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> Iterator[str]:
        """What of the providers of a host is not as it should be.

        ``layouts``: those of the agents that have had the node in hand; ``calm``: and nothing was
        in the way of the last one, the host's own. ``held``: the devices and units that guests
        have; ``used``: what is allocated.
        """
        before, wanted = (
            self.last.get(host.name, {}),
            [host.offers(one) for one in ([host.layout] if calm else layouts)],
        )
        self.last[host.name] = found
        for key in sorted(
            before.keys() | found.keys() | {one for offers in wanted for one in offers}
        ):
            # What is gone and held may be counted for as long as it is.
            kept = sum(1 for one in host.lost & set(held) if DEVICES[one] == key)
            right = {offers.get(key, 0.0) + more for offers in wanted for more in (0, kept)} | (
                set() if calm else {before.get(key, 0.0)}
            )
            if any(DEVICES[one] == key for one in host.lost):
                # No total is below what is allocated, for whomever.
                right |= {max(amount, float(used.get(key, 0))) for amount in right}
            if (now := found.get(key, 0.0)) not in right:
                yield (
                    f"provider {key[0]!r} of {host.name} offers {now} of {key[1]} instead of "
                    f"{sorted(right)}"
                )


def by_host(
    allocations: Resources, hosts: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, Held]:
    """What somebody holds of each host. ``hosts`` and ``names``: of each provider."""
    found: dict[str, Held] = {}
    for provider, held in allocations.items():
        found.setdefault(hosts[provider], {})[names[provider]] = Counter(held)
    return found


def offered(record: Mapping[str, Any]) -> float:
    """What guests can have of an inventory."""
    return float((record["total"] - record["reserved"]) * record["allocation_ratio"])
