"""The guests that the hypervisor shows, compared with the records: which guests should not be here,
which are missing, and the import of those that have no record. Pure; each guest is imported
completely or not at all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from agent.model.facts import Domain, DomainState
from agent.model.finding import Drift
from agent.model.instance import BUILT, Instance, PlacedCell, TaskState
from agent.model.names import ConsumerUuid, ProviderUuid, number_of, printable
from agent.model.node_records import Claim, Migration, RecordChanges, RecordedConsumers
from agent.tracker import nova_commands
from agent.tracker.node_drift import offline_cpus, overcommitted, overdrawn_pages, recorded_anew
from agent.tracker.node_state import NodeState, NodeView
from agent.tracker.seen_guest import Refusal, contradictions, records_of
from agent.tracker.stored_state import NO_CHANGES
from agent.tree.reshape.allocation_editor import GuestPlaces


def guest_places(claims: Iterable[Claim], domains: Iterable[Domain]) -> GuestPlaces:
    """Return the cells of each guest. What a moving guest leaves at its source is held by its
    migration.
    """
    cells: dict[ConsumerUuid, tuple[PlacedCell, ...]] = {
        guest.uuid: guest.cells for guest in domains
    }
    moving: dict[ConsumerUuid, ConsumerUuid] = {}
    for claim in sorted(claims, key=lambda claim: claim.half != "old"):
        if claim.purpose == "devices":
            continue
        if claim.half == "old" and claim.migration is not None:
            cells[claim.migration] = claim.cells
            moving[claim.migration] = claim.instance
            # An evacuated instance is the consumer at both ends.
            cells.setdefault(claim.instance, claim.cells)
        else:
            cells[claim.instance] = claim.cells
    return GuestPlaces(cells, moving)


# A hard reboot undefines and defines the domain, and so does the start of a stopped guest; a soft
# reboot may turn into a hard one.
WITHOUT_DOMAIN: frozenset[TaskState] = frozenset(
    {
        "reboot_started",
        "rebooting_hard",
        "reboot_pending_hard",
        "reboot_started_hard",
        "powering-on",
        "restoring",
        "deleting",
        "shelving_offloading",
    }
)
"""Task states in which a guest has no domain for a while, or for good."""

NO_CLAIMS: Mapping[ConsumerUuid, Sequence[Claim]] = {}
Owners = Mapping[ConsumerUuid, Instance]
"""The records of guests that have no claims on this node, by uuid."""


def known_guests(
    claims: Iterable[Claim], instances: Iterable[Instance], migrations: Iterable[Migration]
) -> frozenset[ConsumerUuid]:
    """Return the guests that a node's own records mention."""
    return frozenset(
        {
            *(claim.instance for claim in claims),
            *(instance.uuid for instance in instances),
            *(migration.instance for migration in migrations),
        }
    )


def is_on_other_node(owner: Instance | None, host: str, node: ProviderUuid) -> bool:
    """Return whether a guest is counted on another node of ``host`` than ``node``."""
    return (
        owner is not None
        and not owner.removed
        and owner.host == host
        and owner.node not in (None, node)
    )


def unexpected_guests(
    domains: Sequence[Domain], owners: Owners, taken_at: float
) -> Iterator[Drift]:
    """Yield a drift for each guest that should not be here.

    Skips guests whose record was changed after the facts were taken, at ``taken_at``: a guest that
    is deleted goes from the hypervisor first.
    """
    for guest in domains:
        owner = owners.get(guest.uuid)
        if owner is not None and owner.updated_at > taken_at:
            continue
        doing = "runs here" if guest.state == "running" else f"is {guest.state} here"
        what = f"domain {printable(guest.name)} ({guest.uuid}, {guest.memory_mib} MiB) {doing}"
        if owner is None:
            remedy = "give it a record, or see why it cannot have one: agent guests import"
            yield Drift(
                "unknown-domain",
                "warning",
                f"{what}, and no record knows it",
                remedy,
                consumer=guest.uuid,
            )
        else:
            yield Drift(
                "unknown-domain",
                "warning",
                f"{what}, but its instance is {place_of(owner)}",
                _removed_or_kept(guest, owner),
                consumer=guest.uuid,
            )


def _removed_or_kept(guest: Domain, owner: Instance) -> str:
    """Return the remedy for a guest that the records have elsewhere or nowhere. Two copies of one
    guest write to the same disks, and the agent cannot know which copy is right.
    """
    removal = nova_commands.destroy(guest.uuid, running=guest.state != "stopped")
    return (
        f"if it is to be {place_of(owner)}, remove it from this hypervisor: {removal}; "
        f"if it belongs here: agent guests import --again {guest.uuid}"
    )


def unreadable_origins(domains: Sequence[Domain]) -> Iterator[Drift]:
    """Yield a drift for each guest whose flavor and owner were written down and cannot be read."""
    for guest in domains:
        if guest.unreadable_origin is not None:
            has = f"{guest.memory_mib} MiB"
            if guest.vcpus is not None:
                has = f"{number_of(guest.vcpus, 'CPU')} and {has}"
            yield Drift(
                "unknown-domain",
                "warning",
                f"{printable(guest.unreadable_origin)}; the guest is counted as the hypervisor "
                f"shows it, with {has}",
                f"have nova write it anew: openstack server reboot --hard {guest.uuid}; where nova "
                "does not have the guest, correct the description of the domain, and start the "
                f"guest anew: virsh edit {guest.uuid}",
                consumer=guest.uuid,
            )


def missing_guests(
    claims: Iterable[Claim],
    instances: Mapping[ConsumerUuid, Instance],
    domains: Sequence[Domain],
    taken_at: float,
) -> Iterator[Drift]:
    """Yield a drift for each guest that should be here, running or not, and is not shown.

    Skips guests whose claim was changed after the facts were taken, at ``taken_at``.
    """
    shown = {guest.uuid for guest in domains}
    for claim in (claim for claim in claims if claim.purpose != "devices"):
        known = instances.get(claim.instance)
        if (
            known is None
            or not _has_domain(known, claim)
            or claim.instance in shown
            or claim.updated_at > taken_at
        ):
            continue
        doing = "run here" if known.vm_state == "active" else f"be here ({known.vm_state})"
        what = f"instance {claim.instance} should {doing}, and the hypervisor does not show it"
        remedy = f"bring it back, or if it is gone for good: agent guests forget {claim.instance}"
        yield Drift("missing-domain", "warning", what, remedy, consumer=claim.instance)


def _has_domain(instance: Instance, claim: Claim) -> bool:
    """Return whether the hypervisor keeps a domain of the guest, by its record: the guest was
    built, is not between two places, and its domain is not being replaced.
    """
    # A guest with an old half may have left without the agent having been informed.
    if instance.task_state in WITHOUT_DOMAIN or claim.half == "old":
        return False
    settled = not instance.moving or (
        instance.vm_state == "resized" and claim.half == "new" and instance.task_state is None
    )
    return (
        claim.state == "consumed"
        and instance.node == claim.node
        and instance.vm_state in BUILT
        and settled
    )


def place_of(owner: Instance) -> str:
    """Return where the records have a guest that has nothing on this node."""
    if owner.deleted:
        return "deleted"
    return (
        f"on host {printable(owner.host)}"
        if owner.host is not None
        else f"on no host ({owner.vm_state})"
    )


Outcome = Literal["known", "elsewhere", "importable", "imported", "refused"]

# Of two guests that claim the same resources, the running one has them.
RUNNING_FIRST: Mapping[DomainState, int] = {"running": 0, "paused": 1, "stopped": 2}


@dataclass(frozen=True, slots=True)
class ObservedGuest:
    """One guest that the hypervisor shows."""

    guest: Domain
    outcome: Outcome
    """``known`` to this node's records; ``elsewhere``: in the records of another node of this host.
    """
    claim: str | None = None
    """The id of the claim that the guest has on this node, or would get."""
    refusals: tuple[Refusal, ...] = ()
    """Why the guest is ``refused``."""


@dataclass(frozen=True, slots=True)
class GuestImport:
    """All guests that a node's hypervisor shows, and the records of those that can be imported."""

    guests: tuple[ObservedGuest, ...]
    changes: RecordChanges = NO_CHANGES

    def written(self) -> Self:
        """Return the import once its changes are written."""
        return replace(
            self,
            guests=tuple(
                replace(guest, outcome="imported") if guest.outcome == "importable" else guest
                for guest in self.guests
            ),
        )


def import_guests(
    state: NodeState,
    others: RecordedConsumers,
    now: float,
    again: Mapping[ConsumerUuid, Sequence[Claim]] = NO_CLAIMS,
) -> GuestImport:
    """Return records for the guests that have none. ``others``: the store's records of guests that
    are not in the node's own records. ``again``: guests that get new ones in place of these, with
    their open claims.

    Each guest is tested against what the guests before it have left, so that of two guests that
    contradict each other only one is imported.
    """
    known = known_guests(state.claims.values(), state.instances.values(), state.migrations.values())
    seen: list[ObservedGuest] = []
    changes = NO_CHANGES
    for guest in sorted(
        state.host.guests or (), key=lambda domain: (RUNNING_FIRST[domain.state], domain.uuid)
    ):
        owner = others.instances.get(guest.uuid)
        if guest.uuid in known and (anew := recorded_anew(state, guest, now)) is not None:
            made, refusals = anew
            outcome: Outcome = "refused" if refusals else "importable"
            claim = made.claims[0].id if made.claims else None
            seen.append(ObservedGuest(guest, outcome, claim, refusals))
            state, changes = state.after(made), changes + made
        elif guest.uuid in known:
            claim = next(
                (claim.id for claim in state.claims_of(guest.uuid) if claim.purpose != "devices"),
                None,
            )
            seen.append(ObservedGuest(guest, "known", claim))
        elif is_on_other_node(owner, state.node.host, state.node.uuid):
            seen.append(ObservedGuest(guest, "elsewhere"))
        elif refusals := (
            *_doubts(guest, owner, others, again.get(guest.uuid)),
            *contradictions(state, guest),
        ):
            seen.append(ObservedGuest(guest, "refused", refusals=refusals))
        else:
            made = records_of(state, guest, now)
            if owner is not None:
                # Written over the record that it had.
                (instance,) = made.instances
                made = replace(made, instances=(replace(instance, version=owner.version),))
            seen.append(ObservedGuest(guest, "importable", made.claims[0].id))
            state, changes = state.after(made), changes + made
    return GuestImport(tuple(seen), changes)


def _doubts(
    guest: Domain,
    owner: Instance | None,
    others: RecordedConsumers,
    claims: Sequence[Claim] | None,
) -> Iterator[Refusal]:
    """Yield the records, right or wrong, by which the guest should not be here. ``claims``: its
    open ones, if it is to be recorded again.
    """
    if guest.uuid in others.unreadable:
        yield Refusal(
            "there is a record of it that makes no sense",
            "correct or remove the record in the database, for which the agent has no command; see "
            "it: agent status",
        )
    elif claims and owner is not None:
        yield Refusal(
            f"its instance is {place_of(owner)}, and has a claim there",
            "if it belongs here, end its record there first, at that host's agent: "
            f"agent guests forget {guest.uuid}; if that host is dead, record an evacuation to "
            "here, with its id: agent migrate claim MOVE.json && agent migrate finish ID",
        )
    elif claims is None and owner is not None:
        yield Refusal(f"its instance is {place_of(owner)}", _removed_or_kept(guest, owner))


def with_observed_guests(view: NodeView, now: float) -> NodeView:
    """Return ``view`` with a claim for each guest that the hypervisor shows, and drift for the
    guests that have what others have too, or what the host does not offer. ``now``: seconds since
    the epoch.
    """
    if view.state.host.guests is None:
        return view
    found = import_guests(view.state, RecordedConsumers(), now)
    state = view.state.after(found.changes)
    # All of them, running or not, and whether they are counted or not.
    holders = {
        guest.uuid: (f"{printable(guest.name)} ({guest.uuid})", guest.cells)
        for guest in view.state.host.guests
    }
    drift = [
        Drift(
            "guest-conflict",
            "warning",
            f"{nova_commands.guest_name(seen.guest)}: {refusal.reason}",
            f"{refusal.remedy}; to move it: {nova_commands.migrate(seen.guest.uuid)}",
            consumer=seen.guest.uuid,
        )
        for seen in found.guests
        for refusal in seen.refusals
    ]
    return replace(
        view,
        state=state,
        usage=state.usage,
        drift=(
            *drift,
            *unreadable_origins(view.state.host.guests),
            *overcommitted(state.node, state.host.reserved, state.used),
            *offline_cpus(state.cells, holders, state.node.uuid),
            *overdrawn_pages(state.cells, holders, state.node.uuid, state.node.name),
        ),
    )
