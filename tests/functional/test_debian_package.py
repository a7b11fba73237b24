"""The Debian package: built by make deb, looked at by lintian, and installed, started, upgraded and
purged in a Debian of its own with a real systemd; the lines of the guide in such a Debian. Needs
Debian's and Python's package indexes.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import open_store
from tests.functional.container import Container, check_possible, differences, make_root, state_of
from tests.functional.test_packaging import NOT_SOURCE, guide_lines, run
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import write_config
from tests.support.service_manager import until
from tests.unit.store.record_samples import claim, instance, node, write

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
GONE = f"usr/lib/{NAME}/agent/former.py"
OPT = f"/opt/{NAME}"
UNIT = f"etc/systemd/system/{NAME}.service"


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
def wheels(package):
    """The folder of the wheels that make deb built the package from."""
    found = package.parent / "tree" / "wheels"
    if not found.is_dir():
        backends.missing(f"{found}", "make deb, and DEBIAN_PACKAGE= for the package that it makes")
    return found


@pytest.fixture(scope="module")
def former(package, tmp_path_factory):
    """The same package as one of a former version: with a module that is gone now, and with another
    agent.conf.
    """
    folder = tmp_path_factory.mktemp("former")
    tree = folder / "tree"
    run("dpkg-deb", "--raw-extract", package, tree, cwd=folder)
    control = tree / "DEBIAN" / "control"
    control.write_text(
        re.sub(r"^Version: .*", f"Version: {FORMER}", control.read_text(), flags=re.MULTILINE)
    )
    (tree / GONE).write_text('"""Not in this version."""\n')
    with (tree / "etc" / NAME / "agent.conf").open("a") as sample:
        sample.write("# of a former version\n")
    run("dpkg-deb", "--build", "--root-owner-group", "tree", f"{NAME}.deb", cwd=folder)
    return folder / f"{NAME}.deb"


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """The folder of a Debian that nobody has started yet."""
    check_possible()
    root = tmp_path_factory.mktemp("debian") / "root"
    make_root(root)
    yield root
    # Here, because pytest keeps the folders of the last three runs.
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def container(debian, tmp_path):
    root = tmp_path / "root"
    run("cp", "--archive", "--reflink=auto", debian, root, cwd=tmp_path)
    made = Container(root, tmp_path / "console.log")
    made.start()
    yield made
    made.stop()
    shutil.rmtree(root, ignore_errors=True)


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


def keep_store(container: Container) -> None:
    """A store with a claim, as a run before left it."""
    folder = container.root / STORE
    with open_store(folder) as store:
        here = node("node-a", "node-a", uuid=NODE)
        runs = instance(host="node-a", node=NODE)
        changes = RecordChanges(
            nodes=(here,), instances=(runs,), claims=(claim(runs, here, id=CLAIM),)
        )
        write(Records(store), changes)
    (folder / "compute_id").write_text(f"{NODE}\n")
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


def install(container: Container, file: Path) -> str:
    """Install or upgrade as the guide says; an agent.conf that was changed stays.

    Without the packages that it recommends, because apt keeps some of theirs for other packages.
    """
    options = (
        *("--yes", "--allow-downgrades", "--no-install-recommends"),
        *("--option", "Dpkg::Options::=--force-confold"),
    )
    done = container.run("apt-get", "install", *options, put(container, file))
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def is_active(container: Container) -> bool:
    return container.run("systemctl", "is-active", NAME).stdout == "active\n"


def process_of(container: Container) -> str:
    return container.succeed("systemctl", "show", "--property=MainPID", "--value", NAME)


def clean(container: Container) -> None:
    """Remove what the test itself put into the container."""
    for path in (container.root / "root").iterdir():
        if path.suffix in (".deb", ".whl"):
            path.unlink()


def test_a_host_from_the_installation_to_the_purge(package, former, container, http_placement):
    before = state_of(container)
    # installed: there, and neither enabled nor started, because it has to be configured first
    install(container, former)
    assert container.succeed("agent", "--version").startswith("agent ")
    assert container.run("systemctl", "is-enabled", NAME).stdout == "disabled\n"
    assert container.run("systemctl", "is-active", NAME).stdout == "inactive\n"
    sample = container.root / "etc" / NAME / "agent.conf"
    folders = (f"/etc/{NAME}/agent.conf", f"/etc/{NAME}", f"/{STORE}")
    modes = [f"640 root {NAME}", f"750 root {NAME}", f"750 {NAME} {NAME}"]
    assert container.succeed("stat", "--format=%a %U %G", *folders).splitlines() == modes
    # started on a store
    configure(container, http_placement)
    keep_store(container)
    as_service(container, "agent", "config", "check")
    container.succeed("systemctl", "enable", "--now", NAME)
    assert is_active(container)
    assert http_placement.other.tree(NODE)[0]["name"] == "node-a"
    container.succeed("systemctl", "reload", NAME)
    process = process_of(container)
    assert is_active(container)
    # upgraded: another process, the same records, the new sample in place of one that nobody changed
    install(container, package)
    until(lambda: is_active(container), lambda: container.run("journalctl", "--unit", NAME).stdout)
    upgraded = process_of(container)
    assert upgraded != process
    assert CLAIM in as_service(container, "agent", "claims")
    assert NODE in as_service(container, "agent", "identity", "show", "--store-path", f"/{STORE}")
    assert not (container.root / GONE).exists()
    assert "of a former version" not in sample.read_text()
    assert container.succeed("stat", "--format=%a %U %G", *folders).splitlines() == modes
    # installed once more: what the operator changed stays, the password unreadable to others
    with sample.open("a") as changed:
        changed.write("# of the operator\n")
    install(container, former)
    install(container, package)
    assert sample.read_text().endswith("# of the operator\n")
    assert container.succeed("stat", "--format=%a %U %G", *folders).splitlines() == modes
    assert is_active(container)
    assert "Traceback" not in container.succeed("journalctl", "--unit", NAME)
    # removed: it does not run any more, and the operator's and the service's files are there
    drop_in = container.root / f"{UNIT}.d" / "nice.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nNice=5\n")
    container.succeed("apt-get", "remove", "--yes", NAME)
    assert container.run("pgrep", "-u", NAME).stdout == ""
    assert not (container.root / "usr" / "lib" / NAME).exists()
    assert (container.root / STORE / "database/store.sqlite").exists()
    assert (container.root / "etc" / NAME / "agent.conf.d" / "test.conf").exists()
    # purged: no trace but for what it names
    told = container.succeed("apt-get", "purge", "--yes", NAME)
    assert "what this host wrote to Placement stays there" in told
    assert f"/{UNIT}.d stays" in told
    shutil.rmtree(drop_in.parent)
    container.succeed("systemctl", "daemon-reload")
    clean(container)
    assert differences(before, state_of(container)) == {}


def install_into_opt(container: Container, wheels: Path) -> None:
    """Install as the guide says, but from wheels instead of an index."""
    container.succeed("apt-get", "update")
    container.succeed("apt-get", "install", "--yes", "--no-install-recommends", "python3-venv")
    for wheel in wheels.glob("*.whl"):
        put(container, wheel)
    container.succeed("python3", "-m", "venv", OPT)
    offline = ("--no-index", "--find-links", "/root", "--quiet")
    container.succeed(f"{OPT}/bin/pip", "install", *offline, NAME)
    container.succeed("ln", "-s", f"{OPT}/bin/agent", "/usr/local/bin/")
    clean(container)


def test_the_lines_of_the_guide_start_the_service(wheels, container, http_placement):
    install_into_opt(container, wheels)
    container.succeed("sh", "-e", "-c", guide_lines())
    configure(container, http_placement)
    container.succeed("sh", "-e", "-c", "systemd-sysusers && systemd-tmpfiles --create")
    container.succeed("systemctl", "daemon-reload")
    container.succeed("systemctl", "enable", "--now", NAME)
    assert is_active(container)
    (node,) = json.loads(container.succeed("agent", "status", "--format", "json"))["nodes"]
    assert http_placement.other.tree(node["uuid"])[0]["name"] == "node-a"


def test_a_purge_leaves_the_service_of_a_unit_that_was_put_in_place_by_hand(package, container):
    install(container, package)
    container.succeed("apt-get", "remove", "--yes", NAME)
    (container.root / STORE / "database").mkdir()
    (container.root / STORE / "database/store.sqlite").write_text("")
    (container.root / UNIT).write_text("[Service]\nExecStart=/opt/agent\n")
    assert "systemd uses the unit in /etc/systemd/system" in install(container, package)
    told = container.succeed("apt-get", "purge", "--yes", NAME)
    assert "the service of the unit in /etc/systemd/system stays" in told
    assert (container.root / STORE / "database/store.sqlite").exists()
    container.succeed("getent", "passwd", NAME)
