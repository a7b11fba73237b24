"""Drift of allocations in the light of what nova's API tells of their consumers: what moves is told
for information, and the remedy of the rest is exact. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agent.model.names import ConsumerUuid
from agent.model.nova_answers import NovaAnswers, NovaMigration, NovaServer
from agent.model.report import Drift, DriftKind
from agent.tracker import nova_commands
from agent.tracker.observed_share import ObservedShare

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
    host: str
    """The host's name in nova."""
    current: bool = True
    """Nova was asked just now. A server may be elsewhere since it was asked earlier."""

    def of(self, drift: Iterable[Drift]) -> Iterator[Drift]:
        """Yield ``drift``, with what nova tells of its consumers."""
        found = list(drift)
        bare = {entry.consumer for entry in found if entry.kind == "missing-allocation"}
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

    def _of_server(self, drift: Drift, uuid: ConsumerUuid, server: NovaServer) -> Drift:
        where = "on this host" if server.host == self.host else f"on host {server.host}"
        where = "on no host" if server.host is None else where
        explained = replace(drift, detail=f"{drift.detail}; nova has the server {where}, {server}")
        if server.moving:
            show = nova_commands.show(uuid)
            return replace(
                explained, severity="info", remedy=f"none while nova works on it; else: {show}"
            )
        if drift.severity == "info" and server.host == self.host:
            # It looked like a move, by its allocations alone.
            remedy = nova_commands.heal(uuid, force=True)
            return replace(explained, severity="warning", remedy=remedy)
        if drift.kind == "orphaned-allocation":
            return replace(explained, remedy=self._of_stranger(uuid, server))
        if server.host != self.host:
            # Every command that mends an allocation would mend that of the other host.
            remedy = (
                f"{nova_commands.show(uuid)}; nova-compute destroys the guest of an evacuated "
                "server when it starts"
            )
            return replace(explained, remedy=remedy)
        return explained

    def _of_stranger(self, uuid: ConsumerUuid, server: NovaServer) -> str:
        """Return the remedy of the allocation of a server that is no guest here."""
        if server.host == self.host:
            return (
                f"openstack server reboot --hard {uuid} makes the guest anew; if nobody wants it: "
                f"openstack server delete {uuid}"
            )
        look = "" if self.current else f"{nova_commands.show(uuid)}; if that is so still: "
        if self.share.is_elsewhere(uuid):
            return look + nova_commands.unset(uuid, self.share.holding.of(uuid))
        if server.host is None:
            return look + nova_commands.delete(uuid)
        return f"{look}{nova_commands.delete(uuid)}; then: {nova_commands.heal(uuid)}"

    @staticmethod
    def _of_migration(
        drift: Drift, uuid: ConsumerUuid, migration: NovaMigration, *, bare: bool
    ) -> Drift:
        """Return the drift of a migration. ``bare``: its server is here and has no allocation."""
        server = migration.server
        way = f"from {migration.source} to {migration.target}"
        what = f"nova has it as a migration of server {server} {way}, status {migration.status}"
        explained = replace(drift, detail=f"{drift.detail}; {what}")
        if not migration.over:
            show = nova_commands.show(server)
            remedy = f"none while the move goes on; else: {show}"
            return replace(explained, severity="info", remedy=remedy)
        heal = f"; then: {nova_commands.heal(server)}" if bare else ""
        return replace(explained, remedy=f"{nova_commands.delete(uuid)}{heal}")

    @staticmethod
    def _of_nothing(drift: Drift, uuid: ConsumerUuid) -> Drift:
        if drift.kind == "orphaned-allocation":
            what = "nova knows neither such a server nor such a migration of this host"
            remedy = nova_commands.delete(uuid)
        else:
            what = "nova knows no such server"
            remedy = "see who started the guest: nova cannot mend its allocation"
        return replace(drift, detail=f"{drift.detail}; {what}", remedy=remedy)
