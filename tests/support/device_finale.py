"""The end of a walk: what is left of two nodes is what a fresh agent makes of the same facts,
options and claims on a fresh Placement.
"""

from dataclasses import replace

from tests.support import device_checks as checks
from tests.support.device_offers import CARDS, contradictory
from tests.support.device_site import ROOTS, DeviceSite
from tests.support.device_walk import PASSES, DeviceWalk, everything
from tests.support.placement import PlacementServer
from tests.support.tracking import guest, uuid_of


def finale(walk: DeviceWalk, fresh: PlacementServer) -> None:
    """All devices come back, everybody else goes, and then the trees and shares are compared."""
    account, site = walk.account, walk.site
    for name, host in everything().items():
        account.hosts[name] = replace(host, rows=account.hosts[name].rows)
    for name in list(walk.late):
        walk.catch_up(name)
    _others_go(walk)
    clear = {
        card: "none"
        if any(contradictory(one.offered(account.choices, card)) for one in account.hosts.values())
        else choice
        for card, choice in account.choices.items()
    }
    walk.restart(clear, site.layout, site.report)
    walk.audit()
    for name in sorted(_holding_what_is_not_offered(walk)):
        walk.delete(name, late=False)
    _only_what_they_have(walk)
    walk.audit()
    _clean(walk.placement)
    for name in list(walk.late):
        assert walk.catch_up(name)
    walk.audit()
    _is_as_fresh(walk, fresh)


def _holding_what_is_not_offered(walk: DeviceWalk) -> set[str]:
    """Guests with devices of which only the tree as it was still knows what they are."""
    account = walk.account
    return {
        account.claims[row.holder].guest
        for host in account.hosts.values()
        for device, row in host.rows.items()
        if row.holder
        and not row.network
        and (device not in (offered := host.offered(account.choices)) or offered[device].network)
    }


def _others_go(walk: DeviceWalk) -> None:
    other, there = walk.placement.other, walk.placement.dump()["providers"]
    for consumer in walk.foreign.consumers:
        other.release(consumer)
    for uuid in walk.foreign.children:
        other.delete_provider(uuid)
    for uuid in walk.foreign.traits:
        other.set_traits(uuid, set(there[uuid]["traits"]) - {checks.THEIR_TRAIT})
    for uuid in walk.foreign.classes:
        other.set_inventory(
            uuid,
            {
                name: record
                for name, record in there[uuid]["inventories"].items()
                if name != checks.THEIR_CLASS
            },
        )
    walk.foreign = checks.Foreign()


def _only_what_they_have(walk: DeviceWalk) -> None:
    """Whoever holds shares of cards of which nobody gave him a device gives them back: only people
    can do that.
    """
    dump, other = walk.placement.dump(), walk.placement.other
    cards = {
        found[0]: (node, card)
        for node in walk.account.hosts
        for card in CARDS
        if (found := checks.card_provider(dump, node, card))
    }
    moving = {one.guest for id, one in walk.account.moves.items() if walk.account.going_on(id)}
    names = {guest(name): name for name in walk.account.guests}
    kept = {guest(name) for name in moving} | {
        uuid_of(id) for id in walk.account.moves if walk.account.going_on(id)
    }
    for consumer, one in dump["consumers"].items():
        held, name = one["allocations"], names.get(consumer, "")
        mine = {
            uuid: amounts
            for uuid, amounts in held.items()
            if uuid not in cards or name in walk.account.amounts(*cards[uuid])
        }
        if mine != held and consumer not in kept:
            other.claim(mine, consumer) if mine else other.release(consumer)


def _clean(placement: PlacementServer) -> None:
    """What is reserved of cards is free again, until the agent reserves it anew."""
    found = [checks.card_provider(placement.dump(), node, card) for node in ROOTS for card in CARDS]
    for uuid, one in filter(None, found):
        if any(record["reserved"] for record in one["inventories"].values()):
            placement.other.set_inventory(
                uuid,
                {name: {**record, "reserved": 0} for name, record in one["inventories"].items()},
            )


def _is_as_fresh(walk: DeviceWalk, fresh: PlacementServer) -> None:
    fresh.reset()
    site = walk.site.copy(fresh, walk.folder / "fresh")
    try:
        report = site.start()
        assert {one.state for one in report.values()} == {"changed"}, [
            one.errors for one in report.values()
        ]
        _clean(fresh)
        uuids = {one["name"]: uuid for uuid, one in fresh.dump()["providers"].items()}
        for consumer, held in checks.holdings(walk.placement.dump()).items():
            fresh.other.claim({uuids[name]: amounts for name, amounts in held.items()}, consumer)
        _in_sync(site)
        assert checks.named(fresh.dump()) == checks.named(walk.placement.dump())
        assert checks.holdings(fresh.dump()) == checks.holdings(walk.placement.dump())
    finally:
        site.remove()


def _in_sync(site: DeviceSite) -> None:
    for _ in range(PASSES):
        reports = site.cycle()
        if all(one.state == "in-sync" for one in reports.values()):
            return
    raise AssertionError([one.outcomes for one in reports.values()])
