"""Flavor: the resources of one kind of guest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of memory, CPUs and disk."""

    memory_mb: int = 0
    """MiB."""
    vcpus: int = 0
    """Whole CPUs."""
    disk_mb: int = 0
    """MiB."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.memory_mb + other.memory_mb, self.vcpus + other.vcpus, self.disk_mb + other.disk_mb
        )

    def __sub__(self, other: Self) -> Self:
        return type(self)(
            self.memory_mb - other.memory_mb, self.vcpus - other.vcpus, self.disk_mb - other.disk_mb
        )


NOTHING = Amounts()


@dataclass(frozen=True, slots=True)
class Flavor:
    """The resources and extra specs of a guest."""

    id: str
    """Identifies the flavor."""
    name: str
    vcpus: int
    memory_mb: int
    """MiB."""
    root_gb: int = 0
    """GiB."""
    ephemeral_gb: int = 0
    """GiB."""
    swap_mb: int = 0
    """MiB."""
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    def amounts(self, *, volume_backed: bool) -> Amounts:
        """Return what a guest uses of its host; the root disk of a volume-backed guest is not on
        the host.
        """
        root_gb = 0 if volume_backed else self.root_gb
        return Amounts(
            self.memory_mb, self.vcpus, (root_gb + self.ephemeral_gb) * 1024 + self.swap_mb
        )
