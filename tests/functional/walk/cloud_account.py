"""Who has what on the hosts of a cloud, by what its orchestrator was answered: an account that
knows the rules and not the code.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from agent.model.instance import Flavor
from agent.model.node_records import Claim, ClaimState, Half, NodeRecords
from agent.tree.policy import Layout
from tests.support.machine import CARD, CLASS_OF, FUNCTIONS, Machine
from tests.support.orchestrator import Kind, Resources
from tests.support.tracking import DEDICATED as PINNING
from tests.support.walked_host import DEVICES, WalkedHost
from tests.unit.pci.scene import NAMES

BY_ADDRESS = {address: name for name, address in NAMES.items()}


@dataclass(frozen=True)
class Got:
    """The very CPUs, devices and units of a claim."""

    cpus: frozenset[int]
    devices: frozenset[str]
    units: frozenset[str]


def got_of(claim: Claim, records: NodeRecords) -> Got:
    """What a claim has."""
    return Got(
        frozenset(cpu for placed in claim.cells for cpu in placed.pinned_cpus),
        frozenset(one.address for one in records.devices if one.holder == claim.id),
        frozenset(one.identifier for one in records.units if one.holder == claim.id),
    )


@dataclass(frozen=True)
class Share:
    """One claim on a host, which is a ``machine``. ``got``: None until it was seen. ``cells`` and
    ``cards``: those that its allocation names, if any.
    """

    guest: str
    host: str
    kind: Kind
    flavor: Flavor
    machine: Machine
    half: Half = "only"
    state: ClaimState = "held"
    move: str | None = None
    got: Got | None = None
    cells: frozenset[int] = frozenset()
    cards: frozenset[str] = frozenset()

    @property
    def pins(self) -> int:
        """How many host CPUs are its own."""
        return self.flavor.vcpus if self.flavor.extra_specs.items() >= PINNING.items() else 0

    @property
    def placed(self) -> dict[str, frozenset[str]]:
        """What of its allocation is where, by class and by what is behind the node's name in those
        of the providers: what it has got says that.
        """
        got, found = self.got, dict[str, frozenset[str]]()
        if got is not None and got.cpus:
            found["PCPU"] = frozenset(
                f"NUMA{number}"
                for number, cpus in enumerate(self.machine.dedicated)
                if got.cpus & cpus
            )
        if got is not None and self.kind.device is not None:
            found[self.kind.device] = frozenset(_card(one).upper() for one in got.devices)
        return found

    @property
    def things(self) -> frozenset[str]:
        """The devices and units that it has got."""
        return (
            frozenset()
            if self.got is None
            else frozenset(BY_ADDRESS[one] for one in self.got.devices) | self.got.units
        )

    def wrong(self, claim: Claim) -> str:
        """What of a claim is not as here."""
        found = (
            claim.instance,
            claim.half,
            claim.state,
            claim.migration,
            claim.flavor_id,
            claim.amounts,
        )
        wanted = (
            self.guest,
            self.half,
            self.state,
            self.move,
            self.flavor.id,
            self.flavor.amounts(volume_backed=False),
        )
        return (
            ""
            if found == wanted
            else f"claim {claim.id} of {self.host}: {found} instead of {wanted}"
        )

    def wrong_kind(self, got: Got) -> str:
        """What of the things that a claim has got is not what was asked for."""
        devices = Counter(CLASS_OF[BY_ADDRESS[one]] for one in got.devices)
        enough = (
            len(got.cpus) == self.pins
            and devices == Counter(filter(None, [self.kind.device]))
            and len(got.units) == self.kind.units
        )
        placed = [number for number, cpus in enumerate(self.machine.dedicated) if got.cpus & cpus]
        one_cell = len(placed) <= 1 and (not self.cells or {*placed} <= self.cells)
        on_cards = not self.cards or {_card(one) for one in got.devices} <= self.cards
        asked = f"{self.flavor.id}, cells {sorted(self.cells)}, cards {sorted(self.cards)}"
        return (
            ""
            if enough and one_cell and on_cards
            else f"{self.guest} on {self.host} got {got} for {asked}"
        )


@dataclass
class CloudAccount:
    """``shares``: by the ids of their claims. ``over``: consumers and hosts whose agents have just
    been told that nothing is needed of what is held there.
    """

    shares: dict[str, Share] = field(default_factory=dict)
    over: set[tuple[str, str]] = field(default_factory=set)

    def copy(self) -> "CloudAccount":
        """Another one, of the same."""
        return CloudAccount(dict(self.shares), set(self.over))

    # --- what is done -----------------------------------------------------------------------------

    def of(self, guest: str, host: str | None = None, half: Half | None = None) -> list[str]:
        """The claims of a guest."""
        return [
            id
            for id, one in self.shares.items()
            if one.guest == guest and host in (None, one.host) and half in (None, one.half)
        ]

    def change(self, ids: Iterable[str], **fields: Any) -> None:
        """Those claims become so."""
        for id in ids:
            self.shares[id] = replace(self.shares[id], **fields)

    def release(self, ids: Iterable[str]) -> None:
        """Those claims are given back; they may be already, if nobody heard the answer."""
        for id in ids:
            self.shares.pop(id, None)

    # --- what there is ----------------------------------------------------------------------------

    def wrong(self, records: Mapping[str, NodeRecords]) -> list[str]:
        """What of the records of the hosts is not as here."""
        found = []
        for host, node in records.items():
            claims = {one.id: one for one in node.claims}
            wanted = {id: one for id, one in self.shares.items() if one.host == host}
            found += [
                f"{host} lost claim {id}: {wanted[id]}" for id in wanted.keys() - claims.keys()
            ]
            found += [
                f"{host} has claim {id}, which is over: {claims[id]}"
                for id in claims.keys() - wanted.keys()
            ]
            for id in wanted.keys() & claims.keys():
                got = got_of(claims[id], node)
                wrong = wanted[id].wrong(claims[id]) or wanted[id].wrong_kind(got)
                found += (
                    [wrong]
                    if wrong
                    else [f"claim {id} has {got} instead of {wanted[id].got}"]
                    if wanted[id].got not in (None, got)
                    else []
                )
            found += _twice(node)
            found += [f"damaged: {node.damaged}"] if node.damaged else []
        return found

    def saw(self, records: Mapping[str, NodeRecords]) -> None:
        """What each claim has got is to stay so."""
        for node in records.values():
            for claim in node.claims:
                if claim.id in self.shares:
                    self.shares[claim.id] = replace(self.shares[claim.id], got=got_of(claim, node))

    def has_room(self, host: str, share: Share, lost: Collection[str]) -> bool:
        """Whether the host could give a claim what it asks for, beside what others have."""
        others = [
            one.got for one in self.shares.values() if one.host == host and one.got is not None
        ]
        cpus = frozenset[int]().union(*(one.cpus for one in others))
        cells = [
            cell - cpus
            for number, cell in enumerate(share.machine.dedicated)
            if not share.cells or number in share.cells
        ]
        held = {BY_ADDRESS[address] for one in others for address in one.devices} | {
            unit for one in others for unit in one.units
        }
        there = [
            one
            for one in CLASS_OF
            if one not in held
            and one not in lost
            and (one not in NAMES or not share.cards or _card(NAMES[one]) in share.cards)
        ]
        free = Counter(CLASS_OF[one] for one in there)
        wanted = Counter(
            {
                name: amount
                for name, amount in share.kind.resources(share.flavor).items()
                if name in CLASS_OF.values()
            }
        )
        return (not share.pins or any(len(cell) >= share.pins for cell in cells)) and wanted <= free

    def used(self, host: str) -> tuple[int, int, int]:
        """Memory, CPUs and disk in all, MiB."""
        amounts = [
            one.flavor.amounts(volume_backed=False)
            for one in self.shares.values()
            if one.host == host
        ]
        return (
            sum(one.memory_mb for one in amounts),
            sum(one.vcpus for one in amounts),
            sum(one.disk_mb for one in amounts),
        )


def _card(address: str) -> str:
    """The address of the card that a device is on."""
    return NAMES[CARD] if BY_ADDRESS[address] in FUNCTIONS else address


def _twice(node: NodeRecords) -> list[str]:
    """What two claims have at once, and what a claim has that is none."""
    got = [got_of(one, node) for one in node.claims]
    wrong = []
    for what in ("cpus", "devices", "units"):
        each = Counter(one for found in got for one in getattr(found, what))
        wrong += [
            f"{what} {one} of {node.node.name} has {amount} holders"
            for one, amount in each.items()
            if amount > 1
        ]
    holders = {one.holder for one in (*node.devices, *node.units)} - {
        None,
        *(one.id for one in node.claims),
    }
    return wrong + [
        f"claims {holders} of {node.node.name} are over and hold something" for _ in holders
    ]


# ---
# What Placement has to have of the hosts of a cloud, provider by provider: who holds what, and
# what each provider offers.


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
