"""Values for tests of the core: a node's tree in Placement, with a child of ours and one of
somebody else's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent.model.inventory import completed
from agent.model.mirror import Journal, Ownership, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid
from agent.model.provider_tree import SHARING_TRAIT, ProviderTree
from agent.placement.merge import Merge, Target, Use
from agent.placement.ownership import MergeInputs, foreign_share

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
N0 = "5f9c2a34-7d1e-4a8b-9c46-000000000010"
BW = "5f9c2a34-7d1e-4a8b-9c46-0000000000b0"
STORAGE = "5f9c2a34-7d1e-4a8b-9c46-000000000030"
OTHER_UUID = "5f9c2a34-7d1e-4a8b-9c46-0000000000ff"
OURS_AGGREGATE = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
THEIR_AGGREGATE = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a12"
NAME = "node-a"

KNOWLEDGE = ServerCapabilities("http://placement", "1.39")
JOURNAL = Journal(
    {
        ROOT: Ownership(
            frozenset({"VCPU", "CUSTOM_A"}),
            frozenset({"COMPUTE_NODE"}),
            frozenset({OURS_AGGREGATE}),
        ),
        N0: Ownership(frozenset({"VGPU"}), frozenset({"HW_NUMA_ROOT"}), role="N0"),
    },
    adopted=True,
)
EMPTY = Journal()

Edit = Callable[[ProviderTree], None]


def total(amount: int, **fields: Any) -> dict[str, Any]:
    """A complete record."""
    return completed({"total": amount, "max_unit": amount, **fields})


def tree_in_placement() -> ProviderTree:
    """``node-a`` with ours and theirs on it; ``N0`` ours, ``BW`` below it theirs; ``storage``
    shares from outside.
    """
    tree = ProviderTree()
    tree.new_root(NAME, ROOT, 7)
    tree.new_child("N0", ROOT, N0, 3)
    tree.new_child("BW", N0, BW, 2)
    tree.new_root("storage", STORAGE, 9)
    tree.update_inventory(
        ROOT,
        {"VCPU": total(8, allocation_ratio=4.0), "CUSTOM_A": total(1), "CUSTOM_LICENSE": total(3)},
    )
    tree.update_traits(
        ROOT, ["COMPUTE_NODE", "CUSTOM_RACK7", "HW_THEIRS", "COMPUTE_STATUS_DISABLED"]
    )
    tree.update_aggregates(ROOT, [OURS_AGGREGATE, THEIR_AGGREGATE])
    tree.update_inventory(N0, {"VGPU": total(2)})
    tree.update_traits(N0, ["HW_NUMA_ROOT"])
    tree.update_inventory(BW, {"NET_BW_EGR_KILOBIT_PER_SEC": total(1000)})
    tree.update_traits(BW, ["CUSTOM_PHYSNET_A"])
    tree.update_inventory(STORAGE, {"DISK_GB": total(100)})
    tree.update_traits(STORAGE, [SHARING_TRAIT])
    tree.update_aggregates(STORAGE, [THEIR_AGGREGATE])
    return tree


def view(tree: ProviderTree | None = None) -> PlacementView:
    """What the agent has read."""
    tree = tree_in_placement() if tree is None else tree
    return PlacementView(tree.freeze(), {one.uuid: 1.0 for one in tree.providers()})


def same(tree: ProviderTree) -> None:
    """The wish of a driver that wants what ``tree_in_placement`` has of ours."""
    tree.update_inventory(
        ROOT,
        {**tree.data(ROOT).inventory, "VCPU": total(8, allocation_ratio=4.0), "CUSTOM_A": total(1)},
    )
    tree.add_traits(ROOT, "COMPUTE_NODE")
    tree.add_aggregates(ROOT, OURS_AGGREGATE)
    if not tree.exists("N0"):
        tree.new_child("N0", ROOT)
    tree.update_inventory("N0", {"VGPU": total(2)})
    tree.add_traits("N0", "HW_NUMA_ROOT")


def merged(
    edit: Edit,
    *,
    found: PlacementView | None = None,
    journal: Journal = JOURNAL,
    capabilities: ServerCapabilities = KNOWLEDGE,
    usages: Mapping[str, Mapping[str, int]] | None = None,
    whole: bool = False,
    take_over: bool = False,
    **more: bool,
) -> Target:
    """The merge of what ``edit`` makes of the driver's tree; ``whole``: of all that is there, else
    of what is not ours.
    """
    found = view() if found is None else found
    base = (
        found.tree.scoped(ROOT)
        if whole and found.tree.exists(ROOT)
        else foreign_share(found, journal, ROOT, NAME)
    )
    desired = base.copy()
    edit(desired)
    uses = {
        ProviderUuid(uuid): {name: Use(amount) for name, amount in used.items()}
        for uuid, used in (usages or {}).items()
    }
    inputs = MergeInputs.of(found, journal, base, desired, ROOT, take_over=take_over)
    return Merge(inputs, capabilities, uses, **more).target()
