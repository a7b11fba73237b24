"""What differs between two provider trees, as sets of uuids."""

from dataclasses import dataclass

from agent.model.inventory import changed
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Each field lists providers: ``added`` parents first, ``removed`` children first, the rest children first."""

    added: tuple[ProviderUuid, ...]
    removed: tuple[ProviderUuid, ...]
    renamed: tuple[ProviderUuid, ...]
    reparented: tuple[ProviderUuid, ...]
    inventory: tuple[ProviderUuid, ...]
    traits: tuple[ProviderUuid, ...]
    aggregates: tuple[ProviderUuid, ...]

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def diff(current: ProviderTree, desired: ProviderTree) -> ChangeSet:
    """What must change in ``current`` to make it ``desired``. A new provider also shows up with its contents."""
    before, after = current.get_provider_uuids(), desired.get_provider_uuids()
    present, wanted = set(before), set(after)
    renamed, reparented, inventory, traits, aggregates = [], [], [], [], []
    for uuid in reversed(after):
        new = desired.provider(uuid)
        old = current.provider(uuid) if uuid in present else None
        if old is new:
            continue
        if old is not None and old.name != new.name:
            renamed.append(uuid)
        if old is not None and old.parent_uuid != new.parent_uuid:
            reparented.append(uuid)
        if changed(old.inventory if old else {}, new.inventory):
            inventory.append(uuid)
        if (old.traits if old else frozenset()) != new.traits:
            traits.append(uuid)
        if (old.aggregates if old else frozenset()) != new.aggregates:
            aggregates.append(uuid)
    return ChangeSet(
        added=tuple(uuid for uuid in after if uuid not in present),
        removed=tuple(uuid for uuid in reversed(before) if uuid not in wanted),
        renamed=tuple(renamed),
        reparented=tuple(reparented),
        inventory=tuple(inventory),
        traits=tuple(traits),
        aggregates=tuple(aggregates),
    )
