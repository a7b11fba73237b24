"""One guest that moves from a host to another, and what both hosts count on the way."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent.model.devices import DeviceRequest
from agent.model.instance import Instance
from agent.model.node_records import Migration, MigrationStatus, MigrationType, RecordChanges
from agent.tracker.moves import confirm, drop_half, finish, revert
from agent.tracker.stored_state import DeviceClaim
from tests.support.tracking import Host, World, guest, uuid_of

ANY_DEVICE = (DeviceRequest("port", 1),)


@dataclass
class Journey:
    """The guest ``name``, from ``source`` to ``dest``."""

    world: World
    source: Host
    dest: Host
    name: str = "i1"

    @property
    def id(self) -> str:
        """The id of its move."""
        return Host.move_id(self.name)

    # --- the steps --------------------------------------------------------------------------------

    def finish(self) -> None:
        """The guest has arrived, as the destination says."""
        self.dest.tracker.change(self.id, finish)

    def confirm(self) -> None:
        """It stays there, as the source says."""
        self.source.tracker.change(self.id, confirm)

    def revert(self) -> None:
        """It goes back, as the destination says."""
        self.dest.update(self.name, task_state="resize_reverting")
        self.dest.tracker.change(self.id, revert)

    def abort(self) -> None:
        """It is given up, as the destination says."""
        self.dest.tracker.abort(self.id)

    def drop(self, host: Host, half: Any) -> None:
        """``host`` gives one half of it back."""
        host.tracker.change(self.id, partial(drop_half, half=half))

    def port(self, host: Host) -> str:
        """Claim a device on ``host`` for the guest; returns the claim's id."""
        id = uuid_of(f"port-of-{self.name}-on-{host.name}")
        host.tracker.claim_devices(
            DeviceClaim(id=id, node=host.node, instance=guest(self.name), devices=ANY_DEVICE)
        )
        return id

    def become(self, **states: Any) -> None:
        """Whatever else writes records writes these of the instance's, without a word to the
        tracker.
        """
        self.write(lambda: RecordChanges(instances=(replace(self.instance, **states),)))

    def migration_becomes(self, status: MigrationStatus) -> None:
        """Whatever else writes records writes how far the move is."""
        self.write(lambda: RecordChanges(migrations=(replace(self.migration, status=status),)))

    def recorded(
        self, name: str, kind: MigrationType, status: MigrationStatus = "accepted", **fields: Any
    ) -> Migration:
        """The record of another move of the guest, which is written without a word to
        the tracker.
        """
        made = Migration(
            uuid=guest(name),
            instance=guest(self.name),
            type=kind,
            status=status,
            source_compute=self.source.name,
            source_node=self.source.node,
            created_at=self.world.time(),
            updated_at=self.world.time(),
            **fields,
        )
        self.write(lambda: RecordChanges(migrations=(made,)))
        return made

    def write(self, changes: Callable[[], RecordChanges]) -> None:
        """Write records as somebody else does."""
        with self.world.records.transaction([self.source.node, self.dest.node]) as transaction:
            transaction.write(changes())

    # --- what there is ----------------------------------------------------------------------------

    @property
    def usages(self) -> tuple[str, str]:
        """What source and destination count; the same when both were audited, and when both were
        started anew.
        """
        found = self.source.usage, self.dest.usage
        for start in (False, True):
            for host in (self.source, self.dest):
                if start:
                    host.restart()
                host.audit(start=start)
            assert (self.source.usage, self.dest.usage) == found
        return found

    @property
    def claims(self) -> set[tuple[str, str, str | None]]:
        """Host, half and flavor of the guest's open claims of room."""
        names = {self.source.node: self.source.name, self.dest.node: self.dest.name}
        return {
            (names[one.node], one.half, one.flavor_id)
            for one in self.dest.claims(self.name)
            if one.purpose != "devices"
        }

    @property
    def instance(self) -> Instance:
        """The record of the guest."""
        found = self.dest.instance(self.name)
        assert found is not None
        return found

    @property
    def place(self) -> tuple[str | None, str | None]:
        """The host and node that own it, by name."""
        names = {self.source.node: self.source.name, self.dest.node: self.dest.name, None: None}
        return self.instance.host, names[self.instance.node]

    @property
    def migration(self) -> Migration:
        """The record of its move."""
        return self.dest.migration(self.name)

    def status(self, name: str) -> MigrationStatus:
        """How far the move of that name is."""
        with self.world.records.reading() as reading:
            found = reading.migration(guest(name))
        assert found is not None
        return found.status

    def holders(self, host: Host) -> dict[str, tuple[str, bool]]:
        """The devices of ``host`` that are held, with their states and whether the
        guest has them.
        """
        mine = {one.id for one in host.claims(self.name)}
        return {
            one.address: (one.state, one.holder in mine)
            for one in host.tracker.view(host.node).devices.values()
            if one.holder is not None
        }
