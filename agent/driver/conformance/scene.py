"""The tree that a driver gets on trial: its node, what the agent derives from the facts, and
providers, inventories, traits and aggregates of others.
"""

import uuid
from dataclasses import dataclass

from agent.driver.conformance.trial import DriverTrial, Unanswered
from agent.driver.interface import Allocations
from agent.errors import AgentError
from agent.model.names import ProviderUuid
from agent.model.provider import SHARING_TRAIT, Provider
from agent.model.provider_tree import ProviderTree

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
        root = forest.new_root(node, trial.uuid(node), 1)
        try:
            trial.settings.shape_core(forest, root, facts)
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
