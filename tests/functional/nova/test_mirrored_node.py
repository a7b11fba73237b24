"""The mirror and the writes of a compute node inside nova-compute, on a real Placement."""

import contextlib
import logging
import os
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReshapeConflict, ReshapeFailed
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.nova.node import LazyAllocations, MirroredNode
from agent.placement import clock
from agent.placement.mirror import Freshness
from agent.placement.server import OptionalStorage, Server
from agent.placement.transport import Timeouts, Transport
from agent.store.store import Store, open_store
from tests.support.agent import new_uuid
from tests.support.placement import PlacementServer

ROOT = ProviderUuid("7b1c3f2e-4a5d-4c6b-8e9f-000000000001")
HELD = {"VCPU": 1, "MEMORY_MB": 512}


class Node:
    """A compute node of nova-compute, over restarts of its process."""

    def __init__(self, placement: PlacementServer, folder: Path) -> None:
        self.placement, self.folder, self.other = placement, folder, placement.other
        self.store: Store | None = None
        self.start()

    def start(self, **freshness: Any) -> None:
        if self.store is not None:
            self.store.close()
        self.store = open_store(self.folder)
        transport = Transport(
            self.placement.adapter(),
            timeouts=Timeouts(),
            max_in_flight=1,
            cancelled=threading.Event(),
        )
        server = Server(transport, "http", OptionalStorage(self.store))
        self.mirrored = MirroredNode(server, ROOT, Freshness(**freshness))

    def update(
        self, shape: Callable[[ProviderTree], None], moved: Mapping[str, Any] | None = None
    ) -> Any:
        """One update as the resource tracker makes it."""
        tree = self.mirrored.tree("compute-1")
        shape(tree)
        return self.mirrored.write(tree, moved)

    def requests(self, work: Callable[[], object]) -> list[str]:
        """The methods and paths of the requests that ``work`` sends."""
        self.placement.clear()
        work()
        return [f"{one.method} {one.path.partition('?')[0]}" for one in self.placement.requests]


@pytest.fixture
def node(placement: PlacementServer, tmp_path: Path) -> Node:
    return Node(placement, tmp_path / "mirror")


def flat(tree: ProviderTree) -> None:
    tree.update_inventory("compute-1", {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}})
    tree.update_traits("compute-1", ["COMPUTE_NODE"])


def cell(tree: ProviderTree) -> None:
    if not tree.exists("cell"):
        tree.new_child("cell", ROOT)
    tree.update_inventory("cell", {"VCPU": {"total": 8}})
    tree.update_inventory("compute-1", {"MEMORY_MB": {"total": 4096}})


def test_an_update_in_which_nothing_changed_is_one_request_also_after_a_restart(
    node: Node,
) -> None:
    node.update(flat)
    assert node.other.inventory(ROOT)["VCPU"]["total"] == 8
    assert node.other.traits(ROOT) == {"COMPUTE_NODE"}
    structure = ["GET /resource_providers"]
    assert node.requests(lambda: node.update(flat)) == structure
    node.start()
    assert node.requests(lambda: node.update(flat)) == structure


def test_what_nova_asks_first_is_answered_by_the_same_request(node: Node) -> None:
    node.update(flat)
    consumer = new_uuid()
    node.other.claim({ROOT: HELD}, consumer)

    def period() -> None:
        assert node.mirrored.holders() == {consumer: HELD}
        node.update(flat)

    node.requests(period)
    assert node.requests(period) == ["GET /resource_providers"]


def test_what_others_write_is_kept_unless_nova_writes_it(node: Node) -> None:
    node.update(flat)
    child, aggregate = node.other.create_provider("another service's", parent=ROOT), new_uuid()
    node.other.set_aggregates(ROOT, {aggregate})
    node.update(flat)
    assert node.other.aggregates(ROOT) == {aggregate}
    assert child in node.placement.dump()["providers"]


def with_licences(tree: ProviderTree) -> None:
    flat(tree)
    classes = {**tree.data("compute-1").inventory, "CUSTOM_LICENCE": {"total": 4}}
    tree.update_inventory("compute-1", classes)


@pytest.mark.parametrize("used", [False, True])
def test_a_class_that_the_driver_never_had_stays_and_the_rest_is_written(
    node: Node, used: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node.update(flat)
    other = node.other
    other.set_inventory(ROOT, {**other.inventory(ROOT), "CUSTOM_LICENCE": 4})
    if used:
        other.claim({ROOT: {"CUSTOM_LICENCE": 1}}, new_uuid())
    before = other.inventory(ROOT)["CUSTOM_LICENCE"]
    node.update(grown)
    assert node.requests(lambda: node.update(grown)) == ["GET /resource_providers"]
    node.start()
    node.update(flat)
    inventory = other.inventory(ROOT)
    assert (inventory["VCPU"]["total"], inventory["CUSTOM_LICENCE"]) == (8, before)
    # Once by each process.
    told = [one for one in caplog.messages if "somebody else put it there" in one]
    assert len(told) == 2
    # A layout with cells leaves it too.
    node.update(cell, LazyAllocations(node.mirrored.allocations))
    assert other.inventory(ROOT)["CUSTOM_LICENCE"] == before


def test_a_class_that_the_driver_had_goes_also_after_a_restart_and_stays_while_it_is_used(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.update(with_licences)
    consumer = new_uuid()
    node.other.claim({ROOT: {"CUSTOM_LICENCE": 1}}, consumer)
    node.start()
    flushed = node.update(grown)
    assert (flushed.conflict, flushed.outage) == (None, None)
    inventory = node.other.inventory(ROOT)
    assert (inventory["VCPU"]["total"], "CUSTOM_LICENCE" in inventory) == (16, True)
    because = f"stays because 1 of it are allocated to {consumer}; "
    assert len([one for one in caplog.messages if because in one]) == 1
    # It is not tried in each period.
    assert node.requests(lambda: node.update(grown)) == ["GET /resource_providers"]
    node.other.release(consumer)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 601)
    node.update(grown)
    assert "CUSTOM_LICENCE" not in node.other.inventory(ROOT)


def test_a_provider_in_use_that_the_driver_removed_keeps_nothing_else_from_being_written(
    node: Node,
) -> None:
    def carded(tree: ProviderTree) -> None:
        flat(tree)
        tree.new_child("card", ROOT)
        tree.update_inventory("card", {"VGPU": {"total": 1}})

    def without(tree: ProviderTree) -> None:
        grown(tree)
        if tree.exists("card"):
            tree.remove("card")

    node.update(carded)
    card = node.mirrored.tree("compute-1").data("card").uuid
    consumer = new_uuid()
    node.other.claim({card: {"VGPU": 1}}, consumer)
    node.update(without)
    assert node.other.inventory(ROOT)["VCPU"]["total"] == 16
    assert node.requests(lambda: node.update(without)) == ["GET /resource_providers"]
    assert "VGPU" in node.other.inventory(card)


def test_a_reshape_moves_allocations_and_may_change_amounts(node: Node) -> None:
    node.update(flat)
    consumer = new_uuid()
    node.other.claim({ROOT: HELD}, consumer)
    tree = node.mirrored.tree("compute-1")
    allocations = LazyAllocations(node.mirrored.allocations)
    cell(tree)
    moved = tree.data("cell").uuid
    allocations[consumer]["allocations"] = {
        ROOT: {"resources": {"MEMORY_MB": 512}},
        moved: {"resources": {"VCPU": 2}},
    }
    node.mirrored.write(tree, allocations)
    held = node.other.allocations(consumer)["allocations"]
    assert {uuid: one["resources"] for uuid, one in held.items()} == {
        ROOT: {"MEMORY_MB": 512},
        moved: {"VCPU": 2},
    }
    assert node.requests(lambda: node.update(cell)) == ["GET /resource_providers"]


def test_a_reshape_that_drops_what_a_consumer_has_is_refused_before_anything_is_written(
    node: Node,
) -> None:
    node.update(flat)
    node.other.claim({ROOT: HELD}, new_uuid())
    before = node.placement.dump()
    with pytest.raises(ReshapeFailed, match="dropped"):
        node.update(cell, LazyAllocations(dict))
    assert node.placement.dump() == before


def test_a_consumer_that_released_its_allocation_and_has_one_again_is_read_again(
    node: Node,
) -> None:
    def two(tree: ProviderTree) -> None:
        flat(tree)
        if not tree.exists("card"):
            tree.new_child("card", ROOT)
        tree.update_inventory("card", {"VGPU": {"total": 1}})

    node.start(consumers=1e-9)
    node.update(two)
    card, consumer = node.mirrored.tree("compute-1").data("card").uuid, new_uuid()
    node.other.claim({ROOT: HELD, card: {"VGPU": 1}}, consumer)
    node.mirrored.tree("compute-1")
    assert card in node.mirrored.allocations()[consumer].resources
    node.other.release(consumer)
    node.other.claim({ROOT: HELD}, consumer)
    node.mirrored.tree("compute-1")
    assert node.mirrored.allocations()[consumer].resources.keys() == {ROOT}


def test_an_unchanged_update_of_a_tree_with_children_writes_nothing_and_says_nothing(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    def nested(tree: ProviderTree) -> None:
        flat(tree)
        for number in range(4):
            if not tree.exists(f"card{number}"):
                tree.new_child(f"card{number}", ROOT)
            tree.update_inventory(f"card{number}", {"VGPU": {"total": 1}})

    for _ in range(2):
        node.update(nested)
    (log,) = (node.folder / "database").glob("*-wal")
    written = log.read_bytes()
    node.update(nested)
    assert log.read_bytes() == written
    node.start()
    node.update(nested)
    assert caplog.messages == []
    node.update(flat)
    assert len(node.other.tree(ROOT)) == 5


def test_a_reshape_after_a_release_that_was_not_seen_is_made_again_from_fresh_allocations(
    node: Node,
) -> None:
    node.update(flat)
    gone, consumer = new_uuid(), new_uuid()
    for one in (gone, consumer):
        node.other.claim({ROOT: HELD}, one)

    def attempt() -> None:
        tree = node.mirrored.tree("compute-1")
        allocations = LazyAllocations(node.mirrored.allocations)
        cell(tree)
        for allocation in allocations.values():
            allocation["allocations"] = {
                ROOT: {"resources": {"MEMORY_MB": 512}},
                tree.data("cell").uuid: {"resources": {"VCPU": 1}},
            }
        node.mirrored.write(tree, allocations)

    node.mirrored.tree("compute-1")
    assert node.mirrored.allocations().keys() == {gone, consumer}
    node.other.release(gone)
    with pytest.raises(ReshapeConflict):
        attempt()
    assert node.other.allocations(gone)["allocations"] == {}
    attempt()
    assert ROOT in node.other.allocations(consumer)["allocations"]
    assert len(node.other.allocations(consumer)["allocations"]) == 2
    assert node.other.allocations(gone)["allocations"] == {}


def test_two_writers_meet_a_conflict_and_the_next_attempt_is_from_what_is_there(
    node: Node,
) -> None:
    node.update(flat)
    tree = node.mirrored.tree("compute-1")
    node.other.set_traits(ROOT, {"COMPUTE_NODE", "HW_CPU_X86_AVX"})
    tree.update_inventory("compute-1", {"VCPU": {"total": 16}})
    assert node.mirrored.write(tree, None).conflict is not None
    tree = node.mirrored.tree("compute-1")
    tree.update_inventory("compute-1", {"VCPU": {"total": 16}})
    assert node.mirrored.write(tree, None).conflict is None
    assert node.other.inventory(ROOT)["VCPU"]["total"] == 16
    assert "HW_CPU_X86_AVX" in node.other.traits(ROOT)


def grown(tree: ProviderTree) -> None:
    flat(tree)
    tree.update_inventory("compute-1", {"VCPU": {"total": 16}})


@contextlib.contextmanager
def no_room(node: Node) -> Iterator[None]:
    """The disk takes no more of the store's log, as one that is full."""
    (log,) = (node.folder / "database").glob("*-wal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def moved_away(node: Node) -> Iterator[None]:
    """The folder stands elsewhere."""
    node.folder.rename(node.folder.with_name("elsewhere"))
    yield


@contextlib.contextmanager
def damaged(node: Node) -> Iterator[None]:
    """Every page of the file and of its log has other contents."""
    for file in (node.folder / "database").iterdir():
        if file.suffix != ".lock":
            with file.open("r+b") as opened:
                opened.write(os.urandom(file.stat().st_size))
    yield


@pytest.mark.parametrize("fault", [no_room, moved_away, damaged])
def test_a_store_that_fails_while_nova_compute_runs_is_one_warning_and_no_report_fails(
    node: Node,
    fault: Callable[[Node], contextlib.AbstractContextManager[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    node.update(flat)
    caplog.set_level(logging.WARNING)
    with fault(node):
        node.update(grown)
        assert node.other.inventory(ROOT)["VCPU"]["total"] == 16
        assert node.requests(lambda: node.update(grown)) == ["GET /resource_providers"]
        node.update(flat)
    assert node.other.inventory(ROOT)["VCPU"]["total"] == 8
    (warning,) = caplog.messages
    assert "kept in memory only" in warning
    assert str(node.folder) in warning


def test_a_store_that_cannot_be_read_is_one_warning_and_the_whole_tree_is_read(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.update(flat)
    node.start()
    with damaged(node):
        assert len(node.requests(lambda: node.update(flat))) > 1
        assert node.requests(lambda: node.update(flat)) == ["GET /resource_providers"]
    (warning,) = caplog.messages
    assert "kept in memory only" in warning


def test_what_a_failed_store_did_not_save_is_read_again_after_a_restart(node: Node) -> None:
    node.update(flat)
    with no_room(node):
        node.update(grown)
    node.start()
    node.update(grown)
    assert node.requests(lambda: node.update(grown)) == ["GET /resource_providers"]
    node.start()
    assert node.requests(lambda: node.update(grown)) == ["GET /resource_providers"]
    assert node.other.inventory(ROOT)["VCPU"]["total"] == 16


def test_what_nova_gives_back_itself_is_not_shown_as_held_any_more(node: Node) -> None:
    node.update(flat)
    deleted, other = new_uuid(), new_uuid()
    for consumer in (deleted, other):
        node.other.claim({ROOT: HELD}, consumer)
    assert node.mirrored.holders().keys() == {deleted, other}
    node.other.release(deleted)
    node.mirrored.note_release(ConsumerUuid(deleted))
    found: list[Any] = []
    assert node.requests(lambda: found.append(node.mirrored.holders())) == [
        "GET /resource_providers"
    ]
    assert found[0].keys() == {other}
    # It may have an allocation again, which moves a generation.
    node.other.claim({ROOT: HELD}, deleted)
    assert node.mirrored.holders().keys() == {deleted, other}
