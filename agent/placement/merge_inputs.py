"""The inputs of a merge: whose each provider and class of the desired tree is; and the findings of
a merge: problems and drift.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import os_resource_classes as orc

from agent.errors import ProviderNameConflict
from agent.model.allocation import Resources
from agent.model.inventory import Inventories
from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.names import (
    AGENT_MARK,
    ConsumerUuid,
    ProviderUuid,
    child_role,
    child_uuid,
    is_custom,
    name_first,
    printable,
)
from agent.model.provider import Provider
from agent.model.provider_tree import BaseTree, DesiredTree, PresentTree, ProviderTree
from agent.model.report import Drift

# The standard classes that are the node's own in its tree, written by nova or by the agent; other
# services write their own classes on providers of the tree.
NODES_OWN = frozenset(
    {orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB, orc.VGPU, orc.MEM_ENCRYPTION_CONTEXT}
)
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"
# How many of others' things on a provider a message names.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The inputs of a merge.

    They tell of each provider of the desired tree whether this pass or an earlier pass of the agent
    wrote it, or somebody else.
    """

    present: PresentTree
    """What Placement has of the node."""
    journal: Journal
    base: BaseTree
    """The tree from which the driver made the desired tree."""
    desired: DesiredTree
    root: ProviderUuid
    take_over: bool
    """Whether every provider that the driver wrote is the agent's, as with an empty journal."""
    keeps_foreign: bool = False
    """Whether a provider that the node no longer has stays while others have something on it: a
    source that was empty once must not lose what only they can write again.
    """
    gives_back: bool = False
    """Whether standard traits of others keep it too: nova writes such traits on its providers, and
    they go with what they describe as long as the agent manages the tree.
    """

    @classmethod
    def of(
        cls,
        view: PlacementView,
        journal: Journal,
        base: BaseTree,
        desired: DesiredTree,
        root: ProviderUuid,
        *,
        take_over: bool = False,
    ) -> Self:
        """Build the inputs, with ``present`` taken from ``view``."""
        return cls(
            view.subtree(root), journal, base, desired, root, take_over or not journal.owns(root)
        )

    def is_changed(self, uuid: ProviderUuid) -> bool:
        """Return whether this pass changed or created the provider."""
        if not self.desired.exists(uuid):
            return False
        return not self.base.exists(uuid) or self.desired.provider(uuid) != self.base.provider(uuid)

    def is_written(self, uuid: ProviderUuid) -> bool:
        """Return whether this pass wrote the provider, perhaps without changing it."""
        return self.is_changed(uuid) or uuid in self.desired.written_by_name

    def is_desired(self, uuid: ProviderUuid) -> bool:
        """Return whether the desired tree wants the provider, and does not only contain it as
        :func:`foreign_share` left it, as a parent for providers of others.
        """
        if not self.desired.exists(uuid) or uuid == self.root or not self.journal.owns(uuid):
            return self.desired.exists(uuid)
        emptied = (
            self.base.exists(uuid)
            and self.present.exists(uuid)
            and self.base.provider(uuid) != self.present.provider(uuid)
        )
        return not emptied or self.is_written(uuid)

    def is_own(self, uuid: ProviderUuid) -> bool:
        """Return whether the provider is the agent's to write."""
        if uuid == self.root or self.journal.owns(uuid) or not self.present.exists(uuid):
            return True
        return self.take_over and self.is_written(uuid)

    def kept_for_others(self, uuid: ProviderUuid) -> Sequence[str]:
        """Return what others have on a present provider, which the node no longer has and which
        stays for that; empty if it goes.
        """
        if not self.keeps_foreign:
            return ()
        present, own = self.present.provider(uuid), self.journal.of(uuid)
        traits = (
            trait
            for trait in present.traits - own.traits
            if self.gives_back or (is_custom(trait) and not trait.startswith(AGENT_MARK))
        )
        return [
            *sorted(foreign_inventory(present, own, adopted=True)),
            *sorted(traits),
            *(f"aggregate {uuid}" for uuid in sorted(present.aggregates - own.aggregates)),
        ]


def foreign_inventory(present: Provider, own: Ownership, adopted: bool) -> Inventories:
    """Return the classes of others: those that are not in the journal; in an adopted tree without
    the classes that only a node has.
    """
    return {
        name: record
        for name, record in present.inventory.items()
        if name not in own.classes and (name not in NODES_OWN or not adopted)
    }


def foreign_share(view: PlacementView, journal: Journal, root: ProviderUuid, name: str) -> BaseTree:
    """Return the tree that a shaping driver starts from: without the agent's contents, with those
    of others.

    Children of the agent that have foreign children stay, without contents, as their parents.
    """
    if not view.tree.exists(root):
        tree = BaseTree(ProviderTree())
        tree.new_root(name, root)
        return tree
    tree = BaseTree(view.tree.scoped(root))
    for uuid in reversed(tree.get_provider_uuids(root)):
        if not journal.owns(uuid) and uuid != root:
            continue
        if uuid != root and not tree.children(uuid):
            tree.remove(uuid)
            continue
        present, own = tree.provider(uuid), journal.of(uuid)
        tree.replace(
            replace(
                present,
                inventory=foreign_inventory(present, own, adopted=True),
                traits=present.traits - own.traits,
                aggregates=present.aggregates - own.aggregates,
            )
        )
    return tree


ADOPT = "agent --once --adopt takes the tree over"


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of one class: the allocated amount, and to whom."""

    amount: int
    shares: Mapping[ConsumerUuid, int] = field(default_factory=dict)

    @property
    def consumers(self) -> tuple[ConsumerUuid, ...]:
        """Who uses it, if that is known."""
        return tuple(self.shares)

    def __str__(self) -> str:
        to = f" to {name_first(self.consumers, SHOWN)}" if self.consumers else ""
        return f"{self.amount} of it are allocated{to}"

    def ending(self, provider: ProviderUuid, name: str) -> str:
        """Return how what is used of the class ``name`` of ``provider`` becomes free."""
        if not self.shares:
            return "move or delete its consumers"
        first = [*self.shares.items()][:SHOWN]
        given_back = " && ".join(
            f"agent allocation remove {consumer} {provider} {name}={amount}"
            for consumer, amount in first
        )
        more = ", and so with the others" if len(self.shares) > SHOWN else ""
        return f"move its consumers away; if they go on without it: {given_back}{more}"


Usages = Mapping[ProviderUuid, Mapping[str, Use]]


def uses_of(holders: Mapping[ConsumerUuid, Resources]) -> dict[str, Use]:
    """Return how much of each class the consumers of one provider use."""
    shares: dict[str, dict[ConsumerUuid, int]] = {}
    for consumer, resources in sorted(holders.items()):
        for name, amount in resources.items():
            shares.setdefault(name, {})[consumer] = amount
    return {name: Use(sum(held.values()), held) for name, held in shares.items()}


@dataclass(frozen=True, slots=True)
class MergeFindings:
    """The findings of one merge, in the order in which they are reported."""

    drift: list[Drift] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """What of the desired tree is set aside, and why."""
    conflicts: list[ProviderNameConflict] = field(default_factory=list)
    """Children that cannot be created because providers of others have their names."""

    def add_adoption_needed(self, provider: Provider, why: str) -> None:
        """Add drift for a change that is not made because the tree is not adopted."""
        self.drift.append(
            Drift(
                "adoption-needed",
                "warning",
                f"{printable(provider.name)}: {why}, but the tree is not adopted",
                ADOPT,
                provider.uuid,
            )
        )

    def add_held(
        self,
        provider: Provider,
        name: str,
        use: Use,
        *,
        foreign: bool,
        configured: bool,
    ) -> None:
        """Add drift for a class that is gone from the node and still used.

        :param foreign: whether the class is somebody else's.
        :param configured: whether the class came from a provider config file.
        """
        gone = (
            f"the node does not have it any more, but it stays because {name} is somebody else's"
            if foreign
            else f"no file gives it {name} any more"
            if configured
            else f"{name} is gone from the node"
        )
        self.drift.append(
            Drift(
                "held-device",
                "warning",
                f"{printable(provider.name)}: {gone} {'and' if foreign else 'but'} {use}",
                use.ending(provider.uuid, name)
                + ("" if foreign else "; until then nothing new can claim it"),
                provider.uuid,
                use.consumers[0] if len(use.consumers) == 1 else None,
            )
        )

    def add_kept(self, provider: Provider, others: Sequence[str]) -> None:
        """Add drift for a provider that the node no longer has and that stays, without contents of
        the agent, for what others have on it.
        """
        name = printable(provider.name)
        self.drift.append(
            Drift(
                "held-device",
                "warning",
                f"{name}: the node does not have it any more, but somebody else gave it "
                f"{name_first(others, SHOWN)}; it stays for that, and offers nothing of the agent",
                f"if it does not come back: openstack resource provider delete {provider.uuid}",
                provider.uuid,
            )
        )

    def add_foreign(self, provider: Provider, *, removed: bool, changed: bool) -> None:
        """Add drift for a provider of somebody else.

        :param removed: whether the driver removed it.
        :param changed: whether the driver changed it.
        """
        name = printable(provider.name)
        what, remedy = (
            (f"the driver wanted to remove {name}, which is somebody else's", "none; it stays")
            if removed
            else (f"the driver wanted to change {name}, which is somebody else's", ADOPT)
            if changed
            else (f"{name} was put there by somebody else", "none; it stays as it is")
        )
        self.drift.append(
            Drift(
                "foreign-provider",
                "warning" if changed and not removed else "info",
                what,
                remedy,
                provider.uuid,
            )
        )

    def add_name_conflict(self, missing: ProviderUuid, holder: Provider, root: Provider) -> None:
        """Add the conflict for a child of the agent whose name is held by ``holder``."""
        self.conflicts.append(
            ProviderNameConflict(
                (
                    f"the name {printable(holder.name)!r} of provider {missing} is held by "
                    f"provider {holder.uuid} in Placement, which is somebody else's"
                ),
                # A driver that chooses the uuids of its children cannot use a provider with
                # another uuid.
                f"{ADOPT}, that provider too; or delete or rename it"
                if missing == child_uuid(root.uuid, child_role(holder.name, root.name))
                else "delete or rename that provider",
                holder=holder.uuid,
                uuid=missing,
            )
        )
