"""Checks of guests that a host has already: whether the CPU sets still contain their CPUs, and
whether a rebuild in place keeps their cells. No I/O.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.errors import AgentError, ConfigError, ConfigErrors
from agent.model.guest import Guest, PlacedCell
from agent.model.names import name_first, number_of
from agent.model.topology import format_cpu_list
from agent.numa.host import HostCell
from agent.numa.host_policy import DEDICATED, PIN_SET, SHARED, HostPolicy
from agent.numa.pair import Misfit, pair

SAME = "use an image that asks for the same topology"


class RebuildRefused(AgentError):
    """The new image asks for other cells than the guest has."""

    code = "numa.rebuild"


def check_rebuild(host: Sequence[HostCell], placed: Sequence[PlacedCell], guest: Guest) -> None:
    """Check that ``guest``, the new request, fits exactly into the cells ``placed`` that the guest
    has on the host, as if all else were taken.

    Nothing beside that is needed, because the old guest is gone when the new one starts, and its
    pins stay.

    :raises RebuildRefused: it does not fit, or has other guest cells or pages.
    """
    cells = {cell.id: cell for cell in host}
    if len(guest.cells) != len(placed):
        raise RebuildRefused(
            (
                f"the rebuilt guest would have {number_of(len(guest.cells), 'cell')}, the old one "
                f"has {len(placed)}"
            ),
            SAME,
        )
    for index, old in enumerate(placed):
        if old.host_cell not in cells:
            raise RebuildRefused(
                f"the host does not have cell {old.host_cell} any more, on which the guest is",
                "move it to another host",
            )
        new = pair(guest, index, _share(cells[old.host_cell], old), None)
        if isinstance(new, Misfit):
            raise RebuildRefused(
                f"the rebuilt guest does not fit where the old one is: cell {old.host_cell}: {new}",
                "resize or move it instead",
            )
        if (new.cell, new.page_size_kib) != (old.cell, old.page_size_kib):
            raise RebuildRefused("the rebuilt guest would have other cells than the old one", SAME)


def _share(cell: HostCell, own: PlacedCell) -> HostCell:
    """Return the host cell with nothing free but what a guest cell has of it."""
    # A cell whose pins contradict others is not counted, so that there is nothing to give back.
    free = cell.without_guest(own) if own.pinned_cpus <= cell.pinned else cell
    size = cell.smallest_page_kib if own.page_size_kib is None else own.page_size_kib
    pages = tuple(
        pool if pool.size_kib == size else replace(pool, used=pool.total - pool.reserved)
        for pool in free.pages
    )
    return replace(
        free, dedicated=own.pinned_cpus, pinned=frozenset(), offline=frozenset(), pages=pages
    )


MAX_NAMED = 5

PresentGuests = Sequence[tuple[str, Sequence[PlacedCell]]]
"""The guests' uuids with their placed cells; a guest without cells floats on shared CPUs. A guest
that moves may appear twice.
"""


def check_present_guests(policy: HostPolicy, guests: PresentGuests) -> None:
    """Check that ``policy`` has CPUs for the guests of the host.

    :raises ConfigErrors: guests have CPUs of a kind that is not offered, or are pinned to CPUs that
        are not offered.
    """
    ConfigErrors.raise_if_any([*_without_set(policy, guests), *_lost_cpus(policy, guests)])


def _without_set(policy: HostPolicy, guests: PresentGuests) -> Iterator[ConfigError]:
    """Yield an error for a kind of CPUs without a set, if the other kind has a set: without any
    set, all CPUs are offered to both kinds.
    """
    if policy.dedicated and not policy.shared:
        yield from _unset(
            SHARED,
            DEDICATED,
            "shared",
            [
                guest
                for guest, cells in guests
                if not cells or any(placed.cell.shared for placed in cells)
            ],
        )
    if policy.shared and not policy.pinnable:
        yield from _unset(
            DEDICATED,
            SHARED,
            "dedicated",
            [guest for guest, cells in guests if any(placed.cell.dedicated for placed in cells)],
        )


def _unset(option: str, other: str, kind: str, found: Sequence[str]) -> Iterator[ConfigError]:
    if not found:
        return
    guests = list(dict.fromkeys(found))
    what = (
        f"{other} is set and {option.partition(' ')[2]} is not, but there are guests with {kind} "
        f"CPUs: {name_first(guests, MAX_NAMED)}"
    )
    yield ConfigError(
        what,
        f"set {option.partition(' ')[2]}, or move these guests away first",
        guests=tuple(guests),
    )


def _lost_cpus(policy: HostPolicy, guests: PresentGuests) -> Iterator[ConfigError]:
    pinnable, option = policy.pinnable or frozenset(), PIN_SET if policy.pin_set else DEDICATED
    for guest, cells in guests if pinnable else ():
        pinned = frozenset[int]().union(*(cell.pinned_cpus for cell in cells))
        if lost := pinned - pinnable:
            what = f"{option} lacks CPUs {format_cpu_list(lost)}, to which guest {guest} is pinned"
            yield ConfigError(
                what,
                "add them to the set, or move the guest away first",
                guest=guest,
                cpus=tuple(sorted(lost)),
            )
