"""Import of guests that the hypervisor shows and that have no record. Pure; each guest is imported
completely or not at all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from agent.model.domain import Domain, DomainState
from agent.model.instance import Instance
from agent.model.node_records import RecordChanges, RecordedConsumers
from agent.tracker.domains import is_on_other_node, known_guests, place_of
from agent.tracker.node_state import NodeState
from agent.tracker.seen_guest import Refusal, contradictions, records_of
from agent.tracker.stored_state import NO_CHANGES

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


def import_guests(state: NodeState, others: RecordedConsumers, now: float) -> GuestImport:
    """Return records for the guests that have none. ``others``: the store's records of guests that
    are not in the node's own records.

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
        if guest.uuid in known:
            claim = next(
                (claim.id for claim in state.claims_of(guest.uuid) if claim.purpose != "devices"),
                None,
            )
            seen.append(ObservedGuest(guest, "known", claim))
        elif is_on_other_node(state.node, owner):
            seen.append(ObservedGuest(guest, "elsewhere"))
        elif refusals := (*_doubts(guest, owner, others), *contradictions(state, guest)):
            seen.append(ObservedGuest(guest, "refused", refusals=refusals))
        else:
            made = records_of(state, guest, now)
            seen.append(ObservedGuest(guest, "importable", made.claims[0].id))
            state, changes = state.after(made), changes + made
    return GuestImport(tuple(seen), changes)


def _doubts(guest: Domain, owner: Instance | None, others: RecordedConsumers) -> Iterator[Refusal]:
    """Yield the records, right or wrong, by which the guest should not be here."""
    if guest.uuid in others.unreadable:
        yield Refusal(
            "there is a record of it that makes no sense",
            "see agent status; correct or remove the record",
        )
    elif owner is not None:
        yield Refusal(
            f"its instance is {place_of(owner)}",
            (
                "correct the record if the guest belongs here, else remove the guest from this "
                "hypervisor"
            ),
        )
