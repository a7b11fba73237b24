"""Whether the CPU sets still have room for the guests that a host has when the agent starts. No I/O."""

from collections.abc import Iterator, Sequence

from agent.errors import ConfigError, ConfigErrors
from agent.model.cpu_list import format_cpu_list
from agent.model.guest import PlacedCell
from agent.numa.host_policy import DEDICATED, PIN_SET, SHARED, HostPolicy

MAX_NAMED = 5

PresentGuests = Sequence[tuple[str, Sequence[PlacedCell]]]
"""Guests' uuids with their placed cells; one without any floats on shared CPUs. One that moves may be there twice."""


def check_present_guests(policy: HostPolicy, guests: PresentGuests) -> None:
    """Compare ``policy`` with the guests of the host.

    :raises ConfigErrors: guests have CPUs of a kind that is offered to none, or are pinned to CPUs that are not offered.
    """
    errors = [*_without_set(policy, guests), *_lost_cpus(policy, guests)]
    if errors:
        raise ConfigErrors(errors)


def _without_set(policy: HostPolicy, guests: PresentGuests) -> Iterator[ConfigError]:
    """Only if one of the sets is there: without any, all CPUs are offered to both kinds."""
    if policy.dedicated and not policy.shared:
        yield from _unset(SHARED, DEDICATED, "shared", [guest for guest, cells in guests if not cells or any(one.cell.shared for one in cells)])
    if policy.shared and not policy.pinnable:
        yield from _unset(DEDICATED, SHARED, "dedicated", [guest for guest, cells in guests if any(one.cell.dedicated for one in cells)])


def _unset(option: str, other: str, kind: str, found: Sequence[str]) -> Iterator[ConfigError]:
    if not found:
        return
    guests = list(dict.fromkeys(found))
    more = f" and {len(guests) - MAX_NAMED} more" if len(guests) > MAX_NAMED else ""
    what = f"{other} is set and {option.partition(' ')[2]} is not, but there are guests with {kind} CPUs: {', '.join(guests[:MAX_NAMED])}{more}"
    yield ConfigError(what, f"set {option.partition(' ')[2]}, or move these guests away first", guests=tuple(guests))


def _lost_cpus(policy: HostPolicy, guests: PresentGuests) -> Iterator[ConfigError]:
    pinnable, option = policy.pinnable or frozenset(), PIN_SET if policy.pin_set else DEDICATED
    for guest, cells in guests if pinnable else ():
        pinned = frozenset[int]().union(*(one.pinned_cpus for one in cells))
        if lost := pinned - pinnable:
            what = f"{option} lacks CPUs {format_cpu_list(lost)}, to which guest {guest} is pinned"
            yield ConfigError(what, "add them to the set, or move the guest away first", guest=guest, cpus=tuple(sorted(lost)))
