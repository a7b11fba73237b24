"""The cores of a cell: which of its online CPUs share one, and which packages they belong to."""

from collections.abc import Iterable
from dataclasses import dataclass

from drivers.host.cpu import FOLDER
from drivers.host.sysfs import Sysfs

# Newest kernels may drop the first name, oldest ones know only it; recordings of very old ones have
# only maps.
_THREADS = ("thread_siblings_list", "core_cpus_list", "thread_siblings", "core_cpus")


@dataclass(frozen=True, slots=True)
class Cores:
    """``siblings``: disjoint sets of CPUs, by their lowest CPU. ``sockets``: the packages, where
    the kernel says.
    """

    siblings: tuple[frozenset[int], ...]
    sockets: frozenset[int]


def read_cores(sysfs: Sysfs, cpus: frozenset[int]) -> Cores:
    """The cores of ``cpus``, the online CPUs of one cell. One CPU of each core is asked.

    A CPU of which the kernel tells no siblings is a core of its own.

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
