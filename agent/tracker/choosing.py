"""Which units a guest gets: a pure choice among what is free, all of what is asked or nothing."""

from collections.abc import Iterable
from operator import attrgetter

from agent.model.assigned_unit import UnitRow
from agent.tracker.requests import Resources


def choose_units(units: Iterable[UnitRow], wanted: Resources) -> tuple[list[UnitRow], list[str]]:
    """The units to take, by their identifiers' order, and the reasons why some cannot be had.

    A provider or class for which there are no units here is somebody else's, or not of the kind that is assigned.
    """
    rows, chosen, reasons = sorted(units, key=attrgetter("identifier")), [], []
    for provider, resources in sorted(wanted.items()):
        for name, amount in sorted(resources.items()):
            known = [one for one in rows if one.provider == provider and one.resource_class == name]
            free = [one for one in known if one.holder is None and one.present]
            if known and len(free) < amount:
                reasons.append(f"{amount} units of {name} wanted, {len(free) or 'none'} free")
            elif known:
                chosen += free[:amount]
    return chosen, reasons
