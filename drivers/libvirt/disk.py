"""The size of the disk for guests: a file system, an LVM volume group or a Ceph pool."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from agent.driver.disk_size import GIB, read_total_gib
from agent.errors import DriverError
from agent.model.names import printable
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
        done = subprocess.run(  # noqa: S603
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


def _volume_group(name: str) -> int:
    size = output_of(
        ["vgs", "--noheadings", "--nosuffix", "--units", "b", "--options", "vg_size", "--", name]
    ).strip()
    if not (size.isascii() and size.isdecimal()):
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
        return _bytes(found)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        remedy = "see [libvirt] images_rbd_pool, and whether rbd_user may see it"
        raise DriverError(
            printable(f"ceph df reports no size of the pool {settings.pool}"), remedy
        ) from error


def _bytes(stats: Mapping[str, Any]) -> int:
    """Return what can still be written plus what is stored, both without replicas: ``bytes_used``
    includes replicas where there is ``stored``.
    """
    return int(stats["max_avail"]) + int(
        stats["stored"] if "stored" in stats else stats["bytes_used"]
    )
