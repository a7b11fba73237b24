"""A small forest: a node with two cells and a device, and a root that shares storage with it."""

from agent.model.provider_tree import SHARING_TRAIT, ProviderTree

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
N0 = "5f9c2a34-7d1e-4a8b-9c46-000000000010"
N1 = "5f9c2a34-7d1e-4a8b-9c46-000000000011"
PF0 = "5f9c2a34-7d1e-4a8b-9c46-000000000020"
STORAGE = "5f9c2a34-7d1e-4a8b-9c46-000000000030"
AGGREGATE = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
OTHER_AGGREGATE = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a12"
FREE_UUID = "5f9c2a34-7d1e-4a8b-9c46-0000000000ff"


def forest() -> ProviderTree:
    """``node-a`` → ``N0`` → ``PF0``, ``N1``; ``storage`` beside it."""
    tree = ProviderTree()
    tree.new_root("node-a", ROOT, 7)
    tree.new_child("N0", ROOT, N0, 3)
    tree.new_child("N1", "node-a", N1, 4)
    tree.new_child("PF0", "N0", PF0, 5)
    tree.new_root("storage", STORAGE, 9)
    tree.update_inventory(ROOT, {"VCPU": {"total": 16, "allocation_ratio": 4.0}})
    tree.update_traits(ROOT, ["COMPUTE_NODE"])
    tree.update_aggregates(ROOT, [AGGREGATE])
    tree.update_inventory(STORAGE, {"DISK_GB": {"total": 1000}})
    tree.update_traits(STORAGE, [SHARING_TRAIT])
    tree.update_aggregates(STORAGE, [AGGREGATE])
    return tree


def row(uuid: str, name: str, parent: str | None = None, generation: int = 1) -> dict[str, object]:
    """A provider as Placement lists it."""
    return {"uuid": uuid, "name": name, "generation": generation, "parent_provider_uuid": parent}


def state(tree: ProviderTree) -> list[object]:
    """All that a tree holds, in its order."""
    return [tree.data(uuid) for uuid in tree.get_provider_uuids()]
