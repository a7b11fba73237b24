"""Views and folders that the tests of the store share."""

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.model.mirror import PlacementView
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider, ProviderTree

ENDPOINT = "http://placement.example/"
RECORD = {
    "total": 8,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 8,
    "step_size": 1,
    "allocation_ratio": 4.0,
}


def uuid_of(name: str) -> ProviderUuid:
    return ProviderUuid(str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))


ROOT = uuid_of("root")


def provider(
    name: str, parent: str | None = "root", generation: int = 1, traits: Iterable[str] = ()
) -> Provider:
    above = uuid_of(parent) if parent else None
    return Provider(
        uuid_of(name),
        name,
        generation,
        above,
        {"VCPU": RECORD},
        frozenset(traits),
        frozenset({uuid_of("aggregate")}),
    )


def tree_of(*providers: Provider) -> ProviderTree:
    tree = ProviderTree()
    for one in providers:
        tree.insert(one)
    return tree.freeze()


def view_of(*providers: Provider, read_at: float = 1700000000.125) -> PlacementView:
    return PlacementView(tree_of(*providers), {one.uuid: read_at for one in providers})


def node_view(cells: int = 3, generation: int = 1) -> PlacementView:
    return view_of(
        provider("root", None, generation),
        *(provider(f"cell {n}", "root", generation) for n in range(cells)),
    )


def contents(view: PlacementView | None) -> tuple[object, ...]:
    """All that a store keeps of a view, the order of the providers included."""
    assert view is not None
    held = {provider: dict(consumers) for provider, consumers in view.consumers.items()}
    return (
        list(view.tree.providers()),
        dict(view.read_at),
        view.sharing_read_at,
        view.sharing_aggregates,
        held,
        dict(view.unknown_since),
    )


def folder_state(folder: Path) -> Mapping[str, str]:
    """Every file below the folder, with a hash of its bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
