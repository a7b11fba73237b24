"""Amounts of the three resources that every guest has."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Amounts:
    """Memory and disk in MiB, CPUs in whole ones."""

    memory_mb: int = 0
    vcpus: int = 0
    disk_mb: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(self.memory_mb + other.memory_mb, self.vcpus + other.vcpus, self.disk_mb + other.disk_mb)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.memory_mb - other.memory_mb, self.vcpus - other.vcpus, self.disk_mb - other.disk_mb)


NOTHING = Amounts()
