"""The files for systemd, looked at by systemd's own tools."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import backends
from tests.support.child import CHECKOUT

FILES = CHECKOUT / "systemd"
NAME = "compute-node-agent"
# In tenths, as systemd-analyze security counts: 0 is locked up, 100 wide open.
EXPOSURE = 20


def tool(name: str) -> str:
    """The path of one of systemd's commands."""
    found = shutil.which(name)
    if found is None:
        backends.missing("systemd's tools", "apt-get install systemd", f"{name} is not installed")
    return found


def run(*command: str | Path) -> str:
    """Standard output of a command that has nothing to complain about."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def unit(tmp_path):
    """The unit as it would be for an agent in this environment."""
    agent = Path(sys.executable).parent / "agent"
    text = (FILES / f"{NAME}.service").read_text()
    assert "ExecStart=/usr/bin/agent\n" in text
    path = tmp_path / f"{NAME}.service"
    path.write_text(text.replace("ExecStart=/usr/bin/agent\n", f"ExecStart={agent}\n"))
    return path


def test_the_unit_is_clean_with_the_path_of_this_environment(unit):
    run(tool("systemd-analyze"), "verify", "--man=no", unit)


def test_the_host_has_its_name_first_and_nothing_is_started_or_waited_for_because_of_the_agent(
    unit, tmp_path
):
    verify = (tool("systemd-analyze"), "verify", "--man=no")
    for earlier in ("cloud-init.service", "network-online.target"):
        other = tmp_path / earlier
        kind = "[Service]\nExecStart=/bin/true\n" if earlier.endswith("service") else ""
        other.write_text(f"[Unit]\nWants={NAME}.service\nAfter={NAME}.service\n{kind}")
        with pytest.raises(AssertionError, match=f"Found ordering cycle.*{NAME}"):
            run(*verify, other)
        other.unlink()
    text = unit.read_text()
    assert not any(word in text for word in ("Wants=", "Requires=", "Requisite=", "time-sync"))
    run(*verify, unit)


def test_verification_would_see_a_command_that_is_not_there(unit):
    unit.write_text(unit.read_text().replace("ExecStart=", "ExecStart=/nonexistent"))
    with pytest.raises(AssertionError, match="is not executable"):
        run(tool("systemd-analyze"), "verify", "--man=no", unit)


def test_the_service_stays_locked_up(unit):
    run(
        tool("systemd-analyze"),
        "security",
        "--offline=yes",
        "--no-pager",
        f"--threshold={EXPOSURE}",
        unit,
    )


@pytest.fixture
def drop_in(unit, tmp_path):
    """Puts a drop-in beside the unit, with the command of this environment."""

    def put(name):
        text = (FILES / f"{NAME}.service.d" / name).read_text()
        path = tmp_path / f"{NAME}.service.d" / name
        path.parent.mkdir()
        here = f"ExecStart={Path(sys.executable).parent}/agent "
        path.write_text(text.replace("ExecStart=/usr/bin/agent ", here))
        return path

    return put


@pytest.mark.parametrize(
    ("name", "line", "wrong", "told"),
    [
        ("nova.conf", "ExecStart=", None, "more than one ExecStart="),
        ("fleet.conf", "MemoryMax=4G", "MemoryMax=four", "Invalid memory limit"),
        (
            "libvirt.conf",
            "SupplementaryGroups=libvirt",
            "SupplementaryGroup=libvirt",
            "SupplementaryGroup",
        ),
    ],
)
def test_a_drop_in_is_clean_beside_the_unit(unit, drop_in, name, line, wrong, told):
    """And would not be with its ``line`` wrong, or left out."""
    path = drop_in(name)
    verify = (tool("systemd-analyze"), "verify", "--man=no", unit)
    run(*verify)
    text = path.read_text()
    assert f"\n{line}\n" in text
    assert ("\nSupplementaryGroups=nova\n" in text) == (name == "nova.conf")
    assert "\nMemoryMax=1G\n" in unit.read_text()
    path.write_text(text.replace(f"\n{line}\n", f"\n{wrong}\n" if wrong else "\n"))
    with pytest.raises(AssertionError, match=told):
        run(*verify)


@pytest.fixture
def nova_compute(tmp_path):
    """A unit as distributions have one for nova-compute, with the drop-in beside it."""
    command = "ExecStart=/usr/bin/agent-nova-compute\n"
    text = (FILES / "nova-compute.service.d" / f"{NAME}.conf").read_text()
    assert text.endswith(f"\n{command}")
    path = tmp_path / "nova-compute.service"
    path.write_text("[Service]\nType=notify\nExecStart=/bin/true\n")
    drop_in = tmp_path / "nova-compute.service.d" / f"{NAME}.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(text.replace(command, f"ExecStart={sys.executable}\n"))
    return path, drop_in


def test_the_drop_in_replaces_the_command_of_nova_compute(nova_compute):
    unit, drop_in = nova_compute
    verify = (tool("systemd-analyze"), "verify", "--man=no", unit)
    run(*verify)
    drop_in.write_text(drop_in.read_text().replace("\nExecStart=\n", "\n"))
    with pytest.raises(AssertionError, match="more than one ExecStart="):
        run(*verify)


def test_nova_compute_has_its_own_command_again_without_the_drop_in(nova_compute):
    unit, drop_in = nova_compute
    unit.write_text(unit.read_text().replace("/bin/true", "/nonexistent/nova-compute"))
    verify = (tool("systemd-analyze"), "verify", "--man=no", unit)
    run(*verify)
    drop_in.unlink()
    with pytest.raises(AssertionError, match="/nonexistent/nova-compute is not executable"):
        run(*verify)


def test_user_and_folders_are_made_as_the_unit_needs_them(unit, tmp_path):
    sysusers, tmpfiles = tool("systemd-sysusers"), tool("systemd-tmpfiles")
    if os.geteuid() != 0:
        backends.missing(
            "other users", backends.AS_ROOT, "only root can make the folders of another user"
        )
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    subprocess.run(
        [sysusers, f"--root={root}", FILES / f"{NAME}.sysusers"], capture_output=True, check=True
    )
    (uid, gid) = next(
        line.split(":")[2:4]
        for line in (root / "etc" / "passwd").read_text().splitlines()
        if line.startswith(f"{NAME}:")
    )
    run(tmpfiles, "--create", f"--root={root}", FILES / f"{NAME}.tmpfiles")

    def seen(path: str) -> tuple[str, int, int]:
        found = (root / path).stat()
        return oct(found.st_mode & 0o7777), found.st_uid, found.st_gid

    assert f"User={NAME}\n" in unit.read_text()
    assert seen(f"var/lib/{NAME}") == ("0o750", int(uid), int(gid))
    assert seen(f"etc/{NAME}") == ("0o750", 0, int(gid))
