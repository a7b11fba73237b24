"""Which cells a network is local to, as the operator says it. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from oslo_config import cfg

from agent.conf import neutron, neutron_tunnel
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

TUNNELS = f"[{neutron_tunnel.GROUP}] numa_nodes"


@dataclass(frozen=True, slots=True)
class NetworkAffinity:
    """Physnet to the ids of its cells, at least one each; the cells that tunnels end on. A network not named is local nowhere."""

    physnets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    tunneled: frozenset[int] = frozenset()

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """The affinity that the options say.

        :raises ConfigErrors: everything that is wrong with them, whatever the host has.
        """
        nodes = neutron.physnet_nodes(conf)
        errors = [*_nameless(nodes)]
        if errors:
            raise ConfigErrors(errors)
        return cls({name: frozenset(cells) for name, cells in nodes.items()}, frozenset(conf[neutron_tunnel.GROUP].numa_nodes))

    def misplaced(self, present: Sequence[int]) -> Iterator[ConfigError]:
        """Every cell that the host does not have; ``present`` are the ids of those that it has."""
        has = f"the host has {', '.join(str(cell) for cell in sorted(present)) or 'none'}"
        for option, cells in [*((_option(name), cells) for name, cells in self.physnets.items()), (TUNNELS, self.tunneled)]:
            for cell in sorted(cells.difference(present)):
                yield ConfigError(f"{option}: NUMA node {cell} is not there", has)


def _nameless(nodes: Mapping[str, Sequence[int]]) -> Iterator[ConfigError]:
    for name, cells in nodes.items():
        if not name:
            yield ConfigError(f"[{neutron.GROUP}] physnets: a physical network has no name", "remove the comma too many")
        elif not cells:
            what = f"{_option(name)} is not set, although [{neutron.GROUP}] physnets names {printable(name)}"
            yield ConfigError(what, "list its NUMA nodes, or remove it there")


def _option(name: str) -> str:
    return f"[{printable(neutron.physnet_group(name))}] numa_nodes"
