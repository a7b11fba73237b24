"""Recordings of real machines, which are not part of this tree: ``$SHARED``, or ``../shared``
beside the checkout.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support import backends

FOLDER = Path("data", "hosts")
HOSTS = Path(os.environ.get("SHARED") or Path(__file__).parents[3] / "shared") / FOLDER
ABSENT = backends.reason(
    "recordings of real machines", f"set SHARED to a folder that has them in {FOLDER}"
)
RECORDINGS = sorted(
    path.name.removesuffix(".tar.bz2") for path in (HOSTS / "sysfs").glob("*.tar.bz2")
)


def of_each(names: Iterable[str]) -> list[Any]:
    """Return the parameters of a test that runs once for each of these recordings; none is a part
    that is missing.
    """
    return list(names) or [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))]


def sysfs_root(name: str, folder: Path) -> Path:
    """Unpack a recording below ``folder``; its root."""
    with tarfile.open(HOSTS / "sysfs" / f"{name}.tar.bz2") as archive:
        # Not the links to memory blocks: thousands that nobody reads.
        members = [
            member for member in archive if "/node/node" not in member.name or not member.issym()
        ]
        # not by argument, because Debian's Python 3.11.2 does not have it yet
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(folder, members)
    return folder / name / "sys"


def enable_virtual_functions(root: Path, physical: str, count: int, product: str) -> None:
    """Do to a recording what writing ``count`` to the PF's ``sriov_numvfs`` does to a kernel."""
    script = [
        sys.executable,
        str(HOSTS / "enable_vfs.py"),
        str(root.parent),
        physical,
        str(count),
        f"0x{product}",
    ]
    subprocess.run(script, check=True, timeout=60)
