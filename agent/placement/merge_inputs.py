"""Who is behind the providers of a wish."""

from dataclasses import dataclass
from typing import Self

from agent.model.journal import Journal
from agent.model.mirror import PlacementView
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """Who is behind each provider of a wish: this pass, an earlier one of ours, or somebody else.

    ``base`` is what the wish was made from, ``present`` what Placement has of the node.
    ``take_over``: what the wish names is ours, as it is whenever the journal is empty.
    """

    present: ProviderTree
    journal: Journal
    base: ProviderTree
    desired: ProviderTree
    root: ProviderUuid
    take_over: bool

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
        """The same with what ``view`` has of the node."""
        present = view.tree.subtree(root) if view.tree.exists(root) else ProviderTree()
        return cls(present, journal, base, desired, root, take_over or not journal.owns(root))

    def touched(self, uuid: ProviderUuid) -> bool:
        """Whether this pass made something else of the provider than there was."""
        if not self.desired.exists(uuid):
            return False
        return not self.base.exists(uuid) or self.desired.provider(uuid) != self.base.provider(uuid)

    def produced(self, uuid: ProviderUuid) -> bool:
        """Whether this pass made the provider, perhaps just as it was there."""
        return self.touched(uuid) or uuid in self.desired.written_by_name

    def wished(self, uuid: ProviderUuid) -> bool:
        """Whether the wish has the provider, and not only as what
        :func:`agent.placement.merge.foreign_share` left of it for others to hang from.
        """
        if not self.desired.exists(uuid) or uuid == self.root or not self.journal.owns(uuid):
            return self.desired.exists(uuid)
        emptied = (
            self.base.exists(uuid)
            and self.present.exists(uuid)
            and self.base.provider(uuid) != self.present.provider(uuid)
        )
        return not emptied or self.produced(uuid)

    def ours(self, uuid: ProviderUuid) -> bool:
        """Whether the provider is the agent's to write."""
        if uuid == self.root or self.journal.owns(uuid) or not self.present.exists(uuid):
            return True
        return self.take_over and self.produced(uuid)
