"""The root folder of a host, ``/`` or another folder that stands for it: files below it are
checked, read, written whole and removed.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
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
        folder = self._check_parents(target)
        self._check_file(target)
        if not os.access(folder, os.W_OK):
            is_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
            raise ConfigError(
                f"the folder {printable(str(folder))} cannot be written",
                "mount its file system for writing" if is_read_only else "run agent setup as root",
            )

    def _check_parents(self, target: str) -> Path:
        """Return the deepest parent of ``target`` that exists.

        :raises ConfigError: a parent is no folder, or leads out of the root folder.
        """
        folder = self._path
        for parent in reversed(PurePosixPath(target).parents[:-1]):
            below = self.path(str(parent))
            with self._reported(str(parent), "read"):
                if not os.path.lexists(below):
                    break
                self._check_folder(below)
            folder = below
        return folder

    def _check_folder(self, path: Path) -> None:
        is_link, shown = path.is_symlink(), printable(str(path))
        # Not Path.resolve(), which raises RuntimeError for a link that leads to itself.
        if is_link and not Path(os.path.realpath(path)).is_relative_to(self._path):
            raise ConfigError(
                f"{shown} is a link that leads out of {printable(str(self._path))}",
                "give as --root the folder where the link is valid",
            )
        if not path.is_dir():
            what = "is a link that leads to no folder" if is_link else "is no folder"
            raise ConfigError(f"{shown} {what}", "move it away")

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
        self._check_regular(target, mode)

    def _check_regular(self, target: str, mode: int) -> None:
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{self._shown(target)} is no regular file", "move it away")

    def has(self, target: str) -> bool:
        """Return whether there is anything at ``target``, a broken link included."""
        return os.path.lexists(self.path(target))

    def read(self, target: str) -> bytes | None:
        """Return the contents of a regular file, None if there is no such file.

        :raises ConfigError: it cannot be read, or a parent leads out of the root folder.
        """
        self._check_parents(target)
        self._check_file(target)
        # Without O_NONBLOCK the opening of a pipe that came meanwhile would wait for ever.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._reported(target, "read"):
            try:
                descriptor = os.open(self.path(target), flags)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as opened:
                self._check_regular(target, os.fstat(descriptor).st_mode)
                return opened.read()

    def missing_folders(self, targets: Iterable[str]) -> list[str]:
        """Return the folders that have to be created for ``targets``, parents first."""
        wanted = {
            str(parent) for target in targets for parent in PurePosixPath(target).parents[:-1]
        }
        return sorted(folder for folder in wanted if not self.has(folder))

    def make_folder(self, target: str, mode: int = PLAIN_FOLDER) -> None:
        """Create a folder, with exactly this mode, whatever the umask. One that exists stays."""
        self._check_parents(target)
        path, unfinished = self.path(target), self.path(self.unfinished(target))
        with self._reported(target, "created"):
            if os.path.lexists(path):
                return
            # A run that is killed leaves no folder with another mode.
            self._remove_empty(unfinished)
            unfinished.mkdir()
            unfinished.chmod(mode)
            unfinished.rename(path)

    def correct_mode(self, target: str, mode: int) -> None:
        """Give a folder this mode. Something else than a folder stays as it is."""
        self._check_parents(target)
        path = self.path(target)
        with self._reported(target, "changed"):
            if path.is_symlink() or not path.is_dir() or stat.S_IMODE(path.stat().st_mode) == mode:
                return
            path.chmod(mode)

    def write(self, target: str, content: bytes, mode: int) -> None:
        """Write a file with exactly this mode: a reader sees the former contents or all of the new
        ones. A file that is replaced keeps its owner and group. The file and its name are on disk
        afterwards.

        :raises ConfigError: it cannot be written; what was there before stays.
        """
        self._check_parents(target)
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

    def write_with_folders(
        self, target: str, content: bytes, mode: int, folder_modes: Mapping[str, int]
    ) -> None:
        """Write a file as :meth:`write` does. It comes together with the folders above it that are
        missing, so that a run that is killed leaves all of them or none.

        :param folder_modes: modes of folders, by target; others get :data:`PLAIN_FOLDER`.
        :raises ConfigError: it cannot be written.
        """
        self.remove_unfinished(target)
        missing = self.missing_folders([target])
        if not missing:
            self.write(target, content, mode)
            return
        top, unfinished = missing[0], self.unfinished(missing[0])
        for folder in missing:
            self.make_folder(
                unfinished + folder.removeprefix(top), folder_modes.get(folder, PLAIN_FOLDER)
            )
        self.write(unfinished + target.removeprefix(top), content, mode)
        self._rename(unfinished, top)

    def remove(self, target: str) -> None:
        """Remove a file, and what an interrupted run left of it. It may be gone already.

        :raises ConfigError: it cannot be removed.
        """
        self._check_parents(target)
        with self._reported(target, "removed"):
            for path in (self.path(target), self.path(self.unfinished(target))):
                path.unlink(missing_ok=True)

    def remove_with_folders(self, target: str, folders: Collection[str]) -> None:
        """Remove a file as :meth:`remove` does. Of the folders above it those in ``folders`` go
        together with it that have nothing else in them, so that a run that is killed leaves all of
        them or none.

        :raises ConfigError: it cannot be removed.
        """
        self.remove_unfinished(target)
        top = target
        for parent in map(str, PurePosixPath(target).parents):
            if parent not in folders or self.entries(parent) != [top]:
                break
            top = parent
        if top == target:
            self.remove(target)
        else:
            self._rename(top, self.unfinished(top))
            self.remove_unfinished(target)

    def remove_unfinished(self, target: str) -> None:
        """Remove what a killed run left of a file that comes and goes with the folders above it.

        :raises ConfigError: it cannot be removed.
        """
        self._check_parents(target)
        with self._reported(target, "removed"):
            self.path(self.unfinished(target)).unlink(missing_ok=True)
        for top in map(str, PurePosixPath(target).parents[:-1]):
            unfinished = self.unfinished(top)
            inside = PurePosixPath(unfinished + target.removeprefix(top))
            self.remove(str(inside))
            for folder in inside.parents:
                if folder.is_relative_to(unfinished):
                    self.remove_folder(str(folder))

    def remove_folder(self, target: str) -> bool:
        """Remove a folder if it is empty, and what an interrupted run left of it. Return whether it
        is gone.

        :raises ConfigError: it is empty and cannot be removed.
        """
        self._check_parents(target)
        with self._reported(target, "removed"):
            self._remove_empty(self.path(self.unfinished(target)))
            return self._remove_empty(self.path(target))

    def entries(self, target: str) -> list[str]:
        """Return the targets of everything in a folder, sorted. A link has none.

        :raises ConfigError: the folder cannot be read, or a parent leads out of the root folder.
        """
        self._check_parents(target)
        path = self.path(target)
        with self._reported(target, "read"):
            if path.is_symlink() or not path.is_dir():
                return []
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

    @staticmethod
    def _remove_empty(path: Path) -> bool:
        if path.is_symlink() or not path.is_dir():
            return True
        if any(path.iterdir()):
            return False
        path.rmdir()
        return True

    def _rename(self, former: str, target: str) -> None:
        with self._reported(former, "renamed"):
            self.path(former).rename(self.path(target))
            self._sync(self.path(target).parent)

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
