"""Which units and mediated devices a guest gets: a pure choice among what is free, all of what is asked or nothing."""

from collections.abc import Iterable
from operator import attrgetter

from agent.model.unit_record import UnitRecord
from agent.model.mdev import MdevShare, MdevSource
from agent.model.names import number_of
from agent.tracker.requests import Resources


def choose_units(units: Iterable[UnitRecord], wanted: Resources) -> tuple[list[UnitRecord], list[str]]:
    """The units to take, by their identifiers' order, and the reasons why some cannot be had.

    A provider or class for which there are no units here is somebody else's, or not of the kind that is assigned.
    """
    rows, chosen, reasons = sorted(units, key=attrgetter("identifier")), [], []
    for provider, resources in sorted(wanted.items()):
        for name, amount in sorted(resources.items()):
            known = [one for one in rows if one.provider == provider and one.resource_class == name]
            free = [one for one in known if one.holder is None and one.present]
            if known and len(free) < amount:
                reasons.append(f"{number_of(amount, 'unit')} of {name} wanted, {len(free) or 'none'} free")
            elif known:
                chosen += free[:amount]
    return chosen, reasons


def choose_mdevs(sources: Iterable[MdevSource], promised: Iterable[MdevShare], wanted: Resources) -> tuple[list[MdevShare], list[str]]:
    """What the scheduler took of each parent of mediated devices, and the reasons why there is not so much. ``promised``: what others have."""
    sources, promised, chosen, reasons = list(sources), list(promised), [], []
    for provider, resources in sorted(wanted.items()):
        for name, amount in sorted(resources.items()):
            of_it = [one for one in sources if one.provider == provider and one.resource_class == name]
            if not of_it:
                continue
            parents, types = {one.parent for one in of_it}, {one.type for one in of_it}
            taken = sum(one.count for one in promised if one.resource_class == name and (one.provider == provider or one.parent in parents))
            free = max(sum(one.total for one in of_it) - taken, 0)
            if amount > free:
                reasons.append(f"{number_of(amount, 'mediated device')} of {name} wanted on {', '.join(sorted(parents))}, {free or 'none'} free")
            chosen.append(MdevShare(provider, name, amount, *(found.pop() if len(found) == 1 else None for found in (parents, types))))
    return chosen, reasons
