"""The operator's policy, read once from the options: CPUs and cells, ratios, reserved amounts,
layout, traits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import os_resource_classes as orc
from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors, gathering
from agent.model.inventory import MAX_RATIO
from agent.model.names import is_token, printable
from agent.numa.host_policy import HostPolicy
from agent.tree.mdev_policy import EncryptionPolicy, MdevPolicy

Layout = Literal["nested", "flat"]

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
    """None: as the existing root has it, and nested for a new one."""
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
