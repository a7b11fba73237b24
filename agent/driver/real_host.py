"""What drivers of real hosts share: the size of a file system, and the warning of NUMA nodes that
share CPUs.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import psutil

from agent.errors import DriverError
from agent.model.facts import Cell, format_cpu_list, parse_cpu_list
from agent.model.names import name_first, printable

GIB = 1024**3


def read_total_gib(folder: Path) -> int:
    """Return the size in GiB, rounded down, of the file system of ``folder``, or of its nearest
    parent that exists.

    The parent stands in because the folder is created with the first guest.

    :raises DriverError: the file system does not answer.
    """
    for place in (folder, *folder.parents):
        try:
            return int(psutil.disk_usage(str(place)).total) // GIB
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DriverError(
                printable(f"{folder}: the size of its file system cannot be read: {error.strerror}")
            ) from error
    raise DriverError(printable(f"{folder}: no parent of it exists"))


# --- NUMA nodes that share CPUs -------------------------------------------------------------------

FOLDER = "devices/system/node"


def shared_cpu_warnings(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the warning that ``cells``, as the host shows them, share CPUs; empty if each CPU is
    in one of them.
    """
    seen: set[int] = set()
    twice: set[int] = set()
    found = [*cells]
    for cell in found:
        twice |= seen & cell.cpus
        seen |= cell.cpus
    sharing = [str(cell.id) for cell in found if cell.cpus & twice]
    if not sharing:
        return ()
    return (
        f"NUMA nodes {name_first(sharing)} share CPUs {format_cpu_list(twice)}, as emulated "
        "nodes do (numa=fake): all of the host is counted as cell 0, so that each CPU counts once",
    )


def kernel_warnings(sysfs: Path) -> tuple[str, ...]:
    """Return the same of the NUMA nodes below ``sysfs``, which is /sys or stands for it. Nodes that
    cannot be read are left out: the facts name them.
    """
    return shared_cpu_warnings(_kernel_cells(sysfs / FOLDER))


def _kernel_cells(folder: Path) -> Iterable[Cell]:
    for node in sorted(folder.glob("node*")):
        if re.fullmatch(r"node[0-9]{1,5}", node.name) is None:
            continue
        try:
            cpus = parse_cpu_list((node / "cpulist").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        yield Cell(int(node.name.removeprefix("node")), cpus, 0)
