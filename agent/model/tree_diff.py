"""What differs between two provider trees, as sets of uuids."""

from dataclasses import dataclass

from agent.model.inventory import changed
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider, ProviderTree


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """Each field lists providers: structure parents first, ``removed`` and contents children first.

    Parents first, a move never closes a loop: whatever is above the new parent hangs where it belongs already.
    """

    added: tuple[ProviderUuid, ...]
    removed: tuple[ProviderUuid, ...]
    renamed: tuple[ProviderUuid, ...]
    reparented: tuple[ProviderUuid, ...]
    inventory: tuple[ProviderUuid, ...]
    traits: tuple[ProviderUuid, ...]
    aggregates: tuple[ProviderUuid, ...]

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def compare_trees(current: ProviderTree, desired: ProviderTree) -> TreeDifference:
    """What must change in ``current`` to make it ``desired``. A new provider also shows up with its contents."""
    before, after = current.get_provider_uuids(), desired.get_provider_uuids()
    present, wanted = set(before), set(after)
    pairs = [(current.provider(new.uuid) if new.uuid in present else _empty(new), new) for new in desired.providers()]
    different = [(old, new) for old, new in pairs if old is not new]
    children_first = different[::-1]
    return TreeDifference(
        added=tuple(uuid for uuid in after if uuid not in present),
        removed=tuple(uuid for uuid in reversed(before) if uuid not in wanted),
        renamed=tuple(new.uuid for old, new in different if old.name != new.name),
        reparented=tuple(new.uuid for old, new in different if old.parent_uuid != new.parent_uuid),
        inventory=tuple(new.uuid for old, new in children_first if changed(old.inventory, new.inventory)),
        traits=tuple(new.uuid for old, new in children_first if old.traits != new.traits),
        aggregates=tuple(new.uuid for old, new in children_first if old.aggregates != new.aggregates),
    )


def _empty(new: Provider) -> Provider:
    return Provider(new.uuid, new.name, None, new.parent_uuid)
