"""Host cells: before any guest, by the operator's options, and with all guests counted; how a
placed guest cell changes their usage, and the order in which a fit prefers them.
"""

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

from oslo_config import cfg

from agent.conf import devices
from agent.errors import AgentError, ConfigError, ConfigErrors
from agent.model.devices import DeviceDemand
from agent.model.facts import Cell, PagePool, Topology
from agent.model.instance import Guest, PlacedCell
from agent.model.names import number_of, printable
from agent.numa.flavor_and_image import parse_page_size

LOG = logging.getLogger(__name__)


class CellUsageError(AgentError):
    """A placed guest cell cannot be added to its host cell, or not be removed from it: a record is
    wrong.
    Remedy: correct or end the record that the message names.
    """

    code = "numa.usage"


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of one size."""

    size_kib: int
    """KiB."""
    total: int
    """Pages."""
    used: int = 0
    """Pages."""
    reserved: int = 0
    """Pages."""

    @property
    def free(self) -> int:
        """Pages that a guest can have."""
        return self.total - self.used - self.reserved


@dataclass(frozen=True, slots=True)
class HostCell:
    """One NUMA cell of the host with what is used of it."""

    id: int
    shared: frozenset[int]
    """Host CPUs offered to shared guest CPUs."""
    dedicated: frozenset[int]
    """Host CPUs offered to dedicated guest CPUs."""
    memory_mib: int
    """MiB."""
    memory_used_mib: int = 0
    """MiB."""
    shared_used: int = 0
    """The number of shared guest CPUs."""
    pinned: frozenset[int] = frozenset()
    """Host CPUs that guest CPUs or emulators are pinned to."""
    siblings: tuple[frozenset[int], ...] = ()
    """The offered hardware threads of each core."""
    pages: tuple[Pages, ...] = ()
    physnets: frozenset[str] = frozenset()
    """The physical networks local to the cell."""
    tunneled: bool = False
    """Whether tunnels are local to the cell."""
    socket: int | None = None
    distances: Mapping[int, int] = field(default_factory=dict)
    """Cell id to distance (10 is local)."""
    offline: frozenset[int] = frozenset()
    """CPUs that would be offered to dedicated guest CPUs if they were online."""

    @property
    def cpus(self) -> frozenset[int]:
        """All host CPUs that are offered, or would be if they were online."""
        return self.shared | self.dedicated | self.offline

    @property
    def free_dedicated(self) -> frozenset[int]:
        """Host CPUs that guests can still be pinned to."""
        return self.dedicated - self.pinned

    @property
    def degraded(self) -> frozenset[int]:
        """Host CPUs that went offline under a guest that is pinned to them."""
        return self.pinned & self.offline

    @property
    def free_memory_mib(self) -> int:
        """MiB that are not promised."""
        return self.memory_mib - self.memory_used_mib

    @property
    def smt(self) -> bool:
        """Whether some core has more than one thread."""
        return any(len(core) > 1 for core in self.siblings)

    @property
    def smallest_page_kib(self) -> int | None:
        """The size of ordinary pages; None if nothing is known about pages."""
        return min((pool.size_kib for pool in self.pages), default=None)

    @property
    def huge_pages(self) -> tuple[Pages, ...]:
        """The pages of all sizes but the smallest."""
        return tuple(pool for pool in self.pages if pool.size_kib != self.smallest_page_kib)

    def free_cores(self) -> list[list[int]]:
        """Return the free threads of each core that has some, threads and cores in ascending
        order.
        """
        free = self.free_dedicated
        cores = [sorted(core & free) for core in self.siblings if core & free]
        lone = free.difference(*self.siblings)
        return sorted([*cores, *([cpu] for cpu in lone)])

    def with_guest(self, placed: PlacedCell) -> Self:
        """Return the cell with one more guest cell. A guest stays pinned to a CPU that went
        offline, or that is not offered any more.

        :raises CellUsageError: a CPU is pinned already; nothing is added.
        """
        cpus = placed.pinned_cpus
        if taken := sorted(cpus & self.pinned):
            raise CellUsageError(
                f"cell {self.id}: CPUs {taken} are pinned already",
                "two records claim the same CPUs",
                cpus=taken,
            )
        return replace(self._with_change(placed, 1), pinned=self.pinned | cpus)

    def without_guest(self, placed: PlacedCell) -> Self:
        """Return the cell without a guest cell that was added before. No sum falls below 0; if one
        would, that is logged.

        :raises CellUsageError: a CPU of the guest cell is not pinned; nothing is removed.
        """
        if free := sorted(placed.pinned_cpus - self.pinned):
            raise CellUsageError(
                f"cell {self.id}: CPUs {free} are not pinned",
                "the record was removed before",
                cpus=free,
            )
        return replace(self._with_change(placed, -1), pinned=self.pinned - placed.pinned_cpus)

    def _with_change(self, placed: PlacedCell, sign: int) -> Self:
        guest = placed.cell
        size = self.smallest_page_kib if placed.page_size_kib is None else placed.page_size_kib
        memory, cpus = (
            self.memory_used_mib + sign * guest.memory_mib,
            self.shared_used + sign * len(guest.shared),
        )
        # A part of a page takes a whole page.
        used = {
            pool.size_kib: pool.used + sign * -(-guest.memory_mib * 1024 // size)
            for pool in self.pages
            if pool.size_kib == size
        }
        if min(memory, cpus, *used.values()) < 0:
            LOG.error(
                (
                    "Accounting fault: cell %d gets back more than was used of it: %d MiB, %d "
                    "shared CPUs"
                ),
                self.id,
                guest.memory_mib,
                len(guest.shared),
            )
        pages = tuple(
            replace(pool, used=max(used.get(pool.size_kib, pool.used), 0)) for pool in self.pages
        )
        return replace(self, memory_used_mib=max(memory, 0), shared_used=max(cpus, 0), pages=pages)


class DeviceFit(Protocol):
    """The free devices of a host, as one guest can have them. Cells are given by their ids.

    A larger set of cells never costs more than a part of it: what the search leaves out depends on
    that.
    """

    @property
    def wanted(self) -> bool:
        """Whether the guest wants any device."""

    @property
    def demands(self) -> Sequence[DeviceDemand]:
        """Demands that hold for all sets of cells; they make the search shorter."""

    @property
    def steps(self) -> int:
        """How many lots of devices were searched so far."""

    def free(self, cell: int) -> int:
        """Return the number of wanted devices on the cell; for a guest that wants none, the number
        of all devices there.
        """

    def kind(self, cell: int) -> Hashable:
        """Return a value that is equal for cells whose devices are interchangeable, if the cells
        are equally far from all others.
        """

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """Return how many wanted devices would not be local, and the sum of their distances to the
        nearest cell; None if not all can be had.

        :raises Undecided: the search was given up.
        """

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:
        """Return a lower bound of the cost for any part of ``cells``; None if the devices cannot be
        had.
        """


class NoDeviceFit:
    """Devices of a guest that wants none, on a host without any."""

    wanted = False
    demands = ()
    steps = 0

    def free(self, cell: int) -> int:  # noqa: ARG002
        """Return 0."""
        return 0

    def kind(self, cell: int) -> Hashable:  # noqa: ARG002
        """Return the same value for all cells."""
        return None

    def cost(self, cells: frozenset[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Return no cost."""
        return 0, 0

    def least(self, cells: frozenset[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Return no cost."""
        return 0, 0


Strategy = Literal["spread", "pack"]


def preferred(
    host: Sequence[HostCell], guest: Guest, devices: DeviceFit, strategy: Strategy
) -> list[int]:
    """Return the positions of the cells, most wanted first: by devices, then CPUs, then memory,
    then the given order.

    The given order if the guest needs all cells.
    """
    sign = 1 if strategy == "spread" else -1

    def key(column: int) -> tuple[int, int, int]:
        cell = host[column]
        # A guest without devices leaves the cells that have some to other guests.
        near = -devices.free(cell.id) if devices.wanted else devices.free(cell.id)
        cpus = -len(cell.free_dedicated) if guest.pinned else cell.shared_used
        return near, sign * cpus, sign * -cell.free_memory_mib

    columns = range(len(host))
    return sorted(columns, key=key) if len(guest.cells) < len(host) else list(columns)


TUNNELS = "[neutron_tunnel] numa_nodes"


@dataclass(frozen=True, slots=True)
class NetworkAffinity:
    """The cells that networks are local to. A network that is not named is local to no cell."""

    physnets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Physical network to the ids of its cells, at least one each."""
    tunneled: frozenset[int] = frozenset()
    """The cells where tunnels end."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the affinity of the options.

        :raises ConfigErrors: all options that are wrong on any host.
        """
        nodes = devices.physnet_nodes(conf)
        ConfigErrors.raise_if_any([*_nameless(nodes)])
        return cls(
            {name: frozenset(cells) for name, cells in nodes.items()},
            frozenset(conf.neutron_tunnel.numa_nodes),
        )

    def misplaced(self, present: Sequence[int]) -> Iterator[ConfigError]:
        """Yield an error for every cell that the host does not have. ``present``: the ids of its
        cells.
        """
        has = f"the host has {', '.join(str(cell) for cell in sorted(present)) or 'none'}"
        for option, cells in [
            *((_option(name), cells) for name, cells in self.physnets.items()),
            (TUNNELS, self.tunneled),
        ]:
            for cell in sorted(cells.difference(present)):
                yield ConfigError(f"{option}: NUMA node {cell} is not there", has)


def _nameless(nodes: Mapping[str, Sequence[int]]) -> Iterator[ConfigError]:
    for name, cells in nodes.items():
        if not name:
            yield ConfigError(
                "[neutron] physnets: a physical network has no name",
                "remove the comma too many",
            )
        elif not cells:
            yield ConfigError(
                f"{_option(name)} is not set, although [neutron] physnets names {printable(name)}",
                "list its NUMA nodes, or remove it there",
            )


def _option(name: str) -> str:
    return f"[{printable(devices.physnet_group(name))}] numa_nodes"


ORDINARY_KIB = 4


def page_pools(cell: Cell) -> tuple[PagePool, ...]:
    """Return the cell's pools of huge pages, and one of ordinary pages, which are the rest of the
    memory.

    Drivers report only huge pages, because a host does not show the size of the others. 4 KiB is
    assumed for all hosts: the size makes a difference only to a guest that asks for exactly this
    number, because amounts in MiB are multiples of every ordinary size.
    """
    if any(pool.size_kib <= ORDINARY_KIB for pool in cell.pages):
        return cell.pages
    huge = sum(pool.size_kib * pool.total for pool in cell.pages)
    return (
        PagePool(ORDINARY_KIB, max(cell.memory_mib * 1024 - huge, 0) // ORDINARY_KIB),
        *cell.pages,
    )


OPTION = "[DEFAULT] reserved_huge_pages"
SHAPE = "write it like node:0,size:2048,count:64"
KEYS = ("node", "size", "count")

ReservedPages = Mapping[tuple[int, int], int]
"""(cell, size in KiB) to the number of pages kept for the host."""


def parse_reserved_pages(texts: Sequence[str]) -> ReservedPages:
    """Return the reservations of all ``texts``.

    :raises ConfigErrors: all texts that are wrong on any host.
    """
    errors: list[ConfigError] = []
    pages: dict[tuple[int, int], int] = {}
    for text in texts:
        try:
            node, size, count = _entry(text)
            if (node, size) in pages:
                raise ConfigError(
                    f"pages of {size} KiB on node {node} are reserved twice",
                    "leave one of the two out",
                )
            pages[node, size] = count
        except ConfigError as error:
            errors.append(
                ConfigError(f"{OPTION} = {printable(text)}: {error.message}", error.remedy)
            )
    ConfigErrors.raise_if_any(errors)
    return pages


def unreservable(pages: ReservedPages, topology: Topology) -> Iterator[tuple[str, str]]:
    """Yield what and the remedy for every reservation that the host cannot give in full. It is no
    error, as in nova: pages may be made after the boot, and one file may serve several kinds of
    hosts.
    """
    cells = {cell.id: cell for cell in topology.cells}
    for (node, size), count in pages.items():
        what = f"{OPTION} = node:{node},size:{size},count:{count}"
        if node not in cells:
            yield (
                f"{what}: node {node} is not there",
                f"take the entry out; the host has the nodes {', '.join(map(str, cells))}",
            )
            continue
        totals = {pool.size_kib: pool.total for pool in page_pools(cells[node])}
        if size not in totals:
            yield (
                f"{what}: node {node} has no pages of {size} KiB",
                f"take the entry out; the node has pages of {', '.join(map(str, sorted(totals)))} "
                "KiB",
            )
        elif count > totals[size]:
            yield (
                f"{what}: node {node} has only {number_of(totals[size], 'page')} of {size} KiB",
                f"reserve fewer, or make them: echo {count} > /sys/devices/system/node/node{node}/"
                f"hugepages/hugepages-{size}kB/nr_hugepages",
            )


def _entry(text: str) -> tuple[int, int, int]:
    items = [item.partition(":") for item in text.split(",") if item.strip()]
    given = {key.strip(): value.strip() for key, _, value in items}
    if unknown := [key for key in given if key not in KEYS]:
        raise ConfigError(f"{printable(unknown[0])} is not known", SHAPE)
    if len(given) < len(items):
        raise ConfigError("a key is given twice", SHAPE)
    if missing := [key for key in KEYS if not given.get(key)]:
        raise ConfigError(f"{missing[0]} is missing", SHAPE)
    for key in ("node", "count"):
        if not (given[key].isascii() and given[key].isdecimal()):
            raise ConfigError(f"{key} {printable(given[key])!r} is no number", SHAPE)
    try:
        return int(given["node"]), parse_page_size(given["size"]), int(given["count"])
    except ValueError as error:
        raise ConfigError(f"size {printable(given['size'])!r} is {error}", SHAPE) from error


def host_cells(
    topology: Topology,
    online: frozenset[int],
    sleeping: frozenset[int],
    shared: frozenset[int] | None,
    dedicated: frozenset[int] | None,
    reserved_pages: ReservedPages,
    networks: NetworkAffinity,
) -> tuple[HostCell, ...]:
    """Return the cells before any guest. ``shared`` and ``dedicated``: the host CPUs that the
    operator offers to each kind of guest CPUs; ``sleeping``: dedicated ones that are woken up for
    their guest.

    A kind without a set gets no CPUs if the other one has a set; without any set both get all.
    Usage is never read from the host, because only the guests' records say what is promised.
    """
    everything = (
        frozenset[int]().union(*(cell.cpus for cell in topology.cells))
        if shared is None and dedicated is None
        else frozenset[int]()
    )
    for_shared, for_dedicated = (
        everything if kind is None else kind for kind in (shared, dedicated)
    )

    def host_cell(cell: Cell) -> HostCell:
        for_pins = for_dedicated & (online | sleeping)
        offered = cell.cpus & (online & for_shared | for_pins)
        return HostCell(
            cell.id,
            cell.cpus & online & for_shared,
            cell.cpus & for_pins,
            cell.memory_mib,
            siblings=tuple(core & offered for core in cell.siblings if core & offered),
            pages=tuple(
                Pages(
                    pool.size_kib,
                    pool.total,
                    reserved=min(reserved_pages.get((cell.id, pool.size_kib), 0), pool.total),
                )
                for pool in page_pools(cell)
            ),
            physnets=frozenset(
                name for name, cells in networks.physnets.items() if cell.id in cells
            ),
            tunneled=cell.id in networks.tunneled,
            socket=cell.socket,
            distances=cell.distances,
            offline=cell.cpus & for_dedicated - for_pins,
        )

    return tuple(host_cell(cell) for cell in topology.cells)


def is_displaced(cells: Iterable[HostCell], placed: Iterable[PlacedCell]) -> bool:
    """Whether some of ``placed`` is on a cell that the host does not have, or on CPUs of another
    cell: the host changed since.
    """
    by_id = {cell.id: cell for cell in cells}
    return any(
        one.host_cell not in by_id
        or any(
            cell.id != one.host_cell and not cell.cpus.isdisjoint(one.pinned_cpus)
            for cell in by_id.values()
        )
        for one in placed
    )


def count_guests(cells: Iterable[HostCell], placed: Iterable[PlacedCell]) -> tuple[HostCell, ...]:
    """Return the cells with all of ``placed``; the order of these does not matter.

    :raises CellUsageError: two of them have the same CPU, or one is on a cell that the host does
        not have.
    """
    by_id = {cell.id: cell for cell in cells}
    for cell in placed:
        if cell.host_cell not in by_id:
            raise CellUsageError(
                f"a guest is placed on cell {cell.host_cell}, which the host does not have",
                "the host changed under the guest",
            )
        by_id[cell.host_cell] = by_id[cell.host_cell].with_guest(cell)
    return tuple(by_id.values())
