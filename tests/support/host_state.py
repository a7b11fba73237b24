"""All that a container's system has: files, users, packages and units, to tell what an installation
leaves behind.
"""

from pathlib import Path

from tests.support.container import Container

State = dict[str, object]

CHANGING = (
    # made by the kernel or gone with the next start
    *("dev", "proc", "sys", "run", "tmp", "var/tmp"),
    # what dpkg and apt remember of their own work
    *("var/lib/dpkg/status", "var/lib/dpkg/status-old", "var/lib/dpkg/lock"),
    *("var/lib/dpkg/lock-frontend", "var/lib/dpkg/triggers", "var/lib/dpkg/available"),
    *("var/lib/apt", "var/cache"),
    # what systemd remembers of the running system
    *("var/lib/systemd/timers", "var/lib/systemd/random-seed", "var/log"),
    # the contents before the last change of the users
    *("etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-"),
)
COMMANDS = (
    ("dpkg-query", "--show"),
    ("getent", "passwd"),
    ("getent", "group"),
    ("systemctl", "list-unit-files", "--no-pager", "--no-legend", "--plain"),
    ("systemctl", "list-units", "--all", "--no-pager", "--no-legend", "--plain", "*agent*"),
    ("systemctl", "list-units", "--failed", "--no-pager", "--no-legend", "--plain"),
)


def state_of(container: Container) -> State:
    """Every file with its mode, owner and contents, and the lists of packages, users and units."""
    found: State = {" ".join(command): container.succeed(*command) for command in COMMANDS}
    _add_folder(container.root, container.root, found)
    return found


def _add_folder(root: Path, folder: Path, found: State) -> None:
    for path in sorted(folder.iterdir()):
        name = str(path.relative_to(root))
        if name in CHANGING:
            continue
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = path.readlink()
        elif path.is_file():
            content = path.read_bytes()
        found[name] = (oct(status.st_mode), status.st_uid, status.st_gid, content)
        if path.is_dir() and not path.is_symlink():
            _add_folder(root, path, found)


def differences(before: State, after: State) -> dict[str, tuple[object, object]]:
    """Return what is not the same, with how it was and how it is; contents are cut."""
    return {
        name: (str(before.get(name))[:300], str(after.get(name))[:300])
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }
