"""The root folder of a host, ``/`` or another folder that stands for it: files below it are
checked, read, written whole and removed.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from agent.errors import ConfigError
from agent.model.names import printable

PLAIN_FOLDER = 0o755


class RootFolder:
    """A folder that stands for the root of a host. Targets are relative paths below it."""

    def __init__(self, path: Path) -> None:
        """:raises ConfigError: there is no such folder."""
        if not path.is_dir():
            raise ConfigError(
                f"--root {printable(str(path))}: there is no such folder", "create it"
            )
        self._path = path.resolve()

    @property
    def is_host(self) -> bool:
        """Whether it is the root folder of this host itself."""
        return self._path == Path("/")

    def path(self, target: str) -> Path:
        """Return where ``target`` is on this host."""
        return self._path / target

    def _shown(self, target: str) -> str:
        return printable(str(self.path(target)))

    def check(self, target: str) -> None:
        """Check that a file can be written at ``target``.

        :raises ConfigError: something else is there, or a parent is no folder, leads out of the
            root folder or cannot be written.
        """
        folder = self._path
        for parent in reversed(PurePosixPath(target).parents[:-1]):
            below = self.path(str(parent))
            if below.is_symlink() and not below.resolve().is_relative_to(self._path):
                raise ConfigError(
                    f"{printable(str(below))} is a link that leads out of {self._path}",
                    "give as --root the folder where the link is valid",
                )
            if not os.path.lexists(below):
                break
            if not below.is_dir():
                raise ConfigError(f"{printable(str(below))} is no folder", "move it away")
            folder = below
        self._check_file(target)
        if not os.access(folder, os.W_OK):
            raise ConfigError(
                f"the folder {printable(str(folder))} cannot be written", "run agent setup as root"
            )

    def _check_file(self, target: str) -> None:
        try:
            mode = self.path(target).lstat().st_mode
        except OSError:
            return
        if stat.S_ISLNK(mode):
            # systemctl mask makes such links.
            raise ConfigError(
                f"{self._shown(target)} is a link", "remove it; a masked unit: systemctl unmask"
            )
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{self._shown(target)} is no regular file", "move it away")

    def has(self, target: str) -> bool:
        """Return whether there is anything at ``target``, a broken link included."""
        return os.path.lexists(self.path(target))

    def read(self, target: str) -> bytes | None:
        """Return the contents of a file, None if there is no such file.

        :raises ConfigError: it cannot be read.
        """
        with self._reported(target, "read"):
            try:
                return self.path(target).read_bytes()
            except FileNotFoundError:
                return None

    def missing_folders(self, targets: Iterable[str]) -> list[str]:
        """Return the folders that have to be created for ``targets``, parents first."""
        wanted = {
            str(parent) for target in targets for parent in PurePosixPath(target).parents[:-1]
        }
        return sorted(folder for folder in wanted if not self.has(folder))

    def make_folder(self, target: str, mode: int = PLAIN_FOLDER) -> None:
        """Create a folder, with exactly this mode, whatever the umask. One that exists stays."""
        with self._reported(target, "created"):
            try:
                self.path(target).mkdir()
            except FileExistsError:
                return
            self.path(target).chmod(mode)

    def write(self, target: str, content: bytes, mode: int) -> None:
        """Write a file with exactly this mode: a reader sees the former contents or all of the new
        ones. A file that is replaced keeps its owner and group. The file and its name are on disk
        afterwards.

        :raises ConfigError: it cannot be written; what was there before stays.
        """
        path, unfinished = self.path(target), self.path(self.unfinished(target))
        with self._reported(target, "written"):
            try:
                unfinished.unlink(missing_ok=True)
                with unfinished.open("xb") as opened:
                    self._keep_owner(path, opened.fileno())
                    os.fchmod(opened.fileno(), mode)
                    opened.write(content)
                    opened.flush()
                    os.fsync(opened.fileno())
                unfinished.replace(path)
                self._sync(path.parent)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise

    def remove(self, target: str) -> None:
        """Remove a file, and what an interrupted run left of it. It may be gone already.

        :raises ConfigError: it cannot be removed.
        """
        with self._reported(target, "removed"):
            for path in (self.path(target), self.path(self.unfinished(target))):
                path.unlink(missing_ok=True)

    def remove_folder(self, target: str) -> bool:
        """Remove a folder if it is empty. Return whether it is gone.

        :raises ConfigError: it is empty and cannot be removed.
        """
        path = self.path(target)
        if not path.is_dir() or path.is_symlink():
            return True
        with self._reported(target, "removed"):
            if any(path.iterdir()):
                return False
            path.rmdir()
        return True

    def entries(self, target: str) -> list[str]:
        """Return the targets of everything in a folder, sorted. A link has none.

        :raises ConfigError: the folder cannot be read.
        """
        path = self.path(target)
        if path.is_symlink() or not path.is_dir():
            return []
        with self._reported(target, "read"):
            return sorted(f"{target}/{entry.name}" for entry in path.iterdir())

    def unfinished(self, target: str) -> str:
        """Return the target where a file is written before it replaces ``target``."""
        # Always the same name, so that what an interrupted run leaves is found again.
        path = PurePosixPath(target)
        return str(path.with_name(f".{path.name}.agent-setup"))

    @staticmethod
    def _keep_owner(former: Path, descriptor: int) -> None:
        # systemd-tmpfiles gives the configuration to the group of the service.
        if not former.exists():
            return
        owner, present = former.stat(), os.fstat(descriptor)
        if (owner.st_uid, owner.st_gid) != (present.st_uid, present.st_gid):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)

    def _sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _reported(self, target: str, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self._shown(target)} cannot be {what}: {error.strerror or error}",
                "mend this, and run agent setup again: what is done already stays",
            ) from error
