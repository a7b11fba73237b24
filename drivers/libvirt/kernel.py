"""What the kernel reports about encrypted guests, and about CPUs and network interfaces where
libvirt does not.
"""

import re
from contextlib import suppress
from pathlib import Path

import psutil

from agent.errors import DriverError
from agent.model.devices import Port
from agent.model.host_units import CAPACITIES, SWITCHES
from agent.model.names import printable
from drivers.libvirt.raw_capabilities import KernelAnswer, KernelCpus


def ask_kernel(sysfs: Path) -> KernelAnswer:
    """Return the texts below ``sysfs``, which is /sys or stands for it.

    :raises DriverError: a file exists and cannot be read.
    """
    switches = {
        technique: text
        for technique, path in SWITCHES.items()
        if (text := _text(sysfs / path)) is not None
    }
    capacities = (text for path in CAPACITIES if (text := _text(sysfs / path)) is not None)
    return KernelAnswer(switches, next(capacities, None) if switches else None)


def ask_cpus(sysfs: Path) -> KernelCpus:
    """Return what is below ``sysfs`` about each CPU, offline ones too. What cannot be read is left
    out.
    """
    cells: dict[int, int] = {}
    siblings: dict[int, str] = {}
    packages: dict[int, str] = {}
    for cpu, folder in _numbered_entries(sysfs / "devices/system/cpu", "cpu"):
        # These links stay when a CPU goes offline, whereas the cell's own list drops it.
        for cell, _ in _numbered_entries(folder, "node"):
            cells[cpu] = cell
        for found, name in ((siblings, "thread_siblings_list"), (packages, "physical_package_id")):
            with suppress(DriverError):
                if (text := _text(folder / "topology" / name)) is not None:
                    found[cpu] = text.strip()
    return KernelCpus(cells, siblings, packages, psutil.virtual_memory().total // 1024**2)


_PORT = re.compile("[0-9]{1,5}")


def ask_ports(sysfs: Path) -> dict[str, Port]:
    """Return the network interfaces below ``sysfs`` that belong to a device, by name."""
    found: dict[str, Port] = {}
    # Those of guests and bridges belong to none.
    for device in (sysfs / "class/net").glob("*/device"):
        texts = {"phys_port_name": "", "dev_port": ""}
        for name in texts:
            # The kernel refuses to read the name of a port that has none.
            with suppress(DriverError):
                texts[name] = (_text(device.with_name(name)) or "").strip()
        name, number = device.parent.name, texts["dev_port"]
        found[name] = Port(
            name, texts["phys_port_name"], int(number) if _PORT.fullmatch(number) else 0
        )
    return found


def _numbered_entries(folder: Path, name: str) -> list[tuple[int, Path]]:
    """Return the entries of ``folder`` named ``name`` and a number, with that number."""
    try:
        found = [
            (entry.name.removeprefix(name), entry)
            for entry in folder.iterdir()
            if entry.name.startswith(name)
        ]
    except OSError:
        return []
    return sorted(
        (int(number), entry)
        for number, entry in found
        if number.isascii() and number.isdecimal() and len(number) <= 5
    )


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DriverError(printable(f"{file}: {error.strerror or error}")) from error
