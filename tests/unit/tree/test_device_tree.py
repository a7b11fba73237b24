"""Properties of the devices' part of a tree: whatever is offered and used, applied once more it
changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.model.devices import PciDevice
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.provider_tree import ProviderTree, compare_trees
from agent.pci.settings import PresentDevices, match_devices
from agent.placement.merge import Merge
from agent.placement.ownership import MergeInputs, foreign_share
from agent.tree.device_providers import Reported, device_providers_of, shrinking
from agent.tree.device_tree import ProviderPlace, put_devices, with_cards
from agent.tree.node_trees import cell_name
from agent.tree.reported_cards import DeviceUse
from tests.support.tracking import guest
from tests.unit.pci import scene

ROOT = ProviderUuid("5f9c2a34-7d1e-4a8b-9c46-0000000000c1")
NODE = "c1"
OBJECTS: tuple[Any, ...] = (
    {"product_id": "1533"},
    {"address": "0000:81:00.0", "traits": "a"},
    {"address": "0000:81:01.0", "one_time_use": True},
    {"product_id": "154c"},
    {"product_id": "154c", "address": "0000:81:02.*", "resource_class": "x"},
    {"product_id": "1572"},
    {"address": "0000:82:03.1", "traits": "b"},
    {"address": "0000:82:03.2", "physical_network": "net"},
    {"address": "0000:81:02.0"},
)
objects = st.lists(st.sampled_from(OBJECTS), max_size=4)
devices = st.sets(st.sampled_from(sorted(scene.host()))).map(sorted)


class World:
    """What Placement has of the node, and what of it is ours."""

    def __init__(self) -> None:
        self.tree, self.journal = ProviderTree().freeze(), Journal()

    def apply(
        self,
        values: Sequence[Any],
        present: Iterable[PciDevice],
        uses: Sequence[DeviceUse] = (),
        *,
        nested: bool = False,
    ) -> None:
        """One pass, without anybody in Placement who uses anything."""
        base = foreign_share(PlacementView(self.tree), self.journal, ROOT, NODE)
        desired = base.copy()
        desired.add_traits(ROOT, "COMPUTE_NODE")
        for cell in (0, 1) if nested else ():
            if not desired.exists(cell_name(NODE, cell)):
                desired.new_child(cell_name(NODE, cell), ROOT)
        place = ProviderPlace(
            self.tree, ROOT, self.journal, "OWNER_NOVA", nested, True, not self.journal.providers
        )
        reported = Reported.of(self.tree, ROOT, desired, base, self.journal)
        part = device_providers_of(
            match_devices(PresentDevices.of(present), scene.specs(*values)), uses, reported, {}
        )
        put_devices(desired, base, part, place)
        by = MergeInputs.of(PlacementView(self.tree), self.journal, base, desired, ROOT)
        if place.take_over:
            by = MergeInputs(
                by.present, with_cards(by.journal, part, place), base, desired, ROOT, by.take_over
            )
        target = Merge(by, ServerCapabilities("http://placement", "1.39"), {}).target()
        assert target.invalid == ()
        self.tree, self.journal = target.tree, target.journal


def used(names: Iterable[str]) -> list[DeviceUse]:
    """Each device is used by a guest of its own."""
    there = scene.host()
    return [
        DeviceUse(
            there[one].address,
            there[one].physical_function or there[one].address,
            ConsumerUuid(guest(one)),
            there[one].numa_node,
        )
        for one in names
    ]


def shape(tree: ProviderTree) -> set[tuple[Any, ...]]:
    """All that a tree says."""
    return {
        (
            one.uuid,
            one.name,
            one.parent_uuid,
            str(sorted(one.inventory.items())),
            frozenset(one.traits),
        )
        for one in tree.providers()
    }


@given(objects, devices, devices, st.booleans())
def test_the_same_once_more_changes_nothing(
    values: list[Any], present: list[str], taken: list[str], nested: bool
) -> None:
    world, there = World(), [scene.host()[one] for one in present]
    world.apply(values, scene.host().values())
    for _ in range(2):
        world.apply(values, there, used(taken), nested=nested)
    before, journal = world.tree, world.journal
    world.apply(values, there, used(taken), nested=nested)
    changes = compare_trees(before, world.tree)
    assert not (
        changes.added
        or changes.removed
        or changes.reparented
        or changes.renamed
        or changes.inventory
        or changes.traits
    )
    assert world.journal == journal


@given(objects, objects, devices, devices, st.booleans(), st.booleans())
def test_whatever_was_before_the_tree_is_as_a_fresh_one(
    earlier: list[Any],
    values: list[Any],
    present: list[str],
    now: list[str],
    was_nested: bool,
    nested: bool,
) -> None:
    """Unless somebody uses something, or one card cannot be told: then the last one stays."""
    there = [scene.host()[one] for one in now]
    fresh, world = World(), World()
    fresh.apply(values, there, nested=nested)
    world.apply(earlier, [scene.host()[one] for one in present], nested=was_nested)
    world.apply(values, there, nested=nested)
    base = foreign_share(PlacementView(fresh.tree), fresh.journal, ROOT, NODE)
    reported = Reported.of(fresh.tree, ROOT, base.copy(), base, fresh.journal)
    part = device_providers_of(
        match_devices(PresentDevices.of(there), scene.specs(*values)), (), reported, {}
    )
    assert shrinking(part, reported) == []
    left = {one for one in shape(world.tree) if one[1] not in part.kept}
    assert left == shape(fresh.tree)


@given(objects, devices.map(lambda names: [one for one in names if not one.startswith("F")]))
def test_nobody_who_has_a_device_loses_its_card(values: list[Any], taken: list[str]) -> None:
    world = World()
    world.apply([{"product_id": "1533"}, {"product_id": "154c"}], scene.host().values())
    world.apply(values, scene.host().values(), used(taken))
    for name, count in Counter(f"{NODE}_{str(one.card).upper()}" for one in used(taken)).items():
        assert (
            sum(int(record["total"]) for record in world.tree.provider(name).inventory.values())
            >= count
        )
