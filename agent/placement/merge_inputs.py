"""The inputs of a merge, and whose each provider of the desired tree is."""

from dataclasses import dataclass
from typing import Self

from agent.model.journal import Journal
from agent.model.mirror import PlacementView
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The inputs of a merge.

    They tell of each provider of the desired tree whether this pass or an earlier pass of the agent
    wrote it, or somebody else.
    """

    present: ProviderTree
    """What Placement has of the node."""
    journal: Journal
    base: ProviderTree
    """The tree from which the driver made the desired tree."""
    desired: ProviderTree
    root: ProviderUuid
    take_over: bool
    """Whether every provider that the driver wrote is the agent's, as with an empty journal."""

    @classmethod
    def of(
        cls,
        view: PlacementView,
        journal: Journal,
        base: ProviderTree,
        desired: ProviderTree,
        root: ProviderUuid,
        *,
        take_over: bool = False,
    ) -> Self:
        """Build the inputs, with ``present`` taken from ``view``."""
        present = view.tree.subtree(root) if view.tree.exists(root) else ProviderTree()
        return cls(present, journal, base, desired, root, take_over or not journal.owns(root))

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
        :func:`agent.placement.merge.foreign_share` left it, as a parent for providers of others.
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
