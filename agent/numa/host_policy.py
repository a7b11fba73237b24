"""Operator's options for the cells of a host: CPU sets, reserved pages, networks, preference; and
the checks of present guests by them: whether the CPU sets still contain their CPUs, and whether a
rebuild in place keeps their cells. No I/O.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from oslo_config import cfg

from agent.errors import AgentError, ConfigError, ConfigErrors, gathering
from agent.model.facts import Topology, parse_cpu_list
from agent.model.instance import Guest, PlacedCell
from agent.model.names import format_cpu_list, name_first, number_of, printable
from agent.numa.host import (
    HostCell,
    NetworkAffinity,
    ReservedPages,
    Strategy,
    host_cells,
    parse_reserved_pages,
    unreservable,
)
from agent.numa.pair import Misfit, pair

SHARED, DEDICATED, PIN_SET = (
    "[compute] cpu_shared_set",
    "[compute] cpu_dedicated_set",
    "[DEFAULT] vcpu_pin_set",
)

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The options for the cells of a host, read once."""

    shared: frozenset[int] | None = None
    """The host CPUs offered to shared guest CPUs, None if not set."""
    dedicated: frozenset[int] | None = None
    """The host CPUs offered to dedicated guest CPUs, None if not set."""
    reserved_pages: ReservedPages = field(default_factory=dict)
    networks: NetworkAffinity = field(default_factory=NetworkAffinity)
    strategy: Strategy = "spread"
    pin_set: bool = False
    """Whether ``shared`` comes from nova's old option, whose CPUs are offered to dedicated guest
    CPUs as well.
    """

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the policy of the options.

        :raises ConfigErrors: all options that are wrong on any host.
        """
        errors: list[ConfigError] = []

        def read(part: Callable[[], Part], otherwise: Part) -> Part:
            with gathering(errors):
                return part()
            return otherwise

        shared = read(lambda: _cpus(SHARED, conf.compute.cpu_shared_set), None)
        dedicated = read(lambda: _cpus(DEDICATED, conf.compute.cpu_dedicated_set), None)
        pin_set = read(lambda: _cpus(PIN_SET, conf.vcpu_pin_set), None)
        if pin_set and dedicated:
            errors.append(
                ConfigError(
                    f"{PIN_SET} and {DEDICATED} are both set",
                    f"give the CPUs of vcpu_pin_set to {SHARED}, and remove vcpu_pin_set",
                )
            )
        elif shared and dedicated and shared & dedicated:
            both = format_cpu_list(shared & dedicated)
            errors.append(
                ConfigError(
                    f"{SHARED} and {_name(DEDICATED)} both have CPU {both}",
                    "give each CPU to one of them",
                )
            )
        nothing: ReservedPages = {}
        pages = read(lambda: parse_reserved_pages(conf.reserved_huge_pages), nothing)
        networks = read(lambda: NetworkAffinity.from_options(conf), NetworkAffinity())
        ConfigErrors.raise_if_any(errors)
        strategy: Strategy = (
            "pack" if conf.compute.packing_host_numa_cells_allocation_strategy else "spread"
        )
        return cls(pin_set or shared, dedicated, pages, networks, strategy, pin_set is not None)

    @property
    def pinnable(self) -> frozenset[int] | None:
        """The host CPUs that guests may be pinned to; None without an option for them: then all
        CPUs if ``shared`` is None too, else none. CPUs of the old option serve both kinds.
        """
        return self.shared if self.pin_set else self.dedicated

    def on(self, topology: Topology) -> Self:
        """Return the policy with the cells of ``topology`` instead of the NUMA nodes that the
        options name.
        """
        if not topology.shared_by:
            return self
        pages, of = Counter[tuple[int, int]](), topology.cell_of
        for (node, size), count in self.reserved_pages.items():
            pages[of(node), size] += count
        return replace(
            self,
            reserved_pages=pages,
            networks=NetworkAffinity(
                {name: frozenset(map(of, nodes)) for name, nodes in self.networks.physnets.items()},
                frozenset(map(of, self.networks.tunneled)),
            ),
        )

    def offline(
        self,
        online: frozenset[int],
        sleeping: frozenset[int] = frozenset(),
        guests: "PresentGuests" = (),
    ) -> Iterator[ConfigError]:
        """Yield an error for each set with CPUs that are not online. ``sleeping``: dedicated CPUs
        that are offline and are offered all the same. ``guests``: those that may be pinned to them.
        """
        for option, cpus in self._sets():
            if missing := cpus - online - (sleeping if option == DEDICATED else frozenset()):
                what = (
                    f"CPUs {format_cpu_list(missing)} not online, online are "
                    f"{format_cpu_list(online)}"
                )
                pinned = [guest for guest, cells in guests if missing & pinned_cpus(cells)]
                users = f" (pinned to such: {name_first(pinned)})" if pinned else ""
                yield ConfigError(
                    f"{option}: {what}",
                    f"bring them online: chcpu --enable {format_cpu_list(missing)}{users}; if the "
                    "host does not have them any more, take them out of the set",
                )

    def contradictions(self, topology: Topology, online: frozenset[int]) -> Iterator[ConfigError]:
        """Yield an error for every other contradiction between the policy and the host."""
        present = frozenset[int]().union(*(cell.cpus for cell in topology.cells))
        for option, cpus in self._sets():
            if lost := (cpus & online) - present:
                yield ConfigError(
                    f"{option}: CPUs {format_cpu_list(lost)} are on no NUMA node",
                    f"the nodes have {format_cpu_list(present)}",
                )
        yield from self.on(topology).networks.misplaced([cell.id for cell in topology.cells])

    def unreservable(self, topology: Topology) -> Iterator[tuple[str, str]]:
        """Yield what and the remedy for every reservation of pages that the host cannot give."""
        yield from unreservable(self.on(topology).reserved_pages, topology)

    def cells(
        self, topology: Topology, online: frozenset[int], sleeping: frozenset[int] = frozenset()
    ) -> tuple[HostCell, ...]:
        """Return the host's cells before any guest. CPUs, pages and networks that the policy names
        and the host does not have are left out, because the host may have lost them since the
        start.

        ``sleeping``: as in :meth:`offline`.
        """
        here = self.on(topology)
        return host_cells(
            topology,
            online,
            sleeping,
            self.shared,
            self.pinnable,
            here.reserved_pages,
            here.networks,
        )

    def _sets(self) -> list[tuple[str, frozenset[int]]]:
        return [
            (option, cpus)
            for option, cpus in (
                (PIN_SET if self.pin_set else SHARED, self.shared),
                (DEDICATED, self.dedicated),
            )
            if cpus
        ]


def pinned_cpus(cells: Sequence[PlacedCell]) -> frozenset[int]:
    """Return the host CPUs to which a guest on these cells is pinned."""
    return frozenset[int]().union(*(placed.pinned_cpus for placed in cells))


def _name(option: str) -> str:
    """Return the option without its section."""
    return option.partition(" ")[2]


def _cpus(option: str, text: str | None) -> frozenset[int] | None:
    try:
        return parse_cpu_list(text or "") or None
    except ValueError as error:
        raise ConfigErrors(
            [ConfigError(f"{option} = {printable(text or '')}: {error}", "write it like 0-3,8,^2")]
        ) from error


SAME = "use an image that asks for the same topology"


class RebuildRefused(AgentError):
    """The new image asks for other cells than the guest has.
    Remedy: use an image that asks for the same topology.
    """

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


PresentGuests = Sequence[tuple[str, Sequence[PlacedCell]]]
"""The guests' uuids with their placed cells; a guest without cells floats on shared CPUs. A guest
that moves may appear twice.
"""


def not_offered(policy: HostPolicy, guests: PresentGuests) -> Iterator[ConfigError]:
    """Yield an error for guests of the host that have CPUs of a kind that ``policy`` does not
    offer, and for each guest that is pinned to CPUs that it does not offer.
    """
    yield from _without_set(policy, guests)
    pinnable, option = policy.pinnable or frozenset(), PIN_SET if policy.pin_set else DEDICATED
    for guest, cells in guests if pinnable else ():
        if lost := pinned_cpus(cells) - pinnable:
            yield ConfigError(
                f"{option} lacks CPUs {format_cpu_list(lost)}, to which guest {guest} is pinned",
                "add them to the set, or move the guest away first; before that, what of them is "
                f"offline: chcpu --enable {format_cpu_list(lost)}",
                guest=guest,
                cpus=tuple(sorted(lost)),
            )


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
    yield ConfigError(
        (
            f"{other} is set and {option.partition(' ')[2]} is not, but there are guests with "
            f"{kind} CPUs: {name_first(guests)}"
        ),
        f"set {option.partition(' ')[2]}, or move these guests away first",
        guests=tuple(guests),
    )
