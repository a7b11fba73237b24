"""The driver that nova's tracker and this agent both run, so that a comparison of them compares
nothing but their own work. It imports neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

CELLS = 8
ROOT = "7b1c3f2e-4a5d-4c6b-8e9f-{:012d}"
NAME = "bench"
CUSTOM_TRAIT = "CUSTOM_PHYSNET_A"
HELD = {"VCPU": 2, "MEMORY_MB": 512}
"""What each guest holds of the root."""


@dataclass(frozen=True)
class Tree:
    """What the driver reports: a host with ``providers``, or ``nodes`` bare-metal nodes.

    ``grown``: the first device offers more; without devices the root, and of many nodes the first.
    ``fewer_traits``: the first device lacks its trait; without devices the root lacks a capability,
    and of many nodes the first lacks a trait. ``split``: the VCPUs are on two more children.
    ``dropped``: the last device is gone.
    """

    providers: int = 1
    nodes: int = 1
    grown: bool = False
    fewer_traits: bool = False
    split: bool = False
    dropped: bool = False

    @property
    def cells(self) -> range:
        """The cells below the root."""
        return range(min(CELLS, self.providers - 1))

    @property
    def devices(self) -> range:
        """The devices, each below a cell."""
        return range(self.providers - 1 - len(self.cells))

    @property
    def names(self) -> Mapping[str, str]:
        """The nodes: uuid to name."""
        if self.nodes == 1:
            return {ROOT.format(1): NAME}
        return {ROOT.format(1 + node): f"{NAME}-{node}" for node in range(self.nodes)}

    @property
    def with_traits(self) -> int:
        """How many providers have traits."""
        return self.nodes + len(self.devices)

    @property
    def custom_names(self) -> int:
        """How many custom traits and classes Placement has to learn."""
        return 3 if self.nodes > 1 else min(1, len(self.devices))


class TreeDriver:
    """A driver in nova's style: it shapes the whole tree itself. ``tree`` may be replaced between
    two passes.
    """

    reshape_needed: type[Exception]
    """What a driver raises where allocations have to move."""
    capabilities: ClassVar[dict[str, bool]] = {}

    def __init__(self) -> None:
        self.tree = Tree()

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return standard traits, and whether the root has them."""
        tree = self.tree
        without_devices = tree.nodes == 1 and not tree.devices
        return {
            "COMPUTE_NODE": True,
            "COMPUTE_DEVICE_TAGGING": not (tree.fewer_traits and without_devices),
            "COMPUTE_VOLUME_EXTEND": False,
        }

    def node_is_available(self, nodename: str) -> bool:
        """Whether there is such a node."""
        return nodename in self.tree.names.values()

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        """Edit the node's tree in place."""
        if self.tree.nodes > 1:
            self._update_metal(provider_tree, nodename)
        else:
            self._update_host(provider_tree, nodename, allocations)

    def _update_metal(self, provider_tree: Any, nodename: str) -> None:
        changes = nodename == f"{NAME}-0"
        total = 2 if self.tree.grown and changes else 1
        provider_tree.update_inventory(nodename, inventory({"CUSTOM_BAREMETAL_GOLD": total}))
        traits = ["CUSTOM_GOLD", "CUSTOM_RACK_1"]
        if self.tree.fewer_traits and changes:
            provider_tree.remove_traits(nodename, traits.pop())
        provider_tree.add_traits(nodename, *traits)

    def _update_host(self, provider_tree: Any, nodename: str, allocations: Any) -> None:
        tree = self.tree
        for cell in tree.cells:
            _child(provider_tree, f"{nodename}_CELL{cell}", nodename, {"PCPU": 16})
        for number in tree.devices:
            name, parent = f"{nodename}_DEVICE{number}", f"{nodename}_CELL{number % CELLS}"
            if tree.dropped and number == tree.devices[-1]:
                if provider_tree.exists(name):
                    provider_tree.remove(name)
                continue
            total = 16 if tree.grown and number == 0 else 8
            _child(provider_tree, name, parent, {"SRIOV_NET_VF": total})
            lacks = tree.fewer_traits and number == 0
            provider_tree.update_traits(name, [] if lacks else [CUSTOM_TRAIT])
        root = {"VCPU": 4096, "MEMORY_MB": 1048576}
        root["DISK_GB"] = 20000 if tree.grown and not tree.devices else 10000
        if tree.split:
            self._split(provider_tree, nodename, allocations)
            del root["VCPU"]
        provider_tree.update_inventory(nodename, inventory(root))

    def _split(self, provider_tree: Any, nodename: str, allocations: Any) -> None:
        names = [f"{nodename}_SPLIT{half}" for half in range(2)]
        if allocations is None and not provider_tree.exists(names[0]):
            raise self.reshape_needed()
        for name in names:
            _child(provider_tree, name, nodename, {"VCPU": 2048})
        root = provider_tree.data(nodename).uuid
        halves = [provider_tree.data(name).uuid for name in names]
        _move_cpus(allocations or {}, root, halves)


def _move_cpus(allocations: Mapping[str, Any], root: str, halves: Sequence[str]) -> None:
    """Move each consumer's VCPUs from the root to one of ``halves``."""
    for number, (_, allocation) in enumerate(sorted(allocations.items())):
        held = allocation["allocations"][root]["resources"]
        if "VCPU" in held:
            moved = {"VCPU": held.pop("VCPU")}
            allocation["allocations"][halves[number % 2]] = {"resources": moved}


def inventory(totals: Mapping[str, int]) -> dict[str, Any]:
    """Return whole inventory records."""
    return {
        name: {
            "total": total,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": total,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }
        for name, total in totals.items()
    }


def _child(provider_tree: Any, name: str, parent: str, totals: Mapping[str, int]) -> None:
    if not provider_tree.exists(name):
        provider_tree.new_child(name, parent)
    provider_tree.update_inventory(name, inventory(totals))
