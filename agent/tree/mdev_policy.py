"""The operator's policy for mediated devices (their types, parents and resource classes) and for
encrypted memory (the number of contexts). Read once from the options.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import os_resource_classes as orc
from oslo_config import cfg

from agent.conf import devices, libvirt
from agent.errors import ConfigError, ConfigErrors
from agent.model.host_units import EncryptionFacts, MdevParent, Technique, parent_name
from agent.model.names import is_custom, printable

LOG = logging.getLogger(__name__)

OPTION = f"[{devices.GROUP}] enabled_mdev_types"

_VIRTUAL = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class MdevType:
    """A type of mediated devices that is enabled."""

    name: str
    parents: frozenset[str] = frozenset()
    """The names of the parents of this type; empty: all that no other type names."""
    resource_class: str = orc.VGPU
    max_instances: int | None = None
    """On the whole host; None: as many as the parents offer."""
    max_per_guest: int | None = None
    """Of one parent; None: as many as there are."""


@dataclass(frozen=True, slots=True)
class MdevPolicy:
    """The enabled types of mediated devices."""

    types: tuple[MdevType, ...] = ()
    """At most one of them is without parents."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the policy that the options set. A second type without parents is left out, with a
        warning.

        :raises ConfigErrors: everything that is wrong with them, whatever the host has.
        """
        devices.register_types(conf)
        errors: list[ConfigError] = []
        found = [
            _type(conf, name, errors)
            for name in dict.fromkeys(conf[devices.GROUP].enabled_mdev_types)
        ]
        errors += _claimed_twice(found)
        ConfigErrors.raise_if_any(errors)
        without = [kind for kind in found if not kind.parents]
        for kind in without[1:]:
            LOG.warning(
                (
                    "%s: %s is ignored, because it has no [%s] device_addresses, and %s has all "
                    "parents that no type names"
                ),
                OPTION,
                printable(kind.name),
                printable(devices.type_group(kind.name)),
                printable(without[0].name),
            )
        return cls(tuple(kind for kind in found if kind not in without[1:]))

    def type_of(self, parent: str) -> MdevType | None:
        """Return the type of the parent of that name; None if it has none."""
        named = next((kind for kind in self.types if parent in kind.parents), None)
        return named or next((kind for kind in self.types if not kind.parents), None)

    def offered(self, parents: Iterable[MdevParent]) -> Iterator[tuple[MdevParent, MdevType, int]]:
        """Yield the parents that have a type, ordered by name, each with its type and the number of
        devices that guests can have there.

        A type with ``max_instances`` offers that many in all: the last parents get the remainder,
        and a parent for which nothing remains is left out.
        """
        left = {kind.name: kind.max_instances for kind in self.types}
        for parent in sorted(parents, key=lambda parent: parent.name):
            kind = self.type_of(parent.name)
            if kind is None:
                continue
            total, limit = parent.total(kind.name), left[kind.name]
            if limit is not None:
                total = min(total, limit)
                left[kind.name] = limit - total
            if total:
                yield parent, kind, total

    @property
    def classes(self) -> frozenset[str]:
        """The resource classes of all types."""
        return frozenset(kind.resource_class for kind in self.types)


def _type(conf: cfg.ConfigOpts, name: str, errors: list[ConfigError]) -> MdevType:
    """Return the type called ``name`` from its section; errors are added to ``errors``."""
    group = devices.type_group(name)
    section, option = conf[group], f"[{printable(group)}]"
    if not name:
        errors.append(ConfigError(f"{OPTION}: a type has no name", "remove the comma too many"))
    resource_class = section.mdev_class
    if resource_class != orc.VGPU and not is_custom(resource_class):
        what = (
            f"{option} mdev_class = {printable(resource_class)}: it is neither VGPU nor a custom "
            "resource class"
        )
        errors.append(ConfigError(what, "use CUSTOM_ and A-Z, 0-9 and _, or remove it"))
    parents = frozenset(_parents(section.device_addresses, f"{option} device_addresses", errors))
    return MdevType(name, parents, resource_class, section.max_instances, section.max_per_guest)


def _parents(addresses: Sequence[str], option: str, errors: list[ConfigError]) -> Iterator[str]:
    """Yield the names of the parents in ``addresses``; errors are added to ``errors``."""
    for text in addresses:
        try:
            name = parent_name(text)
            if _VIRTUAL.fullmatch(name.replace(":", "")) is None:
                raise ValueError(f"{text!r} is no name of a device")
        except ValueError as error:
            errors.append(
                ConfigError(
                    f"{option}: {printable(str(error))}",
                    "give PCI addresses like 0000:84:00.0, or names of virtual parents like mtty",
                )
            )
        else:
            yield name


def _claimed_twice(types: Sequence[MdevType]) -> Iterator[ConfigError]:
    """Yield an error for each parent that several types name."""
    for parent, count in sorted(
        Counter(parent for kind in types for parent in kind.parents).items()
    ):
        if count > 1:
            claimants = " and ".join(
                f"[{printable(devices.type_group(kind.name))}]"
                for kind in types
                if parent in kind.parents
            )
            yield ConfigError(
                f"{claimants} device_addresses: each has {printable(parent)}",
                "leave it in one of them: a parent has one type",
            )


# Techniques that num_memory_encrypted_guests limits. The option is older than the others, whose
# limit the hardware states.
LIMITED: frozenset[Technique] = frozenset({"sev", "tdx"})


@dataclass(frozen=True, slots=True)
class EncryptionPolicy:
    """The operator's limits of encryption contexts."""

    guests: int | None = None
    """The most contexts of SEV and of TDX each; None: no limit configured."""
    tdx_guests: int | None = None
    """The most contexts of TDX; None: no limit configured."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the policy that the options set."""
        options = conf[libvirt.GROUP]
        return cls(options.num_memory_encrypted_guests, options.num_intel_tdx_guests)

    def contexts(self, facts: EncryptionFacts, technique: Technique) -> int:
        """Return how many contexts of the technique the host offers: the least of what host and
        operator say; 0 if neither sets a limit.
        """
        found = facts.contexts.get(technique, 0)
        if found == 0:
            return 0
        limits = (
            self.guests if technique in LIMITED else None,
            self.tdx_guests if technique == "tdx" else None,
        )
        return min((limit for limit in (found, *limits) if limit is not None), default=0)
