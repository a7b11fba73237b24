"""A flavor: what one kind of guest gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class Amounts:
    """Memory and disk in MiB, CPUs in whole ones."""

    memory_mb: int = 0
    vcpus: int = 0
    disk_mb: int = 0

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
    """``id`` tells flavors apart. Memory and swap in MiB, root and ephemeral disk in GiB."""

    id: str
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    def amounts(self, *, volume_backed: bool) -> Amounts:
        """What a guest takes of its host; the root disk of a volume-backed one is elsewhere."""
        root_gb = 0 if volume_backed else self.root_gb
        return Amounts(
            self.memory_mb, self.vcpus, (root_gb + self.ephemeral_gb) * 1024 + self.swap_mb
        )
