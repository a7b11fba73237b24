"""What trackers promise, and to whom: the words of the account in :mod:`tests.support.promises`."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.model.instance import NOTHING, Amounts, Flavor
from agent.model.names import ProviderUuid

SHARED = frozenset({*range(4), *range(8, 12)})
CELLS = (frozenset(range(4, 8)), frozenset(range(12, 16)))
PF, VFS, CARD = "0000:81:00.0", ("0000:81:00.1", "0000:81:00.2"), "0000:82:00.0"
DEVICES: Mapping[str, tuple[str, ...]] = {"type-PF": (PF,), "type-VF": VFS, "type-PCI": (CARD,)}
TYPES = {address: kind for kind, addresses in DEVICES.items() for address in addresses}
UNITS = ("ns_0", "ns_1")

# Kinds of moves that wait for no confirmation, and how they end; and how each kind ends that is
# given up.
AT_ONCE = {"live-migration": "completed", "evacuation": "done"}
GIVEN_UP = {
    "resize": "cancelled",
    "migration": "cancelled",
    "live-migration": "cancelled",
    "evacuation": "failed",
}
STAYS = ("confirmed", "completed", "done")
# Of one that has arrived; after "confirming" there is no way back.
WAITING = ("finished", "confirming")
OVER = (*STAYS, "reverted", "failed", "cancelled")
ON_THE_WAY = ("resize_prep", "resize_reverting", "migrating")


class Refused(Exception):
    """The operation is refused. ``room``: because there is none left."""

    def __init__(self, *, room: bool = False) -> None:
        self.room = room


@dataclass(frozen=True)
class Wanted:
    """What a guest asks for beside its flavor: a device of each of some types, units; ``vcpus``:
    the most that may be used of the node then.
    """

    devices: tuple[str, ...] = ()
    units: int = 0
    vcpus: int | None = None


@dataclass(frozen=True)
class Got:
    """The very CPUs, devices and units of a claim."""

    cpus: frozenset[int]
    devices: frozenset[str]
    units: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One claim. ``got``: None until it was seen; ``attached``: its devices are in use; ``hour``:
    of its last change.
    """

    id: str
    purpose: str
    instance: str
    node: ProviderUuid
    amounts: Amounts = NOTHING
    cpus: int = 0
    devices: tuple[str, ...] = ()
    units: int = 0
    half: str = "only"
    state: str = "held"
    move: str | None = None
    attached: bool = True
    hour: int = 0
    got: Got | None = None

    @property
    def open(self) -> bool:
        return self.state != "released"


@dataclass(frozen=True, kw_only=True)
class Guest:
    """One instance."""

    flavor: Flavor
    host: str | None = None
    node: ProviderUuid | None = None
    vm_state: str = "building"
    task_state: str | None = None
    old: Flavor | None = None
    new: Flavor | None = None
    deleted: bool = False

    @property
    def removed(self) -> bool:
        return (
            self.deleted
            or self.vm_state == "deleted"
            or (self.vm_state == "shelved_offloaded" and self.task_state != "spawning")
        )

    @property
    def on_the_way(self) -> bool:
        return self.vm_state == "resized" or self.task_state in ON_THE_WAY


@dataclass(frozen=True, kw_only=True)
class Move:
    """One migration; its id is that of the claim at its destination."""

    instance: str
    type: str
    status: str
    source: ProviderUuid | None
    source_host: str | None
    dest: ProviderUuid

    @property
    def goes_on(self) -> bool:
        return self.status not in (*OVER, "error")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a host shows: the CPUs that run, its devices and units; None where it does not say."""

    online: frozenset[int] = frozenset(range(16))
    devices: frozenset[str] | None = frozenset(TYPES)
    units: frozenset[str] | None = frozenset(UNITS)


@dataclass(frozen=True)
class Memory:
    """What an agent has in mind of a node since its last audit."""

    online: frozenset[int]
    available: bool = True
