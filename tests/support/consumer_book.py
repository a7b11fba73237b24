"""Records as a test writes them down, past the tracker's operations: any state that
there may be.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import delete

from agent.model.instance import Amounts, Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Half, Migration, RecordChanges
from agent.placement import clock
from agent.store.records import Records, Transaction
from agent.store.store import open_store
from agent.store.tables import INSTANCE

HOST = "host-1"
FLAVOR = Flavor("f1", "F1", vcpus=1, memory_mb=2048, root_gb=20)


class Book:
    """Writes into the store in ``folder``, whether its agent runs or not; ``node`` is the one of
    this host.
    """

    def __init__(self, folder: Path, node: str, host: str = HOST) -> None:
        self.folder, self.node, self.host = folder, ProviderUuid(node), host

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with (
            open_store(self.folder) as store,
            Records(store).transaction([self.node]) as transaction,
        ):
            yield transaction

    def instance(self, uuid: str, **changes: Any) -> None:
        """An instance on this host and node, unless told otherwise."""
        wanted = instance(
            uuid, **{"host": self.host, "node": self.node, "vm_state": "active", **changes}
        )
        with self._transaction() as transaction:
            known = transaction.instance(wanted.uuid)
            transaction.write(
                RecordChanges(instances=(replace(wanted, version=known.version if known else 0),))
            )

    def migration(self, uuid: str, instance: str, **changes: Any) -> None:
        """A migration that leads away from here, unless told otherwise. One that there is changes.
        Its instance is somewhere else if unknown.
        """
        with self._transaction() as transaction:
            known = transaction.migration(ConsumerUuid(uuid)) or Migration(
                uuid=ConsumerUuid(uuid),
                instance=ConsumerUuid(instance),
                type="migration",
                status="running",
                source_compute=self.host,
                source_node=self.node,
                updated_at=clock.now(),
            )
            guest = (
                ()
                if transaction.instance(ConsumerUuid(instance))
                else (stranger(instance, host="elsewhere"),)
            )
            transaction.write(
                RecordChanges(instances=guest, migrations=(replace(known, **changes),))
            )

    def claim(self, instance: str, **changes: Any) -> None:
        """A claim on this node."""
        with self._transaction() as transaction:
            transaction.write(RecordChanges(claims=(claim(instance, self.node, **changes),)))

    def tracked(self, uuid: str, **changes: Any) -> None:
        """An instance that is here, with its claim."""
        self.instance(uuid)
        self.claim(uuid, **changes)

    def release(self, instance: str, half: Half = "only") -> None:
        """End a claim."""
        with self._transaction() as transaction:
            claims = [
                one for one in transaction.claims_of(ConsumerUuid(instance)) if one.half == half
            ]
            transaction.write(
                RecordChanges(claims=tuple(replace(one, state="released") for one in claims))
            )

    def forget(self, instance: str) -> None:
        """Have no record of an instance, as after somebody purged the database."""
        with open_store(self.folder) as store, store.writing() as connection:
            connection.execute(delete(INSTANCE).where(INSTANCE.c.uuid == instance))


def instance(uuid: str, **changes: Any) -> Instance:
    """As if written just now: what ended long ago is removed."""
    return Instance(
        **{
            "updated_at": clock.now(),
            "uuid": ConsumerUuid(uuid),
            "project_id": "p",
            "user_id": "u",
            "flavor": FLAVOR,
            **changes,
        }
    )


stranger = instance


def claim(instance: str, node: str, **changes: Any) -> Claim:
    amounts = Amounts(memory_mb=2048, vcpus=1, disk_mb=20480)
    known: dict[str, Any] = {
        "purpose": "instance",
        "state": "consumed",
        "updated_at": clock.now(),
        "amounts": amounts,
        **changes,
    }
    return Claim(
        id=str(uuid.uuid4()), instance=ConsumerUuid(instance), node=ProviderUuid(node), **known
    )
