"""The Debian package: built by make deb, looked at by lintian, and installed, started, upgraded and
purged in a Debian of its own with a real systemd. Needs Debian's and Python's package indexes.
"""

import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.functional.test_packaging import NOT_SOURCE, run
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.container import Container, check_possible, make_root
from tests.support.http_placement import HttpPlacement
from tests.support.ini import write_config
from tests.support.service_manager import until

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.timeout(7200),
    pytest.mark.xdist_group("debian"),
    pytest.mark.soak,
]

NAME = "compute-node-agent"
STORE = f"var/lib/{NAME}"
NODE = "97b7a4c1-9204-4732-8926-6655565ff584"
CLAIM = "0b5e5a30-6e0c-4a64-8f3e-6a8a3d8e1c11"
FORMER = "0.0.9"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package of this version; that of ``DEBIAN_PACKAGE``, if it names one."""
    if given := os.environ.get("DEBIAN_PACKAGE"):
        return Path(given)
    for command, wanted in (
        ("dh", "debhelper"),
        ("dpkg-buildpackage", "dpkg-dev"),
        ("lintian", "lintian"),
    ):
        if shutil.which(command) is None:
            backends.missing("Debian's packaging tools", f"apt-get install {wanted}")
    source = tmp_path_factory.mktemp("debian") / "checkout"
    shutil.copytree(CHECKOUT, source, ignore=NOT_SOURCE)
    run("make", "deb", cwd=source)
    (built,) = (source / "build" / "deb").glob("*.deb")
    return built


@pytest.fixture(scope="module")
def former(package, tmp_path_factory):
    """The same package as one of a former version."""
    folder = tmp_path_factory.mktemp("former")
    run("dpkg-deb", "--raw-extract", package, folder / "tree", cwd=folder)
    control = folder / "tree" / "DEBIAN" / "control"
    control.write_text(
        re.sub(r"^Version: .*", f"Version: {FORMER}", control.read_text(), flags=re.MULTILINE)
    )
    run("dpkg-deb", "--build", "--root-owner-group", "tree", f"{NAME}.deb", cwd=folder)
    return folder / f"{NAME}.deb"


@pytest.fixture
def container(tmp_path):
    check_possible()
    root = tmp_path / "root"
    make_root(root)
    made = Container(root, tmp_path / "console.log")
    made.start()
    yield made
    made.stop()
    # Here, because pytest keeps the folders of the last three runs.
    shutil.rmtree(root, ignore_errors=True)


def files_of(root: Path) -> dict[str, object]:
    """All files of the system, but for what dpkg, systemd and the logs write about themselves."""
    changing = ("var/lib/dpkg", "var/log", "var/cache", "var/lib/systemd", "run", "tmp", "var/tmp")
    backups = {f"etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow")}
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        mounted = name.startswith(("proc/", "sys/", "dev/"))
        if not mounted and not name.startswith(changing) and name not in backups:
            status = path.lstat()
            kept = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[name] = (oct(status.st_mode), status.st_uid, status.st_gid, kept)
    return found


def configure(container: Container, placement: HttpPlacement) -> None:
    file = container.root / "etc" / NAME / "agent.conf.d" / "test.conf"
    write_config(
        file,
        {
            "DEFAULT": {"host": "node-a", "compute_driver": "fake.pci"},
            "placement": {**placement.credentials(), "max_in_flight": 1},
        },
    )
    # It holds a token: only root and the service may read it.
    container.succeed("systemd-tmpfiles", "--create")


def keep_former_store(container: Container) -> None:
    file = container.root / STORE / "store.sqlite"
    with closing(sqlite3.connect(file)) as store:
        store.executescript((CHECKOUT / "tests/data/store-0005.sql").read_text())
    container.succeed("chown", "-R", f"{NAME}:{NAME}", f"/{STORE}")


def as_service(container: Container, *command: str) -> str:
    return container.succeed("runuser", "-u", NAME, "--", *command)


def put(container: Container, file: Path) -> str:
    target = container.root / "root" / file.name
    shutil.copy(file, target)
    return f"/root/{file.name}"


def test_lintian_finds_no_error(package):
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error", package],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_has_what_a_host_needs(package):
    contents = run("dpkg-deb", "--contents", package, cwd=package.parent)
    for name in (
        "usr/bin/agent",
        f"etc/{NAME}/agent.conf",
        f"usr/lib/sysusers.d/{NAME}.conf",
        f"usr/lib/tmpfiles.d/{NAME}.conf",
        "usr/share/bash-completion/completions/agent",
        "usr/share/zsh/vendor-completions/_agent",
        "usr/share/fish/vendor_completions.d/agent.fish",
        "usr/share/man/man1/agent.1.gz",
        "usr/share/man/man5/agent.conf.5.gz",
        f"usr/share/{NAME}/etc/prometheus/{NAME}.rules.yaml",
        f"usr/share/{NAME}/etc/grafana/{NAME}.json",
    ):
        assert f" ./{name}\n" in contents, name
    assert f"lib/systemd/system/{NAME}.service\n" in contents


def test_a_host_from_the_installation_to_the_purge(package, former, container, http_placement):
    before = files_of(container.root)
    # installed: there, and neither enabled nor started, because it has to be configured first
    container.succeed("dpkg", "--install", put(container, former))
    assert container.succeed("agent", "--version").startswith("agent ")
    assert container.run("systemctl", "is-enabled", NAME).stdout == "disabled\n"
    assert container.run("systemctl", "is-active", NAME).stdout == "inactive\n"
    stat = container.succeed("stat", "--format=%a %U %G", f"/etc/{NAME}/agent.conf", f"/{STORE}")
    assert stat.splitlines() == [f"640 root {NAME}", f"750 {NAME} {NAME}"]
    # started on the store of a former version
    configure(container, http_placement)
    keep_former_store(container)
    as_service(container, "agent", "config", "check")
    container.succeed("systemctl", "enable", "--now", NAME)
    assert container.run("systemctl", "is-active", NAME).stdout == "active\n"
    assert http_placement.other.tree(NODE)[0]["name"] == "node-a"
    process = container.succeed("systemctl", "show", "--property=MainPID", "--value", NAME)
    # upgraded: another process, the same records
    container.succeed("dpkg", "--install", put(container, package))
    until(
        lambda: container.run("systemctl", "is-active", NAME).stdout == "active\n",
        lambda: container.run("journalctl", "-u", NAME).stdout,
    )
    now = container.succeed("systemctl", "show", "--property=MainPID", "--value", NAME)
    assert now != process
    assert CLAIM in as_service(container, "agent", "claims")
    assert NODE in as_service(container, "agent", "identity", "show", "--store-path", f"/{STORE}")
    # removed: it does not run any more, and the operator's and the service's files are there
    container.succeed("dpkg", "--remove", NAME)
    assert container.run("pgrep", "-u", NAME).stdout == ""
    assert (container.root / STORE / "store.sqlite").exists()
    assert (container.root / "etc" / NAME / "agent.conf.d" / "test.conf").exists()
    # purged: no trace
    container.succeed("dpkg", "--purge", NAME)
    for file in (package, former):
        (container.root / "root" / file.name).unlink()
    after = files_of(container.root)
    assert {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    } == set()
