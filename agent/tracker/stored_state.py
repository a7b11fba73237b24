"""What the store says of those that an operation is about, read in its transaction."""

from dataclasses import dataclass

from agent.model.claim import Claim
from agent.model.devices import DeviceRecord
from agent.model.instance import Instance
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import RecordChanges
from agent.model.unit_record import UnitRecord
from agent.tracker.record_store import RecordReads

NO_CHANGES = RecordChanges()


@dataclass(frozen=True, slots=True)
class OperationTarget:
    """Whom an operation is about, as far as the caller knows. ``hosts``: where the caller says that
    the instance is.
    """

    node: ProviderUuid | None = None
    instance: ConsumerUuid | None = None
    claim: str | None = None
    migration: ConsumerUuid | None = None
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredState:
    """``claim``: the one with the operation's id, released ones too; ``claims``: all open ones of
    the instance, on any node.

    ``devices`` and ``units`` are those that these claims hold. None and empty where the store knows
    nothing. ``strange_hosts``: of the hosts where a record or the caller has the instance those of
    which the store has no node, because they have a store of their own.
    """

    instance: Instance | None = None
    migration: Migration | None = None
    claim: Claim | None = None
    claims: tuple[Claim, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    units: tuple[UnitRecord, ...] = ()
    strange_hosts: frozenset[str] = frozenset()

    @property
    def has_left(self) -> bool:
        """Whether the instance is where no record of this store says more of it: what is known of
        it is what was told last.
        """
        return (
            not self.claims
            and self.instance is not None
            and (self.instance.host is None or self.instance.host in self.strange_hosts)
        )


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What an operation will write, and the claim that it answers with. ``repeated``: it was done
    before, nothing is written.
    """

    claim: Claim
    changes: RecordChanges = NO_CHANGES

    @property
    def repeated(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes


def is_departure(claim: Claim, migration: Migration) -> bool:
    """Whether the claim with a move's id is what the source has of it, because the destination has
    a store of its own.
    """
    return claim.node != migration.dest_node


def read_stored_state(
    reading: RecordReads, subject: OperationTarget, *, held: bool = True
) -> StoredState:
    """What the store says of those whom an operation is about. ``held``: devices and units too."""
    claim = reading.claim(subject.claim) if subject.claim is not None else None
    instance = subject.instance or (claim.instance if claim is not None else None)
    if instance is None:
        return StoredState(claim=claim)
    open_ones = reading.claims_of(instance)
    migration = subject.migration or (
        claim.origin
        if claim is not None
        else next((one.migration for one in open_ones if one.migration), None)
    )
    devices, units = (
        reading.held_by([one.id for one in open_ones]) if held and open_ones else ((), ())
    )
    found = reading.instance(instance)
    # Who has claims here is known here.
    hosts = {
        *subject.hosts,
        *([found.host] if found is not None and found.host is not None and not open_ones else []),
    }
    strange = frozenset(one for one in hosts if not reading.nodes_of(one))
    return StoredState(
        found,
        reading.migration(migration) if migration else None,
        claim,
        open_ones,
        devices,
        units,
        strange,
    )


def places(known: StoredState) -> frozenset[ProviderUuid]:
    """The nodes of the claims."""
    return frozenset(
        one.node for one in (*known.claims, *([known.claim] if known.claim is not None else []))
    )


def concerned(known: StoredState) -> tuple[ProviderUuid, ...]:
    """The nodes to whose records the instance belongs: where it is, and where it is promised
    something.
    """
    here = known.instance.node if known.instance is not None else None
    return (*(one.node for one in known.claims), *([here] if here is not None else []))


def ends(known: StoredState) -> frozenset[ProviderUuid]:
    """Where the move leads from and to, so that one end may repeat what has left it without a
    claim.
    """
    move = known.migration
    return (
        frozenset()
        if move is None
        else frozenset(uuid for uuid in (move.source_node, move.dest_node) if uuid is not None)
    )
