"""Operator's options for the cells of a host: CPU sets, reserved pages, networks, preference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self, TypeVar

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.names import printable
from agent.model.topology import Topology, format_cpu_list, parse_cpu_list
from agent.numa.devices import Strategy
from agent.numa.host import HostCell
from agent.numa.host_cells import (
    NetworkAffinity,
    ReservedPages,
    host_cells,
    parse_reserved_pages,
    unreservable,
)

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

    def offline(
        self, online: frozenset[int], sleeping: frozenset[int] = frozenset()
    ) -> Iterator[ConfigError]:
        """Yield an error for each set with CPUs that are not online. ``sleeping``: dedicated CPUs
        that are offline and are offered all the same.
        """
        for option, cpus in self._sets():
            if missing := cpus - online - (sleeping if option == DEDICATED else frozenset()):
                what = (
                    f"CPUs {format_cpu_list(missing)} not online, online are "
                    f"{format_cpu_list(online)}"
                )
                yield ConfigError(f"{option}: {what}", "take them out of the set")

    def contradictions(self, topology: Topology, online: frozenset[int]) -> Iterator[ConfigError]:
        """Yield an error for every other contradiction between the policy and the host."""
        present = frozenset[int]().union(*(cell.cpus for cell in topology.cells))
        for option, cpus in self._sets():
            if lost := (cpus & online) - present:
                yield ConfigError(
                    f"{option}: CPUs {format_cpu_list(lost)} are on no NUMA node",
                    f"the nodes have {format_cpu_list(present)}",
                )
        yield from unreservable(self.reserved_pages, topology)
        yield from self.networks.misplaced([cell.id for cell in topology.cells])

    def cells(
        self, topology: Topology, online: frozenset[int], sleeping: frozenset[int] = frozenset()
    ) -> tuple[HostCell, ...]:
        """Return the host's cells before any guest. CPUs, pages and networks that the policy names
        and the host does not have are left out, because the host may have lost them since the
        start.

        ``sleeping``: as in :meth:`offline`.
        """
        return host_cells(
            topology,
            online,
            sleeping,
            self.shared,
            self.pinnable,
            self.reserved_pages,
            self.networks,
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
