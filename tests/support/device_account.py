"""Who has which device of which node: an account of its own, kept by the rules and not with the
tracker's code.

It tells whether an operation is refused and which rows there are afterwards, but not which of
several devices a guest gets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.support.device_offers import CARDS, COUNTED_BY, KINDS, OFFERS, Meaning, card_of

AT_ONCE = ("live-migration",)


@dataclass(frozen=True)
class Row:
    """A device as the records are to have it."""

    serves: str
    numa: int | None
    network: bool = False
    holder: str | None = None
    state: str = "available"
    present: bool = True


@dataclass
class HostAccount:
    """``there``: the devices that the host has; ``numa``: the cell of each card; ``answers``:
    whether it can list them.
    """

    there: set[str]
    numa: dict[str, int | None]
    answers: bool = True
    rows: dict[str, Row] = field(default_factory=dict)

    def offered(self, choices: Mapping[str, str], card: str | None = None) -> dict[str, Meaning]:
        """What is offered now, of one card or of all."""
        cards = [card] if card else choices
        means = {
            device: one
            for card in cards
            for device, one in OFFERS[card][choices[card]].means.items()
        }
        return {device: one for device, one in means.items() if device in self.there}

    def audit(self, choices: Mapping[str, str]) -> None:
        """The rows are as the host shows them; what is held stays as it was given."""
        if not self.answers:
            return
        offered = self.offered(choices)
        cards = {card_of(device) for device in offered}
        shown = {
            device: self._row(device, offered.get(device))
            for device in self.there
            if card_of(device) in cards
        }
        held = {
            device: replace(one, present=device in offered)
            for device, one in self.rows.items()
            if one.holder
        }
        self.rows = {**shown, **held}

    def _row(self, device: str, meaning: Meaning | None) -> Row:
        return Row(
            "guests" if meaning else "nobody",
            self.numa[card_of(device)],
            bool(meaning and meaning.network),
        )

    def held(self, card: str) -> dict[str, Row]:
        """The devices of a card that guests have, of those that Placement may count."""
        return {
            device: one
            for device, one in sorted(self.rows.items())
            if one.holder and not one.network and card_of(device) == card
        }

    def free(self) -> set[str]:
        """The devices that can be had."""
        held = {device for device, one in self.rows.items() if one.holder}
        blocked = (
            held
            | {card_of(device) for device in held}
            | {device for card in held for device in CARDS.get(card, ())}
        )
        return {
            device
            for device, one in self.rows.items()
            if one.present and one.serves == "guests" and device not in blocked
        }


@dataclass(frozen=True)
class Asked:
    """Devices by an alias. ``cards``: of which the scheduler took them, one for each; empty if it
    did not say.
    """

    alias: str
    count: int
    cards: tuple[str, ...] = ()


def fits(free: Iterable[str], asked: Sequence[Asked]) -> bool:
    """Whether all can be had at once."""
    slots = [(one.alias, card) for one in asked for card in one.cards or (None,) * one.count]
    return _seated(slots, frozenset(free))


def _seated(slots: Sequence[tuple[str, str | None]], free: frozenset[str]) -> bool:
    if not slots:
        return True
    (alias, card), rest = slots[0], slots[1:]
    wanted = (
        one for one in sorted(free) if one[0] == KINDS[alias] and card in (None, card_of(one))
    )
    return any(_seated(rest, free - {one, card_of(one), *CARDS.get(one, ())}) for one in wanted)


@dataclass(frozen=True)
class Claim:
    """An open claim; ``half`` and ``move`` as in the records."""

    id: str
    guest: str
    node: str
    purpose: str
    asked: tuple[Asked, ...]
    half: str = "only"
    state: str = "held"
    move: str | None = None


@dataclass(frozen=True)
class Move:
    """``status``: ``begun``, ``arrived``, or how it ended."""

    guest: str
    type: str
    source: str
    dest: str
    status: str = "begun"


class Refused(Exception):
    """There are not enough devices."""


@dataclass
class DeviceAccount:
    """``guests``: the node of each that is not gone."""

    hosts: dict[str, HostAccount]
    choices: dict[str, str]
    claims: dict[str, Claim] = field(default_factory=dict)
    guests: dict[str, str] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    # --- claims -----------------------------------------------------------------------------------

    def claim(self, id: str, guest: str, node: str, asked: tuple[Asked, ...]) -> None:
        """Room for a new guest."""
        self._room(node, asked)
        self.claims[id], self.guests[guest] = Claim(id, guest, node, "instance", asked), node

    def attach(self, id: str, guest: str, node: str, asked: tuple[Asked, ...]) -> None:
        """More devices for a guest."""
        self._room(node, asked)
        self.claims[id] = Claim(id, guest, node, "devices", asked)

    def in_use(self, id: str) -> None:
        """Devices that were attached."""
        self.claims[id] = replace(self.claims[id], state="consumed")
        self._state([id], "allocated")

    def arrive(self, guest: str) -> None:
        """It runs."""
        for one in self.of(guest):
            if one.purpose == "instance":
                self.claims[one.id] = replace(one, state="consumed")

    def abort(self, id: str) -> None:
        """It is not to be."""
        one = self.claims[id]
        self.release([one])
        if one.purpose == "instance":
            del self.guests[one.guest]

    def delete(self, guest: str) -> None:
        """It is no more."""
        self.release(self.of(guest))
        self.moves |= {
            id: replace(one, status="error")
            for id, one in self.moves.items()
            if one.guest == guest and self.going_on(id)
        }
        del self.guests[guest]
        self.gone.add(guest)

    def detach(self, guest: str, node: str) -> None:
        """It gives back what it got beside its room."""
        self._free([one for one in self.of(guest) if one.purpose == "devices" and one.node == node])

    # --- moves ------------------------------------------------------------------------------------

    def move(self, id: str, type: str, guest: str, dest: str, asked: tuple[Asked, ...]) -> None:
        """Room at the destination."""
        self._room(dest, asked)
        source = self.guests[guest]
        for one in self.of(guest):
            if one.purpose != "devices" and one.node == source:
                self.claims[one.id] = replace(one, half="old", move=id)
        self.claims[id] = Claim(id, guest, dest, "move", asked, half="new", move=id)
        self.moves[id] = Move(guest, type, source, dest)

    def finish(self, id: str) -> None:
        """It arrives."""
        one, at_once = self.moves[id], self.moves[id].type in AT_ONCE
        if at_once:
            self.release(self._halves(id, "old"))
        self.claims[id] = replace(
            self.claims[id], state="consumed", **({"half": "only", "move": None} if at_once else {})
        )
        here = [claim for claim in self.of(one.guest) if claim.node == one.dest]
        for claim in here:
            if claim.purpose == "devices" and claim.state == "held":
                self.claims[claim.id] = replace(claim, state="consumed")
        self._state([claim.id for claim in here], "allocated")
        self.moves[id], self.guests[one.guest] = (
            replace(one, status="completed" if at_once else "arrived"),
            one.dest,
        )

    def confirm(self, id: str) -> None:
        """It stays."""
        self.release(self._halves(id, "old"))
        self.claims[id] = replace(self.claims[id], half="only", move=None)
        self.moves[id] = replace(self.moves[id], status="confirmed")

    def back(self, id: str, status: str) -> None:
        """It goes back, or does not go at all."""
        self.release([self.claims[id]])
        for one in self._halves(id, "old"):
            self.claims[one.id] = replace(one, half="only", move=None)
        self.guests[self.moves[id].guest] = self.moves[id].source
        self.moves[id] = replace(self.moves[id], status=status)

    def going_on(self, id: str) -> bool:
        """Whether a move is not over."""
        return self.moves[id].status in ("begun", "arrived")

    # --- who has what -----------------------------------------------------------------------------

    def of(self, guest: str) -> list[Claim]:
        """The claims of a guest."""
        return [one for one in self.claims.values() if one.guest == guest]

    def settled(self, node: str) -> set[str]:
        """The guests that are on the node, and neither coming nor going."""
        here = [one for one in self.claims.values() if one.node == node]
        return {one.guest for one in here} - {
            one.guest for one in here if one.half != "only" or one.state != "consumed"
        }

    def amounts(self, node: str, card: str) -> dict[str, int]:
        """How many of the card's devices each guest has."""
        owners = [
            self.claims[one.holder].guest
            for one in self.hosts[node].held(card).values()
            if one.holder
        ]
        return {owner: owners.count(owner) for owner in owners}

    def got(self, id: str, devices: Iterable[str]) -> None:
        """A claim was seen to have got these."""
        claim, rows = self.claims[id], self.hosts[self.claims[id].node].rows
        waits = claim.purpose == "devices" or (
            claim.id in self.moves and self.moves[claim.id].type == "live-migration"
        )
        for device in devices:
            rows[device] = replace(
                rows[device], holder=id, state="claimed" if waits else "allocated"
            )

    def release(self, claims: Iterable[Claim]) -> None:
        """The claims are given back; where a guest has nothing else, what it got there afterwards
        too.
        """
        ended = list(claims)
        self._free(ended)
        for guest in {one.guest for one in ended}:
            staying = {one.node for one in self.of(guest) if one.purpose != "devices"}
            self._free([one for one in self.of(guest) if one.node not in staying])

    def _free(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            del self.claims[claim.id]
            rows = self.hosts[claim.node].rows
            mine = {device: one for device, one in rows.items() if one.holder == claim.id}
            for device, one in mine.items():
                rows[device] = replace(one, holder=None, state="available")
                if not one.present:
                    del rows[device]

    def _state(self, ids: Iterable[str], state: str) -> None:
        held = {*ids}
        for host in self.hosts.values():
            host.rows |= {
                device: replace(one, state=state)
                for device, one in host.rows.items()
                if one.holder in held
            }

    def _halves(self, move: str, half: str) -> list[Claim]:
        return [one for one in self.claims.values() if (one.move, one.half) == (move, half)]

    def _room(self, node: str, asked: tuple[Asked, ...]) -> None:
        if not fits(self.hosts[node].free(), asked):
            raise Refused


def with_cards(
    asked: Iterable[tuple[str, int]], allocated: Mapping[str, Mapping[str, int]]
) -> tuple[Asked, ...]:
    """What is asked for, with the cards that the scheduler took it from. ``allocated``: of each
    card, by class.
    """
    left = {name: list(_each(allocated, name)) for name in COUNTED_BY.values()}
    found = []
    for alias, count in asked:
        there = left[COUNTED_BY[alias]]
        enough = len(there) >= count
        found.append(Asked(alias, count, tuple(there[:count]) if enough else ()))
        left[COUNTED_BY[alias]] = there[count:] if enough else there
    return tuple(found)


def _each(allocated: Mapping[str, Mapping[str, int]], name: str) -> Iterator[str]:
    for card, amounts in allocated.items():
        yield from [card] * amounts.get(name, 0)
