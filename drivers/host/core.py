"""The cores of a cell: which of its online CPUs share a core, and which packages they belong to."""

from collections.abc import Iterable
from dataclasses import dataclass

from drivers.host.cpu import FOLDER
from drivers.host.sysfs import Sysfs

# The newest kernels may drop the first name, the oldest know only it; recordings of very old ones
# have only maps.
_THREADS = ("thread_siblings_list", "core_cpus_list", "thread_siblings", "core_cpus")


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores and packages of some CPUs."""

    siblings: tuple[frozenset[int], ...]
    """Disjoint sets of CPUs, ordered by their lowest CPU."""
    sockets: frozenset[int]
    """The packages, as far as the kernel reports them."""


def read_cores(sysfs: Sysfs, cpus: frozenset[int]) -> Cores:
    """Return the cores of ``cpus``, the online CPUs of one cell. Only one CPU of each core is read.

    A CPU for which the kernel lists no siblings is a core of its own.

    :raises DriverError: a file cannot be read, or the cores overlap.
    """
    siblings: list[frozenset[int]] = []
    sockets: set[int] = set()
    seen: set[int] = set()
    for cpu in sorted(cpus):
        if cpu in seen:
            continue
        threads = _threads(sysfs, cpu, cpus)
        if threads & seen or cpu not in threads:
            raise sysfs.fault(
                f"{FOLDER}/cpu{cpu}/topology",
                f"its siblings {sorted(threads)} contradict those of another CPU",
            )
        seen |= threads
        siblings.append(threads)
        sockets.update(_package(sysfs, cpu))
    return Cores(tuple(siblings), frozenset(sockets))


def _threads(sysfs: Sysfs, cpu: int, cpus: frozenset[int]) -> frozenset[int]:
    threads = sysfs.optional_cpus(*(f"{FOLDER}/cpu{cpu}/topology/{name}" for name in _THREADS))
    return frozenset({cpu}) if threads is None else threads & cpus


def _package(sysfs: Sysfs, cpu: int) -> Iterable[int]:
    package = sysfs.optional_integer(f"{FOLDER}/cpu{cpu}/topology/physical_package_id")
    # -1 is the kernel's word for "the firmware does not say".
    return () if package is None or package < 0 else (package,)
