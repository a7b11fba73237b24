"""A real libvirtd with QEMU in a folder of its own, over this machine's /sys or a recording of
another's.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.support import backends, stopped

LIBVIRTD = "/usr/sbin/libvirtd"
QEMU = "/usr/bin/qemu-system-x86_64"
BINDING = "gcc libvirt-dev pkg-config python3-dev"
"""The Debian packages that the Python binding is built with, by ``make test``."""
PACKAGES = {
    LIBVIRTD: "libvirt-daemon libvirt-daemon-driver-qemu",
    QEMU: "qemu-system-x86",
    "/usr/bin/unshare": "util-linux",
}
"""Each program that is run, with the Debian packages that bring it."""
START_DEADLINE = 120.0
DRIVERS = next(Path("/usr").glob("lib*/**/libvirt/connection-driver"), Path("/nonexistent"))
"""The modules that libvirtd loads, by default."""

QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = [ ]
cgroup_controllers = [ ]
stdio_handler = "file"
"""

LIBVIRTD_CONF = """\
unix_sock_dir = "{folder}/sock"
unix_sock_rw_perms = "0700"
auth_unix_rw = "none"
auth_unix_ro = "none"
log_level = 3
log_outputs = "2:file:{folder}/libvirtd.log"
host_uuid = "{uuid}"
"""

# What libvirtd keeps in fixed places, each by a folder of ours that is mounted over it where only
# this libvirtd sees it.
PLACES = {
    "run": "/run/libvirt",
    "lib": "/var/lib/libvirt",
    "cache": "/var/cache/libvirt",
    "log": "/var/log/libvirt",
    "etc": "/etc/libvirt",
}

# Debian makes this account with another package; libvirtd wants it although it runs guests as root
# here.
ACCOUNT = "libvirt-qemu"
ACCOUNTS = {
    "/etc/passwd": f"{ACCOUNT}:x:64055:64055::/nonexistent:/bin/false\n",
    "/etc/group": f"{ACCOUNT}:x:64055:\n",
}

CAPABILITIES: "tempfile.TemporaryDirectory[str] | None" = None
"""What libvirtd learned of QEMU, which takes it seconds: kept for the next one of this process."""


def binding() -> ModuleType:
    """The Python binding; without it the test is skipped or fails."""
    if importlib.util.find_spec("libvirt") is None:
        backends.missing("the Python binding of libvirt", f"apt-get install {BINDING}")
    import libvirt

    return libvirt


def module() -> ModuleType:
    """The Python binding; without it, or without libvirtd and QEMU, the test is skipped
    or fails.
    """
    absent = {
        program: package for program, package in PACKAGES.items() if not Path(program).exists()
    }
    if importlib.util.find_spec("libvirt") is None:
        absent["Python module libvirt"] = BINDING
    if absent:
        backends.missing(
            "libvirtd with QEMU",
            f"apt-get install {' '.join(absent.values())}",
            f"there is no {', '.join(absent)}",
        )
    return binding()


class Libvirtd:
    """One libvirtd. ``sysfs``: a folder that stands for /sys, as a recording has it; then devices
    can be plugged, see :meth:`uevent`. ``lacking``: drivers that are not installed, from the next
    start on.
    """

    def __init__(self, sysfs: Path | None = None) -> None:
        module()
        self.lacking: tuple[str, ...] = ()
        # Not pytest's folder, because a socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="libvirtd-"))
        self.uri = f"qemu+unix:///system?socket={self.folder}/sock/libvirt-sock"
        self._sysfs = sysfs
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("sock", *PLACES):
            (self.folder / name).mkdir()
        if CAPABILITIES is not None:
            shutil.copytree(CAPABILITIES.name, self.folder / "cache", dirs_exist_ok=True)
        (self.folder / "etc" / "qemu.conf").write_text(QEMU_CONF)
        (self.folder / "libvirtd.conf").write_text(
            LIBVIRTD_CONF.format(folder=self.folder, uuid="3f1c2b52-8b2e-4e6a-9a5f-7b0c5d2f9e11")
        )
        for place, line in ACCOUNTS.items():
            text = Path(place).read_text()
            (self.folder / Path(place).name).write_text(
                text if f"\n{ACCOUNT}:" in text else text + line
            )

    @property
    def pid(self) -> int:
        """The daemon's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What the daemon had to complain of."""
        file = self.folder / "libvirtd.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # A /run of its own, because only root could make the folder in the machine's.
        mounts = ["mount -t tmpfs none /run"]
        mounts += [
            f"mkdir -p {place}; mount --bind {self.folder}/{name} {place}"
            for name, place in PLACES.items()
        ]
        mounts += [f"mount --bind {self.folder}/{Path(place).name} {place}" for place in ACCOUNTS]
        drivers = self.folder / "drivers"
        shutil.rmtree(drivers, ignore_errors=True)
        drivers.mkdir()
        for module_ in DRIVERS.glob("libvirt_driver_*.so"):
            if module_.stem.removeprefix("libvirt_driver_") not in self.lacking:
                (drivers / module_.name).symlink_to(module_)
        if self._sysfs is not None:
            whole = (self._sysfs / "bus" / "pci").is_dir()
            parts = (
                [""]
                if whole
                else [
                    one
                    for one in ("devices/system/node", "devices/system/cpu")
                    if (self._sysfs / one).is_dir()
                ]
            )
            mounts += [
                f"mount --bind '{self._sysfs / part}' '{Path('/sys') / part}'" for part in parts
            ]
        daemon = (
            f"exec {LIBVIRTD} --config {self.folder}/libvirtd.conf --pid-file "
            f"{self.folder}/libvirtd.pid --timeout 0"
        )
        # A plain user is root in a namespace of its own.
        unshare = [
            "unshare",
            "--mount",
            "--uts",
            *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
        ]
        if self._sysfs is not None:
            # libudev listens only where a udev is at work; and nobody else is to hear of devices
            # that this machine does not have.
            mounts.append("mkdir /run/udev; touch /run/udev/control")
            unshare.append("--net")
        output = (self.folder / "output").open("ab")
        with output:
            self._process = subprocess.Popen(
                [*unshare, "sh", "-ec", "\n".join([*mounts, daemon])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Because no udev knows a recording's devices.
                env={
                    **os.environ,
                    "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",
                    **({"LIBVIRT_DRIVER_DIR": str(drivers)} if self.lacking else {}),
                },
                start_new_session=True,
            )
        self._wait()
        self._keep_capabilities()

    def stop(self) -> None:
        """End it well; its guests go on."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; its guests go on."""
        self._end(signal.SIGKILL)

    def call(self, name: str) -> None:
        """Give the machine another name, as far as it knows."""
        subprocess.run([*self._enter("--uts"), "hostname", name], check=True, timeout=30)

    @contextlib.contextmanager
    def without_qemu(self) -> Iterator[None]:
        """For it alone there is no QEMU, until the end of the block."""
        inside = self._enter("--mount")
        subprocess.run([*inside, "mount", "--bind", "/dev/null", QEMU], check=True, timeout=30)
        try:
            yield
        finally:
            subprocess.run([*inside, "umount", QEMU], check=True, timeout=30)

    def freeze(self) -> None:
        """Let it hang."""
        stopped.stop(self.pid)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def uevent(self, action: str, folder: str, **properties: str) -> None:
        """Tell it, as udev would, that the device of this folder of its /sys has come (``add``) or
        gone (``remove``).
        """
        text = json.dumps(
            {
                "ACTION": action,
                "DEVPATH": f"/{folder}",
                "SEQNUM": str(time.monotonic_ns()),
                **properties,
            }
        )
        subprocess.run(
            [
                *self._enter("--net"),
                sys.executable,
                str(Path(__file__).with_name("send_uevent.py")),
            ],
            input=text,
            text=True,
            check=True,
            timeout=30,
        )

    def _enter(self, namespace: str) -> list[str]:
        plain = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self.pid), namespace, *plain]

    def recover(self) -> None:
        """Whatever was done to it, it runs."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        else:
            self.thaw()

    def guests(self) -> dict[str, int]:
        """The processes of the guests that run, by the guests' names."""
        return {
            file.stem: int(file.read_text())
            for file in (self.folder / "run" / "qemu").glob("*.pid")
        }

    def remove(self) -> None:
        """End it and its guests, and remove what they leave."""
        if self._process is not None:
            self.kill()
        for pid in self.guests().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        # One that hangs does not hear anything else.
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait(self) -> None:
        assert self._process is not None
        libvirt, end = module(), time.monotonic() + START_DEADLINE
        while True:
            try:
                connection = libvirt.open(self.uri)
                # Which takes as long as libvirtd needs to know QEMU; it answers too if it found none.
                connection.getCapabilities()
                connection.getVersion()
            except libvirt.libvirtError as error:
                output = (self.folder / "output").read_text(errors="replace")
                if self._process.poll() is not None:
                    self._process = None
                    remedy = (
                        "it does not start here; REQUIRE_BACKENDS=1 makes tests fail with what it "
                        "says"
                    )
                    backends.missing(
                        "a libvirtd of its own",
                        remedy,
                        f"libvirtd does not start: {output} {self.log}",
                    )
                assert time.monotonic() < end, (
                    f"libvirtd does not answer: {error} {output} {self.log}"
                )
                time.sleep(0.05)
            else:
                connection.close()
                return

    def _keep_capabilities(self) -> None:
        global CAPABILITIES
        if CAPABILITIES is None:
            CAPABILITIES = tempfile.TemporaryDirectory(prefix="libvirtd-capabilities-")
            shutil.copytree(self.folder / "cache", CAPABILITIES.name, dirs_exist_ok=True)
