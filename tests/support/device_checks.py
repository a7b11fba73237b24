"""What always holds of two nodes with devices: nothing of others is touched, no allocation is lost,
the tree is what the records and facts say.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.tree.reported_cards import MARKER
from tests.support.device_account import DeviceAccount
from tests.support.device_offers import CARDS, NAMES, contradictory
from tests.support.tracking import guest, uuid_of

THEIR_CLASS, THEIR_TRAIT = "CUSTOM_THEIR_CLASS", "CUSTOM_THEIRS"
MARKS = {MARKER, "OWNER_NOVA"}
Dump = Mapping[str, Any]


@dataclass
class Foreign:
    """What others put there: whole ``children`` by uuid, a trait or a class on providers, and
    consumers that no record knows.
    """

    children: list[str] = field(default_factory=list)
    traits: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)

    def check(self, before: Dump, after: Dump) -> None:
        """All of it is as it was, but for what was on a provider of ours that went away."""
        then, now = before["providers"], after["providers"]
        for uuid in self.children:
            assert {**now[uuid], "generation": 0} == {**then[uuid], "generation": 0}
        gone = {uuid for uuid in self.traits | self.classes if uuid not in now}
        assert all(
            then[uuid]["name"] not in ("c1", "c2") and not _used(before, uuid)
            for uuid in gone
            if uuid in then
        ), gone
        self.traits, self.classes = self.traits - gone, self.classes - gone
        assert [uuid for uuid in self.traits if THEIR_TRAIT not in now[uuid]["traits"]] == []
        for uuid in self.classes:
            assert now[uuid]["inventories"].get(THEIR_CLASS) == then[uuid]["inventories"].get(
                THEIR_CLASS
            )
        for consumer in self.consumers:
            assert after["consumers"].get(consumer) == before["consumers"].get(consumer)


def _used(dump: Dump, uuid: str) -> Counter[str]:
    """How much of each class is allocated on a provider."""
    found: Counter[str] = Counter()
    for one in dump["consumers"].values():
        found.update(one["allocations"].get(uuid, {}))
    return found


def card_provider(dump: Dump, node: str, card: str) -> tuple[str, Mapping[str, Any]] | None:
    """The provider of a card."""
    name = f"{node}_{NAMES[card].upper()}"
    return next(
        ((uuid, one) for uuid, one in dump["providers"].items() if one["name"] == name), None
    )


def check_consumers(account: DeviceAccount, before: Dump, after: Dump) -> None:
    """Nobody got, lost or changed anything but by healing, and but for those that are over."""
    then = {
        uuid: one["allocations"] for uuid, one in before["consumers"].items() if one["allocations"]
    }
    now = {
        uuid: one["allocations"] for uuid, one in after["consumers"].items() if one["allocations"]
    }
    assert now.keys() <= then.keys()
    over = {guest(name) for name in account.gone}
    over |= {
        uuid_of(id)
        for id, one in account.moves.items()
        if one.status in ("confirmed", "completed", "reverted", "cancelled")
    }
    assert then.keys() - now.keys() <= over
    for id, one in account.moves.items():
        if (
            one.status in ("reverted", "cancelled")
            and uuid_of(id) in then.keys() - now.keys()
            and account.of(one.guest)
        ):
            assert then.get(guest(one.guest)) == then[uuid_of(id)], "its guest was to get it back"
    names = {guest(name): name for name in account.guests}
    cards = {
        found[0]: (node, card)
        for node in account.hosts
        for card in CARDS
        if (found := card_provider(after, node, card))
    }
    for uuid in now.keys() & then.keys():
        changed = {
            one
            for one in now[uuid].keys() | then[uuid].keys()
            if now[uuid].get(one) != then[uuid].get(one)
        }
        for provider in changed:
            node, card = cards[provider]
            assert names.get(uuid) in account.settled(node)
            has = account.amounts(node, card)[names[uuid]]
            assert [
                now[uuid][provider][name]
                for name in now[uuid][provider]
                if now[uuid][provider][name] != then[uuid].get(provider, {}).get(name)
            ] == [has]
            assert (
                now[uuid][provider].items()
                >= {
                    name: amount
                    for name, amount in then[uuid].get(provider, {}).items()
                    if amount == has
                }.items()
            )


def check_reserved(account: DeviceAccount, before: Dump, after: Dump) -> None:
    """What was reserved stays reserved, as far as there is as much; more is reserved only of what
    is used once.
    """
    for node, host in account.hosts.items():
        for card in CARDS:
            then, now = card_provider(before, node, card), card_provider(after, node, card)
            if then is None or now is None:
                continue
            once = any(
                one.once for one in host.offered(account.choices, card).values()
            ) and host.held(card)
            for name, record in now[1]["inventories"].items():
                last = then[1]["inventories"].get(name)
                if last is None or name == THEIR_CLASS:
                    continue
                waited = last["reserved"] == last["total"] or record["reserved"] == record["total"]
                assert (
                    waited or once or record["reserved"] == min(last["reserved"], record["total"])
                )


def check_tree(
    account: DeviceAccount, dump: Dump, foreign: Foreign, nested: bool, errors: Mapping[str, bool]
) -> None:
    """Every card has the provider that it should have. ``errors``: of each node that can be looked
    at, whether something was told to be wrong with it.
    """
    for node, host in ((node, account.hosts[node]) for node in errors):
        wrong = [
            text
            for card in host.numa
            if host.answers
            for text in _card_problems(account, dump, foreign, node, card, nested)
        ]
        told = [text for text in wrong if not text.startswith("!")]
        assert len(told) == len(wrong), wrong
        assert not host.answers or bool(told) == errors[node], (told, errors[node])


def _card_problems(
    account: DeviceAccount, dump: Dump, foreign: Foreign, node: str, card: str, nested: bool
) -> Iterator[str]:
    """What is wrong with a card, with an exclamation mark if it should not be."""
    host, found = account.hosts[node], card_provider(dump, node, card)
    offered = {
        device: one
        for device, one in host.offered(account.choices, card).items()
        if not one.network
    }
    held, used = host.held(card), _used(dump, found[0]) if found else Counter[str]()
    records = (
        {
            name: one["total"]
            for name, one in found[1]["inventories"].items()
            if name != THEIR_CLASS or found[0] not in foreign.classes
        }
        if found
        else {}
    )
    lost = [device for device in held if device not in offered]
    if contradictory(offered):
        yield f"{node} {card}: contradictory"
    elif offered:
        meaning = offered[min(offered)]
        others = {name for name in records if name != meaning.resource_class}
        if others and (lost or any(used[name] for name in others)):
            yield f"{node} {card}: {others} is in use"
            return
        total = max(
            len(offered) + (len(lost) if used or meaning.resource_class in records else 0),
            used[meaning.resource_class],
        )
        if records != {meaning.resource_class: total} or found is None:
            yield f"! {node} {card}: {records} instead of {meaning.resource_class}={total}"
            return
        if set(found[1]["traits"]) != meaning.traits | MARKS | (
            {THEIR_TRAIT} if found[0] in foreign.traits else set()
        ):
            yield f"! {node} {card}: {found[1]['traits']}"
        mine = [one for device, one in held.items() if device in offered]
        yield from _place(dump, node, card, mine[0].numa if mine else host.numa[card], nested)
    elif held and records:
        if len(records) == 1 and sum(records.values()) != max(len(held), *used.values(), 0):
            yield f"! {node} {card}: {records} instead of {len(held)} that are held"
    elif found and any(used[name] for name in records):
        if any(
            found[1]["inventories"][name]["reserved"] != total
            for name, total in records.items()
            if used[name]
        ):
            yield f"! {node} {card}: not reserved while it waits to be free"
    elif records or (
        found
        and not _children(dump, found[0])
        and MARKER in found[1]["traits"]
        and found[0] not in foreign.classes
    ):
        yield f"! {node} {card}: still there"


def _place(dump: Dump, node: str, card: str, numa: int | None, nested: bool) -> Iterator[str]:
    """Where a card's provider is."""
    found = card_provider(dump, node, card)
    parent = dump["providers"][found[1]["parent"]]["name"] if found else ""
    wanted = f"{node}_NUMA{numa}" if nested and numa is not None else node
    if parent != wanted:
        yield f"! {node} {card}: below {parent} instead of {wanted}"


def _children(dump: Dump, uuid: str) -> list[str]:
    return [one["name"] for one in dump["providers"].values() if one["parent"] == uuid]


def check_healed(
    account: DeviceAccount, dump: Dump, nodes: Iterable[str], told: Collection[str]
) -> None:
    """Who is settled and has something on a node has in Placement what he has of its cards, as far
    as there is room; who has more there is ``told``.
    """
    for node in nodes:
        mine = {
            uuid
            for uuid, one in dump["providers"].items()
            if one["name"] == node or one["name"].startswith(f"{node}_")
        }
        for card in CARDS:
            found, amounts = card_provider(dump, node, card), account.amounts(node, card)
            if found is None or len(found[1]["inventories"]) != 1:
                continue
            ((name, record),) = found[1]["inventories"].items()
            room = record["total"] - record["reserved"] - _used(dump, found[0])[name]
            for owner in amounts.keys() & account.settled(node):
                held = dump["consumers"].get(guest(owner), {"allocations": {}})["allocations"]
                more = amounts[owner] - held.get(found[0], {}).get(name, 0)
                assert (
                    not mine & held.keys()
                    or more == 0
                    or more > room
                    or (more < 0 and guest(owner) in told)
                ), (owner, node, card, held)


def named(dump: Dump) -> dict[str, Any]:
    """The trees by names: parents, records, traits, aggregates."""
    names = {uuid: one["name"] for uuid, one in dump["providers"].items()}
    return {
        one["name"]: (
            names.get(one["parent"]),
            one["inventories"],
            one["traits"],
            one["aggregates"],
        )
        for one in dump["providers"].values()
    }


def holdings(dump: Dump) -> dict[str, dict[str, Any]]:
    """Who holds what, by the names of the providers."""
    return {
        uuid: {
            dump["providers"][provider]["name"]: held
            for provider, held in one["allocations"].items()
        }
        for uuid, one in dump["consumers"].items()
        if one["allocations"]
    }
