"""Checks of how a driver edits the tree of a node."""

from collections.abc import Iterator
from copy import deepcopy

from agent.driver.conformance.check import ConformanceCheck
from agent.driver.conformance.io_watch import watch_io
from agent.driver.conformance.known_names import unknown_class, unknown_trait
from agent.driver.conformance.scene import (
    OTHERS_AGGREGATE,
    OTHERS_CLASS,
    OTHERS_TRAIT,
    TreeScene,
    allocations_in,
    content,
    edited_tree,
)
from agent.driver.conformance.trial import DriverTrial, ReshapeAsked
from agent.driver.interface import ShapesTree, UpdatesProviderTree
from agent.model.inventory import completed, problems
from agent.model.names import MAX_PROVIDER_NAME, printable
from agent.model.provider import Provider
from agent.model.provider_tree import (
    PresentTree,
    ProviderTree,
    TargetTree,
    compare_trees,
)

EDITORS = ShapesTree | UpdatesProviderTree


def _leaves_others_alone(trial: DriverTrial, node: str) -> Iterator[str]:
    scene, after = edited_tree(trial, node)
    if not after.exists(scene.root) or after.name_of(scene.root) != node:
        yield "the root was removed or renamed"
        return
    before, root = scene.tree.provider(scene.child), after.provider(scene.root)
    if not after.exists(scene.child):
        yield "a child of others was removed"
    elif content(after.provider(scene.child)) != content(before):
        yield "a child of others was changed"
    if OTHERS_TRAIT not in root.traits:
        yield "a trait of others was removed from the root"
    if OTHERS_AGGREGATE not in root.aggregates:
        yield "an aggregate of others was removed from the root"
    if OTHERS_CLASS not in root.inventory and not isinstance(trial.driver, UpdatesProviderTree):
        yield "an inventory of others was removed from the root"
    yield from _agents_part_lost(scene, root, trial)


def _agents_part_lost(scene: TreeScene, root: Provider, trial: DriverTrial) -> Iterator[str]:
    """Yield the classes that the agent derives from the facts and that the driver removed."""
    if isinstance(trial.driver, UpdatesProviderTree):
        return
    lost = scene.tree.provider(scene.root).inventory.keys() - root.inventory.keys()
    for name in sorted(lost - {OTHERS_CLASS}):
        yield f"{name}, which the agent derives from the facts, was removed from the root"


def _makes_a_valid_tree(trial: DriverTrial, node: str) -> Iterator[str]:
    scene, after = edited_tree(trial, node)
    for provider in after.providers():
        before = scene.tree.provider(provider.uuid) if scene.tree.exists(provider.uuid) else None
        if before is None or content(before) != content(provider):
            name = printable(provider.name[:60])
            for text in _invalid_parts(provider, before):
                yield f"provider {name}: {text}"


def _invalid_parts(provider: Provider, before: Provider | None) -> Iterator[str]:
    """Yield what of a provider cannot be in Placement, except what it had ``before``."""
    wrong = len(provider.name) > MAX_PROVIDER_NAME or printable(provider.name) != provider.name
    if wrong and (before is None or before.name != provider.name):
        yield "Placement cannot take the name"
    for resource_class, record in provider.inventory.items():
        if text := unknown_class(resource_class):
            yield text
        # The agent leaves out a class of total 0, because Placement refuses it.
        elif record.get("total") != 0:
            yield from map(printable, problems(resource_class, completed(record)))
    new_traits = provider.traits - (before.traits if before is not None else frozenset())
    yield from filter(None, map(unknown_trait, sorted(new_traits)))


def _changes_nothing_again(trial: DriverTrial, node: str) -> Iterator[str]:
    _scene, once = edited_tree(trial, node)
    again = once.copy()
    if fault := trial.edit_fault(node, again):
        yield f"the second call: {fault}"
    else:
        yield from _differences(once, again, "the second call")


def _keeps_allocations(trial: DriverTrial, node: str) -> Iterator[str]:
    scene = TreeScene.of(trial, node)
    try:
        tree = trial.edit_tree(node, scene.copy())
    except ReshapeAsked:
        yield "ReshapeNeeded was raised although nothing of the node is in Placement yet"
        return
    allocations = allocations_in(tree, scene)
    given = deepcopy(allocations)
    try:
        after = trial.edit_tree(node, tree.copy(), given)
    except ReshapeAsked:
        yield "ReshapeNeeded was raised although the allocations were given"
        return
    if given != allocations:
        yield "allocations were changed although no inventory moved"
    yield from _differences(tree, after, "with allocations")


def _differences(before: ProviderTree, after: ProviderTree, when: str) -> Iterator[str]:
    """Yield what is different in ``after``, one text for each kind of change."""
    difference = compare_trees(PresentTree(before), TargetTree(after))
    for what, uuids in (
        ("adds", difference.added),
        ("removes", difference.removed),
        ("renames", difference.renamed),
        ("moves", difference.reparented),
        ("changes the inventory of", difference.inventory),
        ("changes the traits of", difference.traits),
        ("changes the aggregates of", difference.aggregates),
    ):
        for uuid in uuids:
            tree = after if after.exists(uuid) else before
            yield f"{when} {what} provider {printable(tree.name_of(uuid))}"


def _shapes_from_facts_alone(trial: DriverTrial, node: str) -> Iterator[str]:
    scene = TreeScene.of(trial, node)
    first, second = (trial.edit_tree(node, scene.copy()) for _ in range(2))
    yield from _differences(first, second, "from the same facts a second shape()")


def _shapes_without_io(trial: DriverTrial, node: str) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, ShapesTree)
    scene, facts = TreeScene.of(trial, node), trial.sound_facts(node)
    trial.edit_tree(node, scene.copy())
    _none, events = trial.call(
        "shape", watch_io, driver.shape, scene.copy(), facts, None, node=node
    )
    yield from (f"shape() does I/O: {printable(event)}" for _name, event, _writes in events[:1])


CHECKS = (
    ConformanceCheck(
        "tree-own",
        "shape() and update_provider_tree() leave alone what others have in the tree",
        "edit your own providers, classes and traits: add to the root's, do not replace them",
        node=_leaves_others_alone,
        ability=EDITORS,
    ),
    ConformanceCheck(
        "tree-valid",
        "every provider, class, record and trait that the driver makes can be in Placement",
        "use standard names or CUSTOM_ ones, and whole amounts with reserved up to total",
        node=_makes_a_valid_tree,
        ability=EDITORS,
    ),
    ConformanceCheck(
        "tree-again",
        "a second call on the edited tree changes nothing",
        "ask exists() before new_child(), and set amounts instead of adding to them",
        node=_changes_nothing_again,
        ability=EDITORS,
    ),
    ConformanceCheck(
        "tree-allocations",
        "allocations of inventory that does not move stay as they are",
        "raise ReshapeNeeded, and edit allocations, only if allocated inventory has to move",
        node=_keeps_allocations,
        ability=EDITORS,
    ),
    ConformanceCheck(
        "shape-pure",
        "shape() makes the same tree from the same facts",
        "take everything from the facts that shape() gets, and nothing from the driver itself",
        node=_shapes_from_facts_alone,
        ability=ShapesTree,
    ),
    ConformanceCheck(
        "shape-io",
        "shape() does no I/O",
        "read in facts(), into a subclass of HostFacts, what shape() needs",
        node=_shapes_without_io,
        ability=ShapesTree,
    ),
)
