"""What the records say of some consumers of allocations."""

from dataclasses import dataclass

from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid


@dataclass(frozen=True, slots=True)
class Consumers:
    """``instances`` among the consumers asked for, deleted ones too; ``migrations`` among them, and every one of these instances,
    ended ones too; ``unreadable``: those of which there is a record that makes no sense.
    """

    instances: tuple[Instance, ...] = ()
    migrations: tuple[Migration, ...] = ()
    unreadable: frozenset[ConsumerUuid] = frozenset()
