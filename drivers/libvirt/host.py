"""What the driver reads of the host beside libvirt: the disk that guests get, persistent memory,
and what the kernel reports about encrypted guests, CPUs and network interfaces.
"""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent.driver.interface import GIB, read_total_gib
from agent.errors import ConfigError, ConfigErrors, DriverError
from agent.model.devices import CAPACITIES, PMEM_PREFIX, SWITCHES, AssignableUnit, Port
from agent.model.names import printable
from drivers.libvirt.raw_capabilities import KernelAnswer, KernelCpus
from drivers.libvirt.settings import DiskSettings

DEADLINE = 30.0
"""Seconds."""


def output_of(command: Sequence[str], deadline: float = DEADLINE) -> str:
    """Return what the command prints. To be called in a worker, because a process that cannot be
    killed is waited for.

    :raises DriverError: it is not installed, fails, or takes longer than ``deadline`` seconds.
    """
    name = command[0]
    try:
        done = subprocess.run(  # noqa: S603 - no shell # nosec B603
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline, check=False
        )
    except FileNotFoundError as error:
        raise DriverError(
            f"the command {name} is not installed",
            f"install {name}, or change what asks for it in [libvirt]",
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverError(printable(f"the command {name} failed: {error}")) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        raise DriverError(
            printable(f"the command {name} failed with {done.returncode}: {lines[-1][:300]}"),
            f"run {printable(' '.join(command))} by hand",
        )
    return done.stdout.decode(errors="replace")


# The unit of st_blocks, in bytes, whatever the file system.
SECTOR = 512


def read_disk_gib(settings: DiskSettings) -> int:
    """Return the size in GiB, rounded down. To be called in a worker: a network file system or Ceph
    may not answer.

    :raises DriverError: the size cannot be read.
    """
    if settings.kind == "lvm":
        return _volume_group(settings.volume_group) // GIB
    if settings.kind == "rbd":
        return _pool(settings) // GIB
    return read_total_gib(settings.folder)


def read_image_cache_gib(settings: DiskSettings) -> int:
    """Return the GiB, rounded up, that cached images take of the disk for guests; 0 if they are on
    another file system, or there are none yet.

    :raises DriverError: the file system does not answer.
    """
    cache = settings.image_cache
    if cache is None:
        return 0
    try:
        if cache.stat().st_dev != settings.folder.stat().st_dev:
            return 0
        with os.scandir(cache) as entries:
            # Their allocated size, because they do not grow to their virtual size.
            taken = sum(_allocated_bytes(entry) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise DriverError(
            printable(f"{cache}: the cached images cannot be measured: {error.strerror}"),
            "let the agent read that folder",
        ) from error
    return -(-taken // GIB)


def _allocated_bytes(entry: "os.DirEntry[str]") -> int:
    """Return the allocated bytes of a file, 0 of one that was removed since the listing."""
    try:
        return entry.stat().st_blocks * SECTOR if entry.is_file() else 0
    except FileNotFoundError:
        return 0


# In digits; an exbibyte has 19.
LONGEST_SIZE = 19


def _volume_group(name: str) -> int:
    size = output_of(
        ["vgs", "--noheadings", "--nosuffix", "--units", "b", "--options", "vg_size", "--", name]
    ).strip()
    if not (size.isascii() and size.isdecimal() and len(size) <= LONGEST_SIZE):
        raise DriverError(
            printable(f"vgs says that the volume group {name} has {size[:60]!r} bytes")
        )
    return int(size)


def _pool(settings: DiskSettings) -> int:
    command = ["ceph", "df", "--format", "json"]
    command += ["--id", settings.ceph_user] if settings.ceph_user else []
    command += ["--conf", settings.ceph_conf] if settings.ceph_conf else []
    text = output_of(command)
    try:
        pools = json.loads(text)["pools"]
        (found,) = [pool["stats"] for pool in pools if pool["name"] == settings.pool]
        # What can still be written plus what is stored, both without replicas: ``bytes_used``
        # includes replicas where there is ``stored``.
        stored = found["stored"] if "stored" in found else found["bytes_used"]
        return int(found["max_avail"]) + int(stored)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DriverError(
            printable(f"ceph df reports no size of the pool {settings.pool}"),
            "see [libvirt] images_rbd_pool, and whether rbd_user may see it",
        ) from error


OPTION = "[libvirt] pmem_namespaces"
FORM = "write it as label:ns0|ns1,label:ns2, labels of letters, digits and _"

# As long as the name of a resource class allows.
_LABEL = re.compile(rf"[A-Za-z0-9_]{{1,{255 - len(PMEM_PREFIX)}}}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,63}")


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace."""

    name: str
    """Its name in ``ndctl``."""
    label: str
    """The operator's label, which becomes the resource class."""


def configured_namespaces(entries: Sequence[str]) -> tuple[Namespace, ...]:
    """Return the namespaces of the option.

    :raises ConfigErrors: an entry is malformed, or a label or namespace is given twice.
    """
    found: list[Namespace] = []
    errors: list[ConfigError] = []
    labels = Counter(entry.partition(":")[0].strip().upper() for entry in entries)
    for entry in entries:
        label, colon, names = (part.strip() for part in entry.partition(":"))
        namespaces = [name.strip() for name in names.split("|")]
        if (
            not colon
            or not _LABEL.fullmatch(label)
            or not all(map(_NAMESPACE.fullmatch, namespaces))
        ):
            errors.append(
                ConfigError(printable(f"{OPTION}: {entry!r} is no label with its namespaces"), FORM)
            )
            continue
        found += [Namespace(name, label) for name in namespaces]
    names_given = Counter(namespace.name for namespace in found)
    errors += [
        ConfigError(printable(f"{OPTION}: the {what} {name} is given {count} times"), remedy)
        for what, counts, remedy in (
            ("label", labels, "give it once"),
            ("namespace", names_given, "give it one label"),
        )
        for name, count in counts.items()
        if count > 1
    ]
    ConfigErrors.raise_if_any(errors)
    return tuple(found)


def read_units(namespaces: Sequence[Namespace]) -> tuple[AssignableUnit, ...]:
    """Return the namespaces as assignable units. To be called in a worker.

    :raises ConfigErrors: the host does not have them all.
    :raises DriverError: the host cannot be asked.
    """
    present = _present_namespaces(output_of(["ndctl", "list", "--namespaces"]))
    absent = [namespace.name for namespace in namespaces if namespace.name not in present]
    if absent:
        what = f"the host has {', '.join(sorted(present)) or 'none'} (ndctl list --namespaces)"
        raise ConfigErrors(
            [
                ConfigError(
                    printable(f"{OPTION}: this host has no namespace {name}"), printable(what)
                )
                for name in absent
            ]
        )
    return tuple(
        AssignableUnit(
            PMEM_PREFIX + namespace.label.upper(),
            namespace.name,
            metadata={"label": namespace.label, **present[namespace.name]},
        )
        for namespace in namespaces
    )


def _present_namespaces(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return what ``ndctl`` lists: by name, the size in bytes and the device of each.

    :raises DriverError: the list cannot be parsed.
    """
    try:
        listed = json.loads(text or "[]")
        # A single namespace may come without the list around it.
        entries = [listed] if isinstance(listed, dict) else listed
        found = {}
        for entry in entries:
            device = (
                entry.get("daxregion", {}).get("devices", [{}])[0].get("chardev")
                or entry.get("chardev")
                or entry.get("blockdev")
                or entry["dev"]
            )
            # A namespace without a name of its own has the kernel's.
            found[str(entry.get("name") or entry["dev"])] = {
                "size": str(entry["size"]),
                "device": str(device),
            }
        return found
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DriverError(
            printable(f"ndctl lists namespaces in a form that is not understood: {text[:80]!r}")
        ) from error


# --- the kernel -----------------------------------------------------------------------------------


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
