"""The difference of two provider trees."""

from dataclasses import dataclass

from agent.model.inventory import changed
from agent.model.names import ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """The difference of two trees, as providers by kind of change.

    Structural changes list parents first, so that a move never closes a loop: the ancestors of the
    new parent are in their place already. ``removed`` and the contents list children first.
    """

    added: tuple[ProviderUuid, ...]
    removed: tuple[ProviderUuid, ...]
    renamed: tuple[ProviderUuid, ...]
    reparented: tuple[ProviderUuid, ...]
    inventory: tuple[ProviderUuid, ...]
    traits: tuple[ProviderUuid, ...]
    aggregates: tuple[ProviderUuid, ...]

    def __bool__(self) -> bool:
        return bool(
            self.added
            or self.removed
            or self.renamed
            or self.reparented
            or self.inventory
            or self.traits
            or self.aggregates
        )


def compare_trees(current: ProviderTree, desired: ProviderTree) -> TreeDifference:
    """Return what must change in ``current`` to make it ``desired``.

    The contents of a new provider are listed too.
    """
    before, after = current.get_provider_uuids(), desired.get_provider_uuids()
    present, wanted = set(before), set(after)
    pairs = [
        (current.provider(new.uuid) if new.uuid in present else _empty(new), new)
        for new in desired.providers()
    ]
    different = [(old, new) for old, new in pairs if old is not new]
    children_first = different[::-1]
    return TreeDifference(
        added=tuple(uuid for uuid in after if uuid not in present),
        removed=tuple(uuid for uuid in reversed(before) if uuid not in wanted),
        renamed=tuple(new.uuid for old, new in different if old.name != new.name),
        reparented=tuple(new.uuid for old, new in different if old.parent_uuid != new.parent_uuid),
        inventory=tuple(
            new.uuid for old, new in children_first if changed(old.inventory, new.inventory)
        ),
        traits=tuple(new.uuid for old, new in children_first if old.traits != new.traits),
        aggregates=tuple(
            new.uuid for old, new in children_first if old.aggregates != new.aggregates
        ),
    )


def _empty(new: Provider) -> Provider:
    return Provider(new.uuid, new.name, None, new.parent_uuid)
