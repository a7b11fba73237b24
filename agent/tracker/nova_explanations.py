"""Drift of allocations in the light of what nova's API tells of their consumers: what moves is told
for information, and the remedy of the rest is exact. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agent.model.finding import Drift, DriftKind
from agent.model.names import ConsumerUuid
from agent.model.nova_answers import NovaAnswers, NovaMigration, NovaServer
from agent.tracker import nova_commands
from agent.tracker.nova_commands import guest_name
from agent.tracker.observed_share import DESTROYS_EVACUATED, ObservedShare

KINDS: frozenset[DriftKind] = frozenset(
    {"missing-allocation", "allocation-mismatch", "orphaned-allocation"}
)


def asked_about(drift: Iterable[Drift]) -> frozenset[tuple[DriftKind, ConsumerUuid]]:
    """Return the consumers of drift that nova may explain, each with the kind of its drift."""
    return frozenset(
        (entry.kind, ConsumerUuid(entry.consumer))
        for entry in drift
        if entry.kind in KINDS and entry.consumer is not None
    )


@dataclass(frozen=True, slots=True)
class NovaExplanations:
    """What nova tells of the consumers of one node."""

    answers: NovaAnswers
    share: ObservedShare

    def of(self, drift: Iterable[Drift]) -> Iterator[Drift]:
        """Yield ``drift``, with what nova tells of its consumers; and what nova tells otherwise of
        the guests and consumers of which nothing was found wrong.
        """
        found = list(drift)
        bare = {entry.consumer for entry in found if entry.kind == "missing-allocation"}
        moves = self.share.moves()
        found += [
            self.share.leftover(uuid)
            for guest, uuid in moves.items()
            if not self._moves(guest, uuid)
        ]
        for entry in found:
            uuid = ConsumerUuid(entry.consumer or "")
            if entry.kind not in KINDS:
                yield entry
            elif (server := self.answers.servers.get(uuid)) is not None:
                yield self._of_server(entry, uuid, server)
            elif (migration := self.answers.migrations.get(uuid)) is not None:
                yield self._of_migration(entry, uuid, migration, bare=migration.server in bare)
            elif uuid in self.answers.unknown:
                yield self._of_nothing(entry, uuid)
            else:
                yield entry
        told = {entry.consumer for entry in found}
        for uuid in sorted(self.share.guests.keys() - told):
            yield from self._of_guest(uuid)

    def _moves(self, guest: ConsumerUuid, consumer: ConsumerUuid) -> bool:
        """Return whether ``consumer`` may be the migration with which ``guest`` moves."""
        migration = self.answers.migrations.get(consumer)
        if migration is None:
            return consumer not in self.answers.unknown
        return migration.server == guest and not self._is_leftover(migration)

    def _is_leftover(self, migration: NovaMigration) -> bool:
        """Return whether a migration is over, or died: nova does nothing to its server."""
        server = self.answers.servers.get(migration.server)
        idle = migration.server in self.answers.unknown if server is None else not server.moving
        return migration.over or idle

    def _of_server(self, drift: Drift, uuid: ConsumerUuid, server: NovaServer) -> Drift:
        explained = replace(drift, detail=f"{drift.detail}; {_where(server, self.share.host)}")
        if server.moving:
            show = nova_commands.show(uuid)
            return replace(
                explained, severity="info", remedy=f"wait while nova works on it; else: {show}"
            )
        if drift.kind == "orphaned-allocation":
            return replace(explained, remedy=self._of_stranger(uuid, server))
        if server.host != self.share.host:
            # Every command that mends an allocation would mend that of the other host.
            return replace(explained, severity="warning", remedy=self._of_copy(uuid, server))
        if drift.kind == "missing-allocation":
            # It may have looked like a move, by its allocations alone.
            return replace(explained, severity="warning", remedy=self._healed(uuid))
        return explained

    def _of_copy(self, uuid: ConsumerUuid, server: NovaServer) -> str:
        """Return the remedy of a guest of which nova has the server elsewhere."""
        removed = nova_commands.if_at_rest(uuid, server.host, self.share.removal(uuid))
        return f"{DESTROYS_EVACUATED}; a guest that a move has left behind: {removed}"

    def _healed(self, uuid: ConsumerUuid) -> str:
        """Return how a guest without an allocation here gets one: after what its migration holds is
        given back.
        """
        for migration, known in self.answers.migrations.items():
            if known.server == uuid and migration in self.share.strangers():
                return self._of_dead(migration, known, bare=True)
        return self.share.healed(uuid)

    def _of_stranger(self, uuid: ConsumerUuid, server: NovaServer) -> str:
        """Return the remedy of the allocation of a server that is no guest here."""
        if server.host == self.share.host:
            return (
                f"make the guest anew: openstack server reboot --hard {uuid}; if nobody wants it: "
                f"openstack server delete {uuid}"
            )
        if self.share.is_elsewhere(uuid):
            command = nova_commands.unset(uuid, self.share.holding.of(uuid))
            return nova_commands.if_at_rest(uuid, server.host, command)
        commands = [nova_commands.delete(uuid)]
        if server.host is not None:
            commands.append(nova_commands.heal(uuid))
        return nova_commands.if_at_rest(uuid, server.host, *commands)

    def _of_migration(
        self, drift: Drift, uuid: ConsumerUuid, migration: NovaMigration, *, bare: bool
    ) -> Drift:
        """Return the drift of a migration. ``bare``: its server is here and has no allocation."""
        server = migration.server
        # Before nova-compute on the target has begun there is none.
        way = f"from {migration.source} to {migration.target or 'a host not yet known'}"
        what = f"nova has it as a migration of server {server} {way}, status {migration.status}"
        if not self._is_leftover(migration):
            remedy = f"wait while the move goes on; else: {nova_commands.show(server)}"
            detail = f"{drift.detail}; {what}"
            return replace(drift, severity="info", detail=detail, remedy=remedy)
        if not migration.over:
            known = self.answers.servers.get(server)
            died = "nova knows no such server" if known is None else _where(known, self.share.host)
            what = f"{what}, but the server does not move: {died}"
        remedy = self._of_dead(uuid, migration, bare=bare)
        return replace(drift, severity="warning", detail=f"{drift.detail}; {what}", remedy=remedy)

    def _of_dead(self, uuid: ConsumerUuid, migration: NovaMigration, *, bare: bool) -> str:
        """Return how the allocation of a migration that is over, or died, is given back."""
        server, delete = migration.server, nova_commands.delete(uuid)
        heal = f"; then: {self.share.healed(server)}" if bare else ""
        if migration.over:
            return f"{delete}{heal}"
        if (known := self.answers.servers.get(server)) is None:
            return nova_commands.if_unknown(server, delete)
        return f"{nova_commands.if_at_rest(server, known.host, delete)}{heal}"

    def _of_nothing(self, drift: Drift, uuid: ConsumerUuid) -> Drift:
        if drift.kind == "orphaned-allocation":
            what = "nova knows neither such a server nor such a migration of this host"
            remedy = nova_commands.if_unknown(uuid, nova_commands.delete(uuid))
        else:
            what, remedy = "nova knows no such server", self._of_unknown_guest(uuid)
        return replace(drift, detail=f"{drift.detail}; {what}", remedy=remedy)

    def _of_unknown_guest(self, uuid: ConsumerUuid) -> str:
        guest = self.share.guests[uuid]
        if guest.origin is None and guest.unreadable_origin is None:
            return "see who started the guest: nova did not, and cannot mend its allocation"
        removed = nova_commands.if_unknown(uuid, self.share.removal(uuid))
        return (
            f"{nova_commands.started(uuid)}; if the guest stays, nova has no record of it any "
            f"more, and if nobody wants it: {removed}"
        )

    def _of_guest(self, uuid: ConsumerUuid) -> Iterator[Drift]:
        """Yield the drift of a guest of which the allocation is right, but which nova does not know
        or has elsewhere.
        """
        server = self.answers.servers.get(uuid)
        if uuid in self.answers.unknown:
            what = "nova knows no such server: it was deleted"
            delete = nova_commands.if_unknown(uuid, nova_commands.delete(uuid))
            remedy = f"{self._of_unknown_guest(uuid)}; then: {delete}"
        elif server is not None and server.host != self.share.host and not server.moving:
            what, remedy = _where(server, self.share.host), self._of_copy(uuid, server)
        else:
            return
        guest = guest_name(self.share.guests[uuid])
        detail = f"{guest} is here and has its allocation; {what}"
        yield Drift("unknown-domain", "warning", detail, remedy, consumer=uuid)


def _where(server: NovaServer, here: str) -> str:
    """Return where nova has a server, and its state, for a message."""
    where = "on this host" if server.host == here else f"on host {server.host}"
    where = "on no host" if server.host is None else where
    return f"nova has the server {where}, {server}"
