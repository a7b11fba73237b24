"""The promises about the tree of a node: how a driver edits a tree with its node, what the agent
derives from the facts, and providers, inventories, traits and aggregates of others.
"""

import uuid
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

from agent.conformance.check import Unanswered, check
from agent.conformance.promises import unknown_class, unknown_trait
from agent.conformance.trial import DriverTrial, ReshapeAsked
from agent.driver.interface import Allocations, ShapesTree, UpdatesProviderTree
from agent.errors import AgentError
from agent.model.inventory import completed, problems
from agent.model.names import MAX_PROVIDER_NAME, ProviderUuid, printable
from agent.model.provider_tree import (
    SHARING_TRAIT,
    DesiredTree,
    PresentTree,
    Provider,
    ProviderTree,
    TargetTree,
    compare_trees,
)
from agent.tree.host_tree import shape_host
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import Policy

_NAMESPACE = uuid.UUID("2b7b5a51-5c1f-4c7c-8d0b-9a7f4f0f6d11")
OTHERS_CLASS = "CUSTOM_CONFORMANCE_OF_OTHERS"
OTHERS_TRAIT = "CUSTOM_CONFORMANCE_TRAIT_OF_OTHERS"
OTHERS_AGGREGATE = str(uuid.uuid5(_NAMESPACE, "aggregate"))
_RECORD = {
    "total": 7,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 7,
    "step_size": 1,
    "allocation_ratio": 1.0,
}
CONSUMER, OTHERS_CONSUMER = (
    str(uuid.uuid5(_NAMESPACE, text)) for text in ("consumer", "consumer of others")
)


@dataclass(frozen=True, slots=True)
class TreeScene:
    """The tree of one node before the driver edits it."""

    tree: ProviderTree
    root: ProviderUuid
    child: ProviderUuid
    """A provider of others below the root."""

    @classmethod
    def of(cls, trial: DriverTrial, node: str) -> "TreeScene":
        """Build the tree of a node.

        :raises Unanswered: the node's facts cannot be used.
        """
        facts = trial.sound_facts(node)
        forest = ProviderTree()
        root = forest.new_root(
            node, next(uuid for uuid, name in trial.listed.items() if name == node), 1
        )
        try:
            trees = NodeTrees(DesiredTree(forest), PresentTree(ProviderTree()), ProviderUuid(root))
            shape_host(trees, facts, Policy.from_options(trial.conf))
        except (AgentError, ValueError) as error:
            raise Unanswered(f"the agent's part of the tree cannot be built: {error}") from error
        child = forest.new_child(
            "conformance_child_of_others", root, str(uuid.uuid5(_NAMESPACE, f"{root} child")), 1
        )
        shared = forest.new_root(
            "conformance_shared_by_others", str(uuid.uuid5(_NAMESPACE, f"{root} shared")), 1
        )
        for provider in (root, child, shared):
            own = forest.provider(provider)
            forest.update_inventory(provider, {**own.inventory, OTHERS_CLASS: _RECORD})
            forest.add_traits(provider, OTHERS_TRAIT)
            forest.add_aggregates(provider, OTHERS_AGGREGATE)
        forest.add_traits(shared, SHARING_TRAIT)
        return cls(forest.scoped(root), root, child)

    def copy(self) -> ProviderTree:
        """Return a copy of the tree, for the driver to edit."""
        return self.tree.copy()


def edited_tree(trial: DriverTrial, node: str) -> tuple[TreeScene, ProviderTree]:
    """Return the tree of a node before and after the driver has edited it.

    :raises Unanswered: the driver failed.
    """
    scene = TreeScene.of(trial, node)
    return scene, trial.edit_tree(node, scene.copy())


def allocations_in(tree: ProviderTree, scene: TreeScene) -> Allocations:
    """Return allocations as Placement's API has them: one consumer with the least amount of every
    class of the node's providers, one with the provider of others.
    """
    held = {
        provider.uuid: {
            "resources": {
                name: int(record.get("min_unit", 1))
                for name, record in provider.inventory.items()
                if record.get("total") and name != OTHERS_CLASS
            }
        }
        for provider in tree.providers()
        if provider.uuid not in tree.read_only and provider.uuid != scene.child
    }
    common = {"project_id": "conformance", "user_id": "conformance", "consumer_generation": 1}
    return {
        CONSUMER: {
            "allocations": {uuid: part for uuid, part in held.items() if part["resources"]},
            **common,
        },
        OTHERS_CONSUMER: {
            "allocations": {scene.child: {"resources": {OTHERS_CLASS: 1}}},
            **common,
        },
    }


def content(provider: Provider) -> tuple[object, ...]:
    """Return what a provider has, for a comparison."""
    return (
        provider.name,
        provider.parent_uuid,
        {name: dict(record) for name, record in provider.inventory.items()},
        frozenset(provider.traits),
        frozenset(provider.aggregates),
    )


EDITORS = ShapesTree | UpdatesProviderTree


def _in_novas_style(trial: DriverTrial) -> bool:
    return isinstance(trial.driver, UpdatesProviderTree)


@check(
    "tree-own",
    "started",
    "edit your own providers, classes and traits: add to the root's, do not replace them",
    each_node=True,
    ability=EDITORS,
)
def _leaves_others_alone(trial: DriverTrial, node: str) -> Iterator[str]:
    """shape() and update_provider_tree() leave alone what others have in the tree"""
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
    if OTHERS_CLASS not in root.inventory and not _in_novas_style(trial):
        yield "an inventory of others was removed from the root"
    yield from _agents_part_lost(scene, root, trial)


def _agents_part_lost(scene: TreeScene, root: Provider, trial: DriverTrial) -> Iterator[str]:
    """Yield the classes that the agent derives from the facts and that the driver removed."""
    if _in_novas_style(trial):
        return
    lost = scene.tree.provider(scene.root).inventory.keys() - root.inventory.keys()
    for name in sorted(lost - {OTHERS_CLASS}):
        yield f"{name}, which the agent derives from the facts, was removed from the root"


@check(
    "tree-valid",
    "started",
    "use standard names or CUSTOM_ ones, and whole amounts with reserved up to total",
    each_node=True,
    ability=EDITORS,
)
def _makes_a_valid_tree(trial: DriverTrial, node: str) -> Iterator[str]:
    """every provider, class, record and trait that the driver makes can be in Placement"""
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


@check(
    "tree-again",
    "started",
    "ask exists() before new_child(), and set amounts instead of adding to them",
    each_node=True,
    ability=EDITORS,
)
def _changes_nothing_again(trial: DriverTrial, node: str) -> Iterator[str]:
    """a second call on the edited tree changes nothing"""
    _scene, once = edited_tree(trial, node)
    again = once.copy()
    if fault := trial.edit_fault(node, again):
        yield f"the second call: {fault}"
    else:
        yield from _differences(once, again, "the second call")


@check(
    "tree-allocations",
    "started",
    "raise ReshapeNeeded, and edit allocations, only if allocated inventory has to move",
    each_node=True,
    ability=EDITORS,
)
def _keeps_allocations(trial: DriverTrial, node: str) -> Iterator[str]:
    """allocations of inventory that does not move stay as they are"""
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
        for provider in uuids:
            tree = after if after.exists(provider) else before
            yield f"{when} {what} provider {printable(tree.name_of(provider))}"


@check(
    "shape-pure",
    "started",
    "take everything from the facts that shape() gets, and nothing from the driver itself",
    each_node=True,
    ability=ShapesTree,
)
def _shapes_from_facts_alone(trial: DriverTrial, node: str) -> Iterator[str]:
    """shape() makes the same tree from the same facts"""
    scene = TreeScene.of(trial, node)
    first, second = (trial.edit_tree(node, scene.copy()) for _ in range(2))
    yield from _differences(first, second, "from the same facts a second shape()")
