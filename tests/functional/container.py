"""A Debian system of its own, started by its own systemd in systemd-nspawn. It shares the network with
this machine, and so reaches servers of the tests on loopback.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.support import backends

PACKAGES = ("dbus", "procps", "python3", "systemd", "systemd-sysv")
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
START_SECONDS = 300.0


def check_possible() -> None:
    """Skip, or fail, where no container can run."""
    if os.geteuid() != 0:
        backends.missing("containers", backends.AS_ROOT, "only root can start a container")
    for command, package in (
        ("systemd-nspawn", "systemd-container"),
        ("debootstrap", "debootstrap"),
    ):
        if shutil.which(command) is None:
            backends.missing(
                "containers", f"apt-get install {package}", f"{command} is not installed"
            )
    allowed = subprocess.run(
        ["unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if allowed.returncode != 0:
        why = f"root may not make namespaces: {allowed.stderr}"
        backends.missing("containers", "run it as root of a whole machine", why)


def make_root(folder: Path) -> None:
    """Install a small Debian into ``folder``, from ``DEBIAN_ROOT`` if that names one to copy."""
    if given := os.environ.get("DEBIAN_ROOT"):
        subprocess.run(["cp", "--archive", given, folder], check=True)
        return
    done = subprocess.run(
        [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            SUITE,
            folder,
            MIRROR,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


class Container:
    """A running system. What it prints while it starts goes to ``log``."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def start(self) -> None:
        """Start it, and wait until its systemd has started everything."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "systemd-nspawn",
                    "--quiet",
                    # There may be no systemd on this machine to register it with.
                    "--register=no",
                    "--keep-unit",
                    "--console=pipe",
                    f"--directory={self.root}",
                    "--boot",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            self._leader = self._find_leader(self._process.pid)
            if self._leader and self.run("systemctl", "is-system-running").stdout.strip() in (
                "running",
                "degraded",
            ):
                return
            time.sleep(0.5)
        text = self._log.read_text(errors="replace")[-4000:]
        self.stop()
        raise AssertionError(f"the container did not start:\n{text}")

    @staticmethod
    def _find_leader(pid: int) -> int:
        # While it starts, children come and go.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() in ("systemd", "init"):
                    return int(child)
        return 0

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command as root in the container."""
        return subprocess.run(
            [
                *("nsenter", f"--target={self._leader}", "--all"),
                *("/usr/bin/env", "-i", *ENVIRONMENT, *command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def succeed(self, *command: str) -> str:
        """Return what a command prints; it must succeed."""
        done = self.run(*command)
        assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def stop(self) -> None:
        """End everything that runs in it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if self._leader and process.poll() is None:
            self.run("systemctl", "poweroff", "--force")
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
)


# ---
# All that a container's system has: files, users, packages and units, to tell what an installation
# leaves behind.


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
