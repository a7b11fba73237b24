"""What the kernel says of encrypted guests, as it says it."""

from pathlib import Path

from agent.errors import DriverError
from agent.model.kernel_encryption import CAPACITIES, SWITCHES
from agent.model.names import printable
from drivers.libvirt.answers import KernelAnswer


def ask_kernel(sysfs: Path) -> KernelAnswer:
    """What is below ``sysfs``, which is /sys or stands for it.

    :raises DriverError: a file is there and cannot be read.
    """
    switches = {technique: text for technique, path in SWITCHES.items() if (text := _text(sysfs / path)) is not None}
    capacities = (text for path in CAPACITIES if (text := _text(sysfs / path)) is not None)
    return KernelAnswer(switches, next(capacities, None) if switches else None)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DriverError(printable(f"{file}: {error.strerror or error}")) from error
