"""What an older layout counts on the root moves to the children that count it now, with what is allocated of it."""

import logging
from collections.abc import Mapping

import os_resource_classes as orc

from agent.desired.encryption_tree import CHILDREN, CLASS
from agent.desired.mdev_policy import MdevPolicy
from agent.driver import Allocations
from agent.errors import ReshapeFailed, ReshapeNeeded
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, printable
from agent.model.provider_tree import ProviderTree

LOG = logging.getLogger(__name__)

Shares = Mapping[str, int]
"""How much goes to each child, by its name."""


def take_over(
    tree: ProviderTree, present: ProviderTree, root: ProviderUuid, facts: HostFacts, policy: MdevPolicy, allocations: Allocations | None
) -> None:
    """Move what ``present`` has on the root, and ``tree`` has not, to the children of ``tree`` that have it instead.

    :raises ReshapeNeeded: something moves, and ``allocations`` is None.
    :raises ReshapeFailed: nobody knows where a consumer's share of it is.
    """
    name = tree.name_of(root)
    sev = CHILDREN["sev"]
    if tree.exists(sev.name(name)):
        tree.remove_traits(root, sev.trait)
    moving = [
        one for one in (orc.VGPU, CLASS)
        if present.exists(root) and one in present.provider(root).inventory and one not in tree.provider(root).inventory and _children(tree, root, one)
    ]  # fmt: skip
    if moving and allocations is None:
        raise ReshapeNeeded(f"{' and '.join(moving)} of {printable(name)} moves from the root to its children")
    for resource_class in moving:
        for consumer, record in sorted((allocations or {}).items()):
            amount = record["allocations"].get(root, {"resources": {}})["resources"].pop(resource_class, 0)
            if not amount:
                continue
            # What was on the root was SEV: the others came when each had a child.
            shares = {sev.name(name): amount} if resource_class == CLASS else _devices(name, consumer, amount, facts, policy)
            for child, share in shares.items():
                _check_share(tree, child, resource_class, consumer, share)
                resources = record["allocations"].setdefault(tree.provider(child).uuid, {"resources": {}})["resources"]
                resources[resource_class] = resources.get(resource_class, 0) + share


def _children(tree: ProviderTree, root: ProviderUuid, resource_class: str) -> bool:
    return any(resource_class in tree.provider(uuid).inventory for uuid in tree.get_provider_uuids(root) if uuid != root)


def _check_share(tree: ProviderTree, child: str, resource_class: str, consumer: str, share: int) -> None:
    """Whether the child can give the consumer so much at once; Placement would refuse it without naming him."""
    record = tree.provider(child).inventory.get(resource_class, {}) if tree.exists(child) else {}
    if share > (most := record.get("max_unit", 0)):
        offers = f"gives a consumer at most {most}" if record else "does not offer any"
        what = f"consumer {consumer} would have {share} {resource_class} of {printable(child)}, which {offers}"
        raise ReshapeFailed(what, "give the host back what it offered before, or move or delete the consumer first", consumer=consumer)


def _devices(root: str, consumer: str, amount: int, facts: HostFacts, policy: MdevPolicy) -> Shares:
    """Where the mediated devices of a consumer are; ``amount`` of them, by the order of their parents."""
    places = [
        parent.provider_name(root) for parent in sorted(facts.mdev or (), key=lambda one: one.name) for device in parent.mdevs
        if device.owner == consumer and (kind := policy.type_of(parent.name)) is not None and kind.resource_class == orc.VGPU and kind.name == device.type
    ]  # fmt: skip
    if len(places) < amount:
        found = f"only {len(places)} of its devices are found" if places else "no guest with devices is known by that name"
        what = f"VGPU of {printable(root)} would move from the root to its parents, but consumer {consumer} has {amount} of it and {found}"
        raise ReshapeFailed(what, "end its move or delete its allocation, and start the agent again", consumer=consumer)
    if len(places) > amount:
        LOG.warning("consumer %s has %d devices but only %d VGPU in Placement: those of the first parents count", consumer, len(places), amount)
    shares: dict[str, int] = {}
    for place in places[:amount]:
        shares[place] = shares.get(place, 0) + 1
    return shares
