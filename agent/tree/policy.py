"""The operator's policy, read once from the options: CPUs and cells, ratios, reserved amounts,
layout, traits, mediated devices, encryption of guests' memory; and warnings about options that are
valid but work differently than in nova, or than they seem to.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import os_resource_classes as orc
from oslo_config import cfg

from agent.conf import default, devices
from agent.conf.default import is_novas
from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.devices import PCI, EncryptionFacts, MdevParent, PciAddress, Technique, parent_name
from agent.model.inventory import MAX_RATIO
from agent.model.names import format_cpu_list, is_custom, is_token, name_first, printable
from agent.numa.host_policy import DEDICATED, PIN_SET, SHARED, HostPolicy
from agent.pci.settings import PciSettings

LOG = logging.getLogger(__name__)

OPTION = "[devices] enabled_mdev_types"

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
    promised: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By parent and type: how many devices claims, or allocations without a record, have there that
    are not made yet.
    """

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the policy that the options set. A second type without parents is left out, with a
        warning.

        :raises ConfigErrors: everything that is wrong with them, whatever the host has.
        """
        devices.register_types(conf)
        errors: list[ConfigError] = []
        found = [
            _type(conf, name, errors) for name in dict.fromkeys(conf.devices.enabled_mdev_types)
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
        """Yield what :meth:`dealt` does, without the parents for which nothing remains."""
        return (each for each in self.dealt(parents) if each[2])

    def dealt(self, parents: Iterable[MdevParent]) -> Iterator[tuple[MdevParent, MdevType, int]]:
        """Yield the parents that can have devices of their type, ordered by name, each with its
        type and the number of devices that are offered there.

        A type with ``max_instances`` offers that many in all: those that exist or are promised
        first, wherever they are; the last parents get the remainder.
        """
        typed = [
            (
                parent,
                kind,
                parent.made(kind.name) + self.promised.get((parent.name, kind.name), 0),
            )
            for parent in sorted(parents, key=lambda parent: parent.name)
            if (kind := self.type_of(parent.name)) is not None
        ]
        left = {kind.name: kind.max_instances for kind in self.types}
        for _, kind, taken in typed:
            if (limit := left[kind.name]) is not None:
                left[kind.name] = max(limit - taken, 0)
        for parent, kind, taken in typed:
            total, limit = parent.total(kind.name), left[kind.name]
            if not total:
                continue
            if limit is not None:
                total = min(total, taken + limit)
                left[kind.name] = limit - max(total - taken, 0)
            yield parent, kind, total

    def mediated(self, parents: Iterable[MdevParent]) -> Mapping[PciAddress, str]:
        """Return the PCI functions that are offered in parts, with their types."""
        return {
            PciAddress.parse(parent.name): kind.name
            for parent, kind, _ in self.offered(parents)
            if parent.bus == PCI
        }

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
        errors.append(
            ConfigError(
                (
                    f"{option} mdev_class = {printable(resource_class)}: it is neither VGPU nor a "
                    "custom resource class"
                ),
                "use CUSTOM_ and A-Z, 0-9 and _, or remove it",
            )
        )
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
        options = conf.libvirt
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


Layout = Literal["nested", "flat"]

# Below, a million of anything gives nothing.
LEAST_RATIO = 1e-6
RATIOS = [
    f"{initial}{what}_allocation_ratio"
    for what in ("cpu", "ram", "disk")
    for initial in ("", "initial_")
]


@dataclass(frozen=True, slots=True)
class Ratio:
    """An overcommit ratio: ``configured`` wins, then the one in Placement, then ``initial``."""

    configured: float | None = None
    initial: float = 1.0

    def of(self, present: float | None) -> float:
        """Return the ratio to use; ``present`` is the one in Placement. Zero counts as not set."""
        return self.configured or present or self.initial


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator decided about the tree."""

    host: HostPolicy = field(default_factory=HostPolicy)
    cpu_ratio: Ratio = Ratio(initial=4.0)
    memory_ratio: Ratio = Ratio()
    disk_ratio: Ratio = Ratio()
    reserved_cpus: int = 0
    reserved_memory_mib: int = 512
    reserved_disk_mib: int = 0
    layout: Layout | None = None
    """None: as the existing root has it, and :attr:`new_layout` for a new one."""
    owner_trait: str = "OWNER_NOVA"
    """The trait that marks the providers of this owner."""
    enabled: bool | None = None
    """Whether the node may take instances; None: its status trait stays as it is."""
    purge_after: float | None = None
    """Seconds after which allocations are removed that no record knows; None for never."""
    strict: bool = False
    """Cells count shared CPUs and memory too."""
    page_classes: bool = False
    """Huge pages are counted by their size, in classes of their own."""
    on_root: frozenset[str] = frozenset()
    """Classes of children that are counted on the root all the same."""
    mdev: MdevPolicy = field(default_factory=MdevPolicy)
    encryption: EncryptionPolicy = field(default_factory=EncryptionPolicy)
    new_layout: Layout = "nested"
    """Of a new node, if no layout is configured."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the policy that the options set.

        :raises ConfigErrors: everything that is wrong with them.
        """
        errors: list[ConfigError] = []
        with gathering(errors):
            host = HostPolicy.from_options(conf)
        with gathering(errors):
            mdev = MdevPolicy.from_options(conf)
        owner = conf.compute.owner_trait
        if not is_token(owner):
            errors.append(
                ConfigError(
                    f"[compute] owner_trait = {printable(owner)}: no trait has such a name",
                    "use A-Z, 0-9 and _, like OWNER_NOVA",
                )
            )
        errors += [
            ConfigError(
                f"[DEFAULT] {option} = {conf[option]}: not a number from 0 to {MAX_RATIO}",
                "correct or remove it",
            )
            for option in RATIOS
            if conf[option] is not None and not 0 <= conf[option] <= MAX_RATIO
        ]
        errors += [
            # With such a ratio Placement would offer nothing of the class, and keep it.
            ConfigError(
                f"[DEFAULT] {option} = {conf[option]}: not above {LEAST_RATIO:g}, so that nothing "
                "would be offered",
                "give a higher ratio, or remove it",
            )
            for option in RATIOS
            if conf[option] is not None
            and 0 <= conf[option] < LEAST_RATIO
            # Another one than an initial ratio counts as not set if it is 0.
            and (conf[option] or option.startswith("initial_"))
        ]
        ConfigErrors.raise_if_any(errors)
        return cls(
            host=host,
            cpu_ratio=Ratio(conf.cpu_allocation_ratio, conf.initial_cpu_allocation_ratio),
            memory_ratio=Ratio(conf.ram_allocation_ratio, conf.initial_ram_allocation_ratio),
            disk_ratio=Ratio(conf.disk_allocation_ratio, conf.initial_disk_allocation_ratio),
            reserved_cpus=conf.reserved_host_cpus,
            reserved_memory_mib=conf.reserved_host_memory_mb,
            reserved_disk_mib=conf.reserved_host_disk_mb,
            layout=conf.compute.tree_layout,
            new_layout="flat" if is_novas(conf) else "nested",
            strict=conf.compute.numa_mode == "strict",
            page_classes=conf.compute.memory_page_classes,
            on_root=frozenset(conf.compute.counted_on_root),
            owner_trait=owner,
            enabled=conf.enabled,
            purge_after=conf.compute.purge_unknown_allocations_grace
            if conf.compute.purge_unknown_allocations
            else None,
            mdev=mdev,
            encryption=EncryptionPolicy.from_options(conf),
        )

    @property
    def configured_ratios(self) -> Mapping[str, float]:
        """The ratios that the operator set, by resource class."""
        ratios = {
            orc.VCPU: self.cpu_ratio,
            orc.MEMORY_MB: self.memory_ratio,
            orc.DISK_GB: self.disk_ratio,
        }
        return {name: ratio.configured for name, ratio in ratios.items() if ratio.configured}

    @property
    def reserved_disk_gib(self) -> int:
        """GiB, rounded up, so that rounding reserves no less than the option says."""
        return -(-self.reserved_disk_mib // 1024)


def affinity_warning(policy: Policy, pci: PciSettings) -> str | None:
    """Return a warning about devices below their cells while all CPUs are counted on the root,
    which is above every cell; None if that is not so.
    """
    if (
        policy.layout != "nested"
        or not (pci.report and pci.specs)
        or policy.host.dedicated is not None
    ):
        return None
    return (
        "the tree is nested and has devices below its cells, but all CPUs are on the root: "
        "same_subtree of both does not show how near they are; "
        "set [compute] cpu_dedicated_set, or ask for HW_NUMA_ROOT in a group of its own"
    )


# Where nova looks for provider files by default.
NOVA_PROVIDER_CONFIG = Path("/etc/nova/provider_config")


def option_warnings(
    conf: cfg.ConfigOpts, driver: str, policy: Policy, pci: PciSettings
) -> Iterator[str]:
    """Yield one line for each warning. ``driver``: the driver's canonical name."""
    if (affinity := affinity_warning(policy, pci)) is not None:
        yield affinity
    yield from _cpu_sets(conf, policy)
    yield from _provider_config(conf)
    yield from pci.warnings
    for unused in default.UNUSED:
        section, name = unused.group, unused.option.dest
        value = conf[section][name] if section else conf[name]
        if unused.matters(value) and unused.driver in (None, driver):
            yield (
                f"[{section or 'DEFAULT'}] {name} = {_text(value)} has no effect here: "
                f"{unused.instead}"
            )


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value).lower()


def _cpu_sets(conf: cfg.ConfigOpts, policy: Policy) -> Iterator[str]:
    """Yield warnings about options for CPU sets."""
    host = policy.host
    if host.pin_set:
        cpus = format_cpu_list(host.shared or frozenset())
        yield (
            f"{PIN_SET} = {cpus} is nova's old option: its CPUs are VCPU, for dedicated guest CPUs "
            f"too; write {SHARED} and {DEDICATED} instead, and remove it"
        )
        if conf.compute.cpu_shared_set:
            yield (
                f"{SHARED} counts nothing beside {PIN_SET}, as in nova: only emulator threads are "
                "meant for it; remove vcpu_pin_set"
            )
    elif policy.reserved_cpus and (host.shared or host.dedicated):
        of = "they are taken out of VCPU" if host.shared else "it has no effect without VCPU"
        yield (
            f"[DEFAULT] reserved_host_cpus = {policy.reserved_cpus} beside CPU sets, with which "
            f"nova does not start: {of}; leave those CPUs out of the sets"
        )


def _provider_config(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Warn of files in nova's default folder: the agent's default is another one, so a nova.conf
    that sets no folder does not name them.
    """
    where = conf.get_location("provider_config_location", "compute")
    if (
        where is not None
        and where.location is cfg.Locations.opt_default
        and (files := sorted(NOVA_PROVIDER_CONFIG.glob("*.yaml")))
    ):
        names = printable(name_first([file.name for file in files]))
        yield (
            f"{NOVA_PROVIDER_CONFIG}/ has {names}, which nova reads and the agent does not: set "
            "[compute] provider_config_location"
        )
