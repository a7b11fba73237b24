"""Which cells a network is local to, as the operator says it. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable


@dataclass(frozen=True, slots=True)
class NetworkAffinity:
    """Physnet to the ids of its cells, at least one each; the cells that tunnels end on. A network not named is local nowhere."""

    physnets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    tunneled: frozenset[int] = frozenset()


def network_affinity(physnets: Mapping[str, Sequence[str]], tunnels: Sequence[str], present: Sequence[int]) -> NetworkAffinity:
    """Read the cells of each physnet and those of tunnels, as written; ``present`` are the ids of the host's cells.

    :raises ConfigErrors: everything that is wrong with them.
    """
    errors: list[ConfigError] = []
    has = f"the host has {', '.join(str(cell) for cell in sorted(present)) or 'none'}"

    def cells(network: str, texts: Sequence[str]) -> frozenset[int]:
        found = set()
        for text in (text.strip() for text in texts):
            if not (text.isascii() and text.isdecimal()):
                errors.append(ConfigError(f"{network}: NUMA node {printable(text)!r} is no number", has))
            elif int(text) not in present:
                errors.append(ConfigError(f"{network}: NUMA node {int(text)} is not there", has))
            else:
                found.add(int(text))
        return frozenset(found)

    for name, texts in physnets.items():
        if not texts:
            errors.append(ConfigError(f"physical network {printable(name)}: no NUMA node given", has))
    affinity = NetworkAffinity({name: cells(f"physical network {printable(name)}", texts) for name, texts in physnets.items()}, cells("tunnels", tunnels))
    if errors:
        raise ConfigErrors(errors)
    return affinity
