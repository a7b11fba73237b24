"""Reads a sysfs tree, the kernel's own or a recording of another machine's, without ever leaving
it.
"""

import re
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar

from agent.errors import DriverError
from agent.model.facts import PartialRead, parse_cpu_list
from agent.model.names import printable

Entry = TypeVar("Entry")
Answer = TypeVar("Answer")
Other = TypeVar("Other")

KERNEL_ROOT = Path("/sys")

_INTEGER = re.compile(r"-?[0-9]{1,10}")
# No count of the kernel that is read here is larger, and Placement takes none.
_MOST = 2**31 - 1
_CPU_MAP = re.compile(r"[0-9a-f]{1,8}(,[0-9a-f]{8})*", re.IGNORECASE)
_MAX_LINKS = 40


class Sysfs:
    """The tree below ``root``. Paths are given relative to it, and named in full in every error.

    In a recording, links are resolved as if ``root`` were /sys: an absolute ``/sys/...`` is taken
    from ``root``, and a link that would lead elsewhere is an error, because it would mix the facts
    of two machines. The kernel's own links never leave /sys, and checking them would cost more than
    the reading: they are left to the kernel.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self.is_live = root.samefile(KERNEL_ROOT)
        except OSError:
            # There is no such root; the first read reports it better.
            self.is_live = False

    def text(self, path: str) -> str:
        """Return the file's text, without the NULs and blanks that pad some recordings.

        :raises DriverError: the file is missing or cannot be read.
        """
        text = self.optional_text(path)
        if text is None:
            raise self.fault(path, "no such file")
        return text

    def optional_text(self, path: str) -> str | None:
        """Return the text as :meth:`text` does; ``None`` where the kernel has no such file.

        :raises DriverError: the file is there and cannot be read.
        """
        raw = self._ask(path, lambda: self._locate(path).read_bytes(), None)
        return None if raw is None else raw.replace(b"\0", b"").decode("utf-8", "replace").strip()

    def optional_bytes(self, path: str, most: int) -> bytes | None:
        """Return the first ``most`` bytes of the file; ``None`` where there is none, or it cannot
        be read.
        """
        try:
            with self._locate(path).open("rb") as file:
                return file.read(most)
        except OSError:
            return None

    def optional_integer(self, path: str) -> int | None:
        """Return the file's one decimal number; ``None`` where there is no such file.

        :raises DriverError: the file cannot be read or holds something else.
        """
        text = self.optional_text(path)
        if text is None:
            return None
        if _INTEGER.fullmatch(text) is None:
            raise self.fault(path, f"{text[:40]!r} is not a number")
        if (number := int(text)) > _MOST:
            raise self.fault(path, f"{number} is more than {_MOST}")
        return number

    def integer(self, path: str) -> int:
        """Return the number as :meth:`optional_integer` does, of a file that must exist.

        :raises DriverError: the file is missing, cannot be read or holds something else.
        """
        number = self.optional_integer(path)
        if number is None:
            raise self.fault(path, "no such file")
        return number

    def optional_cpus(self, *paths: str) -> frozenset[int] | None:
        """Return the CPUs in the first of the files that exists, which is a list (``0-3,8``) or a
        map (``0000000f``) by its name; ``None`` if none exists.

        :raises DriverError: the file cannot be read, or is cut off or garbled.
        """
        for path in paths:
            text = self.optional_text(path)
            if text is None:
                continue
            try:
                return (
                    parse_cpu_list(text) if path.endswith(("list", "online")) else _from_map(text)
                )
            except ValueError as error:
                raise self.fault(path, str(error)) from error
        return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; empty where there is no such folder.

        :raises DriverError: the folder cannot be listed.
        """
        return self._ask(
            path, lambda: sorted(entry.name for entry in self._locate(path).iterdir()), []
        )

    def numbers(self, path: str, pattern: str) -> list[int]:
        """Return the numbers that the one group of ``pattern`` finds in the names in a folder,
        ascending.

        :raises DriverError: the folder cannot be listed.
        """
        matches = (re.fullmatch(pattern, name) for name in self.names(path))
        return sorted(int(match[1]) for match in matches if match)

    def link_name(self, path: str) -> str | None:
        """Return the last part of the link's target, whether or not that exists; ``None`` where
        there is no link.

        :raises DriverError: the link cannot be read.
        """
        folder, _, name = path.rpartition("/")
        return self._ask(path, lambda: (self._locate(folder) / name).readlink().name, None)

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder.

        :raises DriverError: this cannot be found out.
        """
        return self._ask(path, lambda: stat.S_ISDIR(self._locate(path).stat().st_mode), False)

    def fault(self, path: str, what: str) -> DriverError:
        """Return an error that names the file."""
        return DriverError(printable(f"{self.root / path}: {what}"))

    def _ask(self, path: str, question: Callable[[], Answer], missing: Other) -> Answer | Other:
        """Return the answer of the file system to a question about ``path``; ``missing`` where
        there is nothing.

        :raises DriverError: there is something, and it does not answer.
        """
        try:
            return question()
        except (FileNotFoundError, NotADirectoryError):
            return missing
        except OSError as error:
            raise self.fault(path, error.strerror or str(error)) from error

    def _locate(self, path: str) -> Path:
        return self.root / path if self.is_live else self._inside(path)

    def _inside(self, path: str) -> Path:
        """Return the place of ``path`` when every link is followed within ``root``.

        :raises DriverError: a link leads out of the tree, or links form a circle.
        """
        here, links = PurePosixPath(), 0
        ahead = list(reversed(PurePosixPath(path).parts))
        while ahead:
            part = ahead.pop()
            if part == "..":
                if not here.parts:
                    raise self.fault(path, "a link leads out of the tree")
                here = here.parent
                continue
            here /= part
            if not (self.root / here).is_symlink():
                continue
            target = (self.root / here).readlink()
            links += 1
            if links > _MAX_LINKS:
                raise self.fault(path, "links go round in a circle")
            if not target.is_absolute():
                here = here.parent
            elif target.is_relative_to(KERNEL_ROOT):
                here, target = PurePosixPath(), target.relative_to(KERNEL_ROOT)
            else:
                raise self.fault(path, f"its link {target} leads out of the tree")
            ahead += reversed(target.parts)
        return self.root / here


def read_entries(
    sysfs: Sysfs, folder: str, read: Callable[[Sysfs, str], Entry]
) -> PartialRead[list[Entry]]:
    """Return what ``read`` returns for each name in a folder, in the order of the names. An entry
    that cannot be read becomes a fault; the others stay.
    """
    found: list[Entry] = []
    faults: dict[str, str] = {}
    try:
        for name in sysfs.names(folder):
            try:
                found.append(read(sysfs, name))
            except DriverError as error:
                faults[name] = error.message
        # One that was removed while it was read is no fault: the kernel no longer lists it.
        listed = sysfs.names(folder) if faults else ()
    except DriverError as error:
        return PartialRead([], (error.message,))
    return PartialRead(found, tuple(fault for name, fault in faults.items() if name in listed))


def _from_map(text: str) -> frozenset[int]:
    """Return the set bits of the kernel's hexadecimal words, the highest word first.

    :raises ValueError: not such a map; a word that is not the first and not full was cut off.
    """
    if _CPU_MAP.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a map of CPUs")
    bits = int(text.replace(",", ""), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)
