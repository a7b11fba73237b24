"""What the records say of some consumers of allocations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid


@dataclass(frozen=True, slots=True)
class RecordedConsumers:
    """``instances`` among the consumers asked for, deleted ones too; ``migrations`` among them, and every one of these instances,
    ended ones too; ``unreadable``: those of which there is a record that makes no sense.
    """

    instances: Mapping[ConsumerUuid, Instance] = field(default_factory=dict)
    migrations: Mapping[ConsumerUuid, Migration] = field(default_factory=dict)
    unreadable: frozenset[ConsumerUuid] = frozenset()
