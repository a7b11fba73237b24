"""The package: what is in sdist and wheel, and the agent installed from the wheel alone. Needs a
package index.
"""

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.functional.container import check_possible
from tests.support import libvirtd
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import write_config
from tests.support.pages import blocks
from tests.support.service_manager import until
from tests.support.system import FOREIGN_VARIABLES, Result

# one worker for all, because each would build and install by itself
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("packaging"),
    pytest.mark.long,
]

NOT_SOURCE = shutil.ignore_patterns(".?*", "build", "_build", "dist", "*.egg-info", "__pycache__")

DATA = (
    "agent/api/documents.yaml",
    "agent/api/openapi.yaml",
    "agent/render/templates/node.html",
    "agent/render/templates/page.html",
    "agent/render/templates/page.css",
    "agent/render/templates/guests.js",
    "agent/render/templates/node.js",
    "agent/render/templates/table.js",
    "agent/render/templates/table.html",
    "agent/provider_config/provider-config.schema.json",
    "drivers/fake/host.schema.json",
)


def run(*command: str | Path, cwd: Path) -> str:
    """What a command printed; it must succeed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} -> {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the checkout, because building leaves files behind."""
    source = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(CHECKOUT, source, ignore=NOT_SOURCE)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", source / "dist", cwd=source)
    (archive,) = (source / "dist").iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what the sdist unpacks to, as distributions build it."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        # not by argument, because Debian's Python 3.11.2 does not have it yet
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    (source,) = folder.iterdir()
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder / "dist",
        ".",
        cwd=source,
    )
    (built,) = (folder / "dist").iterdir()
    return built


class Installed:
    """The wheel and what it requires, no extras, in a virtual environment of its own."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        self._bin = folder / "venv" / "bin"
        run(self._bin / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)

    @property
    def command(self) -> Path:
        """The path of its ``agent``."""
        return self._bin / "agent"

    def agent(self, *arguments: str, cwd: Path) -> Result:
        """Run its ``agent``."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith((*FOREIGN_VARIABLES, "PYTHON"))
        }
        done = subprocess.run(
            [self.command, *arguments],
            cwd=cwd,
            env={**environment, "HOME": str(cwd)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(arguments, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def modules(*packages: str) -> Sequence[str]:
    """The Python files of the checkout's packages."""
    return sorted(
        str(path.relative_to(CHECKOUT))
        for package in packages
        for path in (CHECKOUT / package).rglob("*.py")
    )


def test_the_sdist_has_what_packagers_build_test_and_install(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "Makefile",
        "tox.ini",
        "bindep.txt",
        "etc/agent.conf.sample",
        "etc/hosts/nested.yaml",
        "systemd/compute-node-agent.service",
        "docs/conf.py",
        "tests/conftest.py",
        *modules("agent", "drivers", "tests", "bench"),
    } <= names


def test_the_wheel_has_both_packages_whole_and_nothing_besides(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    of_the_package = {
        name for name in names if not re.match(r"compute_node_agent-[^/]*\.dist-info/", name)
    }
    data = f"{wheel.name.rpartition('-py3')[0]}.data/data"
    share = {f"{data}/{place}" for place in shipped_files()}
    assert of_the_package == {*modules("agent", "drivers"), *DATA, *share}
    assert any(name.endswith("/LICENSE") for name in names)


def shipped_files() -> dict[str, str]:
    """The files that a host gets: their places below the prefix, and where a checkout has them."""
    parsed = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parsed.read(CHECKOUT / "setup.cfg")
    return {
        f"{folder}/{Path(file).name}": file
        for folder, files in parsed["options.data_files"].items()
        for file in files.split()
    }


def guide_lines() -> str:
    """The lines by which the guide puts the files of the service in place."""
    (block,) = (
        block
        for block in blocks(CHECKOUT / "docs" / "install.md")
        if block.detail.endswith("put_the_files_of_an_installed_agent_in_place")
    )
    return block.text


def test_the_lines_of_the_guide_put_the_files_of_an_installed_agent_in_place(
    installed: Installed, tmp_path: Path
) -> None:
    prefix = installed.command.parents[1]
    lines = re.sub(r"(?<=[ >|])/(etc|usr/local)", rf"{tmp_path}/\1", guide_lines())
    lines = lines.replace("/opt/compute-node-agent", str(prefix))
    for folder in ("etc/systemd/system", "usr/local/share"):
        (tmp_path / folder).mkdir(parents=True)
    for _again in range(2):
        run("sh", "-e", "-c", lines, cwd=tmp_path)
    unit = (tmp_path / "etc/systemd/system/compute-node-agent.service").read_text()
    assert f"\nExecStart={installed.command}\n" in unit
    assert (tmp_path / "etc/compute-node-agent").stat().st_mode & 0o777 == 0o750
    conf = tmp_path / "etc/compute-node-agent/agent.conf"
    assert conf.read_bytes() == (CHECKOUT / "etc/agent.conf.sample").read_bytes()
    for place, source in shipped_files().items():
        copy = tmp_path / "usr/local" / place
        assert copy.read_bytes() == (CHECKOUT / source).read_bytes(), place
    # What the lines brought is what completes the command line.
    printed = installed.agent("completion", "bash", cwd=tmp_path)
    assert printed.stdout == (CHECKOUT / "etc/completion/bash/agent").read_text()


def test_the_lines_of_the_quick_start_install_an_agent_that_runs_its_first_command(
    tmp_path: Path,
) -> None:
    """In a copy of the checkout, with the page's own configuration; the embedded Placement comes with
    the extra.
    """
    page = list(blocks(CHECKOUT / "docs" / "quick-start.md"))
    (lines,) = (block.text for block in page if "pip install" in block.text)
    (config,) = (block for block in page if block.note == "file")
    (first, *_) = (block.commands[0] for block in page if block.language == "console")
    checkout = tmp_path / "checkout"
    shutil.copytree(CHECKOUT, checkout, ignore=NOT_SOURCE)
    (checkout / config.detail).write_text(config.text + "\n")
    lines = lines.replace("python3 ", f"{sys.executable} ", 1)
    # The state of root is of the machine.
    if not os.getuid():
        first = f"unshare --mount sh -c 'mount -t tmpfs tmpfs /var/lib && {first}'"
    printed = run("sh", "-e", "-c", f"{lines}\nHOME={tmp_path} {first}", cwd=checkout)
    assert "compute-1_NUMA0" in printed


def test_the_version_of_an_installed_agent_is_that_of_its_wheel(
    installed: Installed, wheel: Path, tmp_path: Path
) -> None:
    result = installed.agent("--version", cwd=tmp_path)
    assert (result.code, result.stdout) == (0, f"agent {wheel.name.split('-')[1]}\n"), result


def test_an_agent_without_extras_keeps_a_placement_over_http_true(
    installed: Installed, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    config = write_config(
        tmp_path / "agent.conf",
        {
            "DEFAULT": {"host": "node-a", "compute_driver": "fake.small"},
            "store": {"path": tmp_path / "store"},
            # one request at a time, because Placement on SQLite answers 500 to writes side by side
            "placement": {**http_placement.credentials(), "max_in_flight": 1},
        },
    )
    first = installed.agent(
        "--config-file", str(config), "--once", "--format", "json", cwd=tmp_path
    )
    assert (first.code, [node["state"] for node in first.json["nodes"]]) == (0, ["changed"]), first
    (root,) = http_placement.other.tree(first.json["nodes"][0]["uuid"])
    assert root["name"] == "node-a"
    second = installed.agent(
        "--config-file", str(config), "--once", "--detailed-exitcode", cwd=tmp_path
    )
    assert second.code == 0, second
    assert "in-sync" in second.stdout


def test_an_agent_without_extras_says_what_the_embedded_placement_needs(
    installed: Installed, tmp_path: Path
) -> None:
    result = installed.agent(
        "--once",
        "--config-file",
        "/dev/null",
        "--store-path",
        str(tmp_path / "store"),
        cwd=tmp_path,
    )
    assert (result.code, result.stdout) == (1, ""), result
    assert "-m pip install 'openstack-placement" in result.stderr


NONE: Mapping[Path, str] = {}


class ReadOnlyContainer:
    """The installed wheel in a root folder of its own that nothing can be written to, but for the
    mounts of docs/containers.md; without a registry.
    """

    STATE = "/var/lib/compute-node-agent"
    MODULES = "/opt/modules"
    """Where Python finds more modules."""

    def __init__(
        self, installed: Installed, folder: Path, config: Path, more: Mapping[Path, str] = NONE
    ) -> None:
        """``more``: more of the host, with their places in the container."""
        self._command = installed.command
        self._config = config
        self._more = [f"--bind={source}:{place}" for source, place in more.items()]
        self._root, self.state, self.log = folder / "root", folder / "state", folder / "log"
        mounts = {"/usr", sys.base_prefix, str(self._command.parents[1])}
        self._read_only = [f"--bind-ro={mount}" for mount in sorted(mounts)]
        for place in (
            *mounts,
            *more.values(),
            self.STATE,
            "etc",
            "proc",
            "sys",
            "dev",
            "run",
            "tmp",
        ):
            (self._root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (self._root / name).symlink_to(f"usr/{name}")
        for name in ("os-release", "localtime", "resolv.conf", "agent.conf"):
            (self._root / "etc" / name).write_text("ID=example\n" if name == "os-release" else "")
        self.state.mkdir()

    @contextmanager
    def started(self, *, state: bool) -> Iterator[None]:
        """Run the daemon, with the state mounted or with an empty folder in its place. What it logs
        goes to ``log``.
        """
        mount = f"--bind={self.state}:{self.STATE}" if state else f"--tmpfs={self.STATE}"
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [
                    *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit"),
                    *("--console=pipe", "--kill-signal=SIGTERM", "--read-only"),
                    f"--setenv=PYTHONPATH={self.MODULES}",
                    *(f"--directory={self._root}", *self._read_only, *self._more, mount),
                    f"--bind-ro={self._config}:/etc/agent.conf",
                    *(self._command, "--config-file", "/etc/agent.conf"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)

    def logged(self) -> list[str]:
        """The lines of the agent's own log."""
        return [line for line in self.log.read_text().splitlines() if " agent." in line]


def test_a_read_only_container_keeps_its_node_and_tells_that_its_state_is_not_mounted(
    installed: Installed, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    check_possible()
    config = write_config(
        tmp_path / "agent.conf",
        {
            "DEFAULT": {"host": "node-a", "compute_driver": "fake.small"},
            "store": {"path": ReadOnlyContainer.STATE},
            "api": {"socket": ""},
            "placement": {**http_placement.credentials(), "max_in_flight": 1},
        },
    )
    container = ReadOnlyContainer(installed, tmp_path, config)

    def says(text: str) -> bool:
        return any(text in line for line in container.logged())

    with container.started(state=True):
        until(lambda: says("changed"))
    assert f"no state in {container.STATE}: this host gets a new identity" in container.logged()[0]
    before = http_placement.dump()
    (root,) = (one for one in before["providers"].values() if one["parent"] is None)
    assert root["name"] == "node-a"

    with container.started(state=True):
        until(lambda: says("in-sync"))
    assert not says("no state in")
    assert http_placement.dump() == before

    with container.started(state=False):
        until(lambda: says("is held by provider"))
    assert f"no state in {container.STATE}: this host gets a new identity" in container.logged()[0]
    assert http_placement.dump() == before


def test_a_container_has_the_hypervisor_of_its_host_and_novas_identity_by_its_mounts(
    installed: Installed, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    check_possible()
    libvirt = libvirtd.module()
    identity, binding = str(uuid4()), tmp_path / "binding"
    binding.mkdir()
    for file in Path(libvirt.__file__).parent.glob("libvirt*"):
        if file.suffix in (".py", ".so"):
            shutil.copy(file, binding)
    nova = tmp_path / "nova"
    (nova / "instances").mkdir(parents=True)
    (nova / "compute_id").write_text(identity)
    config = write_config(
        tmp_path / "agent.conf",
        {
            "DEFAULT": {
                "host": "node-a",
                "compute_driver": "libvirt.LibvirtDriver",
                "state_path": "/var/lib/nova",
            },
            "libvirt": {
                "connection_uri": "qemu+unix:///system?socket=/run/libvirt/libvirt-sock",
                "virt_type": "qemu",
            },
            "store": {"path": ReadOnlyContainer.STATE},
            "api": {"socket": ""},
            "placement": {**http_placement.credentials(), "max_in_flight": 1},
        },
    )
    server = libvirtd.Libvirtd()
    server.start()
    try:
        mounts = {
            server.folder / "sock": "/run/libvirt",
            nova: "/var/lib/nova",
            Path("/sys"): "/sys",
            binding: ReadOnlyContainer.MODULES,
        }
        container = ReadOnlyContainer(installed, tmp_path, config, mounts)
        with container.started(state=True):
            until(lambda: any("changed" in line for line in container.logged()), container.logged)
    finally:
        server.remove()
    # The node is called as the hypervisor calls it.
    root = http_placement.dump()["providers"][identity]
    assert {"VCPU", "MEMORY_MB"} <= root["inventories"].keys()
