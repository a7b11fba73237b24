"""What the kernel says of encrypted guests, as it says it."""

from collections.abc import Mapping
from pathlib import Path

from agent.errors import DriverError
from agent.model.encryption import Technique
from agent.model.names import printable
from drivers.libvirt.answers import KernelAnswer

_SWITCHES: Mapping[Technique, str] = {
    "sev": "module/kvm_amd/parameters/sev",
    "sev_es": "module/kvm_amd/parameters/sev_es",
    "sev_snp": "module/kvm_amd/parameters/sev_snp",
    "tdx": "module/kvm_intel/parameters/tdx",
}
# Under the unified hierarchy of control groups, and under the older one of a folder for each controller.
_CAPACITIES = ("fs/cgroup/misc.capacity", "fs/cgroup/misc/misc.capacity")


def ask_kernel(sysfs: Path) -> KernelAnswer:
    """What is below ``sysfs``, which is /sys or stands for it.

    :raises DriverError: a file is there and cannot be read.
    """
    switches = {technique: text for technique, path in _SWITCHES.items() if (text := _text(sysfs / path)) is not None}
    capacities = (text for path in _CAPACITIES if (text := _text(sysfs / path)) is not None)
    return KernelAnswer(switches, next(capacities, None) if switches else None)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DriverError(printable(f"{file}: {error.strerror or error}")) from error
