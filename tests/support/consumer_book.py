"""Records as a test writes them down, for the reconciliation of allocations."""

import uuid
from collections.abc import Collection
from typing import Any

from agent.model.amounts import Amounts
from agent.model.claim import Claim
from agent.model.flavor import Flavor
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.consumer_book import ConsumerRecords

HOST = "host-1"
FLAVOR = Flavor("f1", "F1", vcpus=1, memory_mb=2048, root_gb=20)


class Book:
    """Instances, migrations and claims; ``new``: the node's record was made in this pass; ``asked``: how often it was read."""

    def __init__(self, node: str, host: str = HOST) -> None:
        self.node, self.host = ProviderUuid(node), host
        self.instances: dict[ConsumerUuid, Instance] = {}
        self.migrations: dict[ConsumerUuid, Migration] = {}
        self.claims: list[Claim] = []
        self.new = False
        self.asked = 0

    def needed(self, node: ProviderUuid, *, purging: bool) -> bool:
        return not self.new and node == self.node and bool(purging or self.instances or self.migrations or self.claims)

    def records(self, node: ProviderUuid, consumers: Collection[ConsumerUuid]) -> ConsumerRecords:
        self.asked += 1
        wanted = {*consumers, *(one.instance for one in self.claims)}
        return ConsumerRecords(
            host=self.host,
            instances={one: known for one, known in self.instances.items() if one in wanted},
            migrations={one: known for one, known in self.migrations.items() if one in wanted or known.instance in wanted},
            claims=tuple(self.claims),
        )

    def instance(self, uuid: str, **changes: Any) -> None:
        """An instance on this host and node, unless told otherwise."""
        known = {"host": self.host, "node": self.node, "vm_state": "active", **changes}
        self.instances[ConsumerUuid(uuid)] = instance(uuid, **known)

    def tracked(self, uuid: str, **changes: Any) -> None:
        """An instance that is here, with its claim."""
        self.instance(uuid)
        self.claims.append(claim(uuid, self.node, **changes))

    def migration(self, uuid: str, instance: str, **changes: Any) -> None:
        """A migration that leads away from here, unless told otherwise."""
        known = {"type": "migration", "status": "running", "source_compute": self.host, "source_node": self.node, **changes}
        self.migrations[ConsumerUuid(uuid)] = Migration(uuid=ConsumerUuid(uuid), instance=ConsumerUuid(instance), **known)


def instance(uuid: str, **changes: Any) -> Instance:
    return Instance(**{"uuid": ConsumerUuid(uuid), "project_id": "p", "user_id": "u", "flavor": FLAVOR, **changes})


def claim(instance: str, node: str, **changes: Any) -> Claim:
    known: dict[str, Any] = {"purpose": "instance", "state": "consumed", "amounts": Amounts(memory_mb=2048, vcpus=1, disk_mb=20480), **changes}
    return Claim(id=str(uuid.uuid4()), instance=ConsumerUuid(instance), node=ProviderUuid(node), **known)
