"""``agent setup``: puts the files of the service in place below a root folder, and takes them away
again without a trace.
"""

import hashlib
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from configparser import ConfigParser
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.cli.command_table import COMMANDS
from agent.cli.commands.setup import shipped
from agent.cli.commands.setup.root_folder import RootFolder
from agent.cli.commands.setup.shipped import SHIPPED_FILES
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.folder import all_of
from tests.support.system import AgentHere

UNIT = "etc/systemd/system/compute-node-agent.service"
CONFIGURATION = "etc/compute-node-agent/agent.conf"
MANIFEST = "etc/compute-node-agent/setup.json"
COMMAND = "/opt/compute-node-agent/bin/agent"


@pytest.fixture
def root(tmp_path):
    """A host with folders, files and modes of its own."""
    made = tmp_path / "host"
    for folder in ("etc/systemd/system", "usr/local/share/man", "etc/sysusers.d", "usr/lib/x"):
        (made / folder).mkdir(parents=True)
    (made / "etc/systemd/system/other.service").write_text("[Service]\n")
    (made / "etc/sysusers.d").chmod(0o700)
    return made


@pytest.fixture
def setup(tmp_path, root):
    (tmp_path / "agent").mkdir()
    agent = AgentHere(tmp_path / "agent")

    def call(*arguments, code=0):
        # a configuration that cannot be used is no obstacle, because it may be what is to be set up
        agent.config_file.write_text("[DEFAULT]\ncompute_driver = no-such\nlog_dir = $nothing\n")
        result = agent.run("setup", "--root", str(root), "--command", COMMAND, *arguments)
        assert result.code == code, result
        return result

    return call


def listing(root):
    """Names, kinds, modes, owners and contents; not the times of folders."""
    return {
        str(path.relative_to(root)): (
            oct(path.lstat().st_mode),
            path.lstat().st_uid,
            path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
    }


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_shown_first_and_nothing_is_written(setup, root):
    before = all_of(root)
    for arguments in ((), ("--dry-run",), ("--dry-run", "--yes"), ("--remove",)):
        result = setup(*arguments)
        assert all_of(root) == before
    shown = setup().stdout
    for file in SHIPPED_FILES:
        assert (f"+ {root / file.target}\n" in shown) == (file.drop_in is None)
    assert "nothing was done yet: add --yes" in shown
    assert "agent setup wrote nothing below" in result.stdout


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_there_and_back_leaves_no_trace(setup, root, umask):
    before = listing(root)
    former = os.umask(umask)
    try:
        written = setup("--yes", "--drop-in", "libvirt", "--drop-in", "nova", "--format", "json")
        assert {file["action"] for file in written.json["files"]} == {"write"}
        for file in SHIPPED_FILES:
            if file.drop_in in ("fleet", "nova-compute"):
                assert not (root / file.target).exists()
            else:
                assert mode(root / file.target) == file.mode
        assert mode(root / "etc/compute-node-agent") == 0o750
        assert mode(root / "etc/compute-node-agent/agent.conf.d") == 0o750
        assert mode(root / "usr/local/share/compute-node-agent") == 0o755
        assert (root / CONFIGURATION).read_bytes() == (
            CHECKOUT / "etc/agent.conf.sample"
        ).read_bytes()
        setup("--remove", "--yes")
    finally:
        os.umask(former)
    assert listing(root) == before


def test_the_unit_calls_the_agent_that_is_there(setup, root):
    setup("--yes", "--drop-in", "nova-compute", "--drop-in", "nova")
    assert f"\nExecStart={COMMAND}\n" in (root / UNIT).read_text()
    assert (
        f"\nExecStart={COMMAND} --config-file /etc/nova/nova.conf"
        in (root / f"{UNIT}.d/nova.conf").read_text()
    )
    nova = root / "etc/systemd/system/nova-compute.service.d/compute-node-agent.conf"
    assert nova.read_text().endswith(f"\nExecStart={COMMAND}-nova-compute\n")


def test_a_second_time_writes_nothing(setup, root):
    setup("--yes")
    before = all_of(root)
    assert setup("--yes").stdout.endswith("nothing to do\n")
    assert all_of(root) == before


def test_drop_ins_can_come_later_and_stay(setup, root):
    setup("--yes")
    setup("--yes", "--drop-in", "libvirt")
    setup("--yes")
    assert (root / f"{UNIT}.d/libvirt.conf").exists()
    setup("--remove", "--yes")
    assert not (root / f"{UNIT}.d").exists()


def test_the_command_stays_until_another_is_given(setup, root, tmp_path):
    setup("--yes", "--command", "/opt/first/bin/agent")
    before = all_of(root)
    agent = AgentHere(tmp_path / "agent")
    again = agent.run("setup", "--root", str(root), "--yes", "--format", "json").json
    assert again["command"] == "/opt/first/bin/agent"
    assert {file["action"] for file in again["files"]} == {"none"}
    assert all_of(root) == before
    setup("--yes", "--command", "/opt/second/bin/agent")
    assert agent.run("setup", "--root", str(root), "--yes").stdout.endswith("nothing to do\n")
    assert "\nExecStart=/opt/second/bin/agent\n" in (root / UNIT).read_text()
    setup("--remove", "--yes")
    assert agent.run("setup", "--root", str(root), "--format", "json").json["command"] == str(
        shipped.installed_command()
    )


def test_a_manifest_without_the_command_can_be_read_and_gets_it(setup, root, tmp_path):
    setup("--yes")
    document = json.loads((root / MANIFEST).read_text())
    assert document.pop("command") == COMMAND
    (root / MANIFEST).write_text(json.dumps(document))
    assert setup("--yes").stdout.endswith("nothing to do\n")
    assert json.loads((root / MANIFEST).read_text()) == {**document, "command": COMMAND}


def test_what_the_operator_changed_stays_and_is_told(setup, root):
    setup("--yes")
    (root / CONFIGURATION).write_text("[DEFAULT]\ncompute_driver = host\n")
    (root / "etc/compute-node-agent/agent.conf.d/own.conf").write_text("[DEFAULT]\n")
    own = (
        f"! {root / 'etc/compute-node-agent/agent.conf.d/own.conf'} — agent setup did not write it"
    )
    for arguments in (("--yes",), ("--remove",), ("--remove", "--yes")):
        told = setup(*arguments).stdout
        assert f"! {root / CONFIGURATION} — it was changed after agent setup wrote it" in told, told
        assert (own in told) == ("--remove" in arguments), told
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert left == {
        CONFIGURATION,
        MANIFEST,
        "etc/compute-node-agent/agent.conf.d/own.conf",
        "etc/systemd/system/other.service",
    }
    # what it keeps is removed once nobody has changed it any more
    shutil.copy(CHECKOUT / "etc/agent.conf.sample", root / CONFIGURATION)
    (root / "etc/compute-node-agent/agent.conf.d/own.conf").unlink()
    setup("--remove", "--yes")
    assert not (root / "etc/compute-node-agent").exists()


def test_what_others_put_into_its_folders_stays_and_is_told(setup, root):
    setup("--yes", "--drop-in", "libvirt")
    override = root / f"{UNIT}.d/override.conf"
    override.write_text("[Service]\n")
    manual = root / "usr/local/share/man/man8"
    manual.mkdir()
    (manual / "other.8").write_text("")
    (root / "usr/local/share/fish/link").symlink_to("/nonexistent")
    result = setup("--remove", "--yes", "--format", "json").json
    assert [file["path"] for file in result["files"] if file["action"] == "keep"] == [
        f"/{UNIT}.d/override.conf",
        "/usr/local/share/fish/link",
    ]
    assert override.exists()
    assert (manual / "other.8").exists()
    assert not (root / MANIFEST).exists()
    assert not (root / "usr/local/share/bash-completion").exists()


def test_a_configuration_that_was_there_before_is_the_operators(setup, root):
    (root / CONFIGURATION).parent.mkdir()
    (root / CONFIGURATION).write_text("[DEFAULT]\n")
    before = listing(root)
    assert f"! {root / CONFIGURATION} — it was there before" in setup("--yes").stdout
    setup("--remove", "--yes")
    assert listing(root) == before


def test_everything_in_the_way_is_told_at_once_and_nothing_is_written(setup, root, tmp_path):
    (root / UNIT).symlink_to("/dev/null")
    (root / "etc/tmpfiles.d").mkdir()
    (root / "etc/tmpfiles.d/compute-node-agent.conf").write_text("d /x\n")
    (root / "usr/local/share/man/man1").write_text("")
    (root / "usr/local/share/zsh").symlink_to(tmp_path)
    (root / "etc/sysusers.d/compute-node-agent.conf").mkdir()
    before = listing(root)
    told = setup("--yes", code=1).stderr
    assert told.count("✗") == 5, told
    for wrong in (
        f"{UNIT} is a link",
        "compute-node-agent.conf is there, and agent setup did not write it",
        "man/man1 is no folder",
        "share/zsh is a link that leads out of",
        "sysusers.d/compute-node-agent.conf is no regular file",
    ):
        assert wrong in told
    assert listing(root) == before


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [(0, "run agent setup as root"), (os.ST_RDONLY, "mount its file system for writing")],
)
def test_a_folder_that_cannot_be_written_is_told_once(setup, root, monkeypatch, flags, remedy):
    for shown in ("etc", "usr"):
        shutil.rmtree(root / shown)
    # Root may write everywhere but on a file system that is mounted read-only.
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    told = setup("--yes", code=1).stderr
    assert told.count("✗") == 1, told
    assert f"the folder {root} cannot be written" in told
    assert remedy in told
    assert listing(root) == {}


def test_a_service_that_a_package_installed_is_left_to_it(setup, root):
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system/compute-node-agent.service").write_text("")
    assert "a package has installed the service already" in setup(code=1).stderr


def test_an_enabled_service_keeps_its_unit(setup, root):
    setup("--yes")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "compute-node-agent.service").symlink_to(f"/{UNIT}")
    before = listing(root)
    assert "systemctl disable --now compute-node-agent" in setup("--remove", "--yes", code=1).stderr
    assert listing(root) == before


def test_a_new_version_replaces_what_nobody_changed(setup, root, monkeypatch):
    setup("--yes")
    rules = "usr/local/share/compute-node-agent/etc/prometheus/compute-node-agent.rules.yaml"
    gone = "usr/local/share/compute-node-agent/etc/hosts/numa.yaml"
    newer = tuple(file for file in SHIPPED_FILES if file.target != gone)

    def of_newer(file, command):
        return b"newer\n" if file.target in (UNIT, rules) else shipped.read_shipped(file, command)

    (root / UNIT).write_text("changed\n")
    with monkeypatch.context() as patched:
        patched.setattr(shipped, "SHIPPED_FILES", newer)
        patched.setattr("agent.cli.commands.setup.steps.read_shipped", of_newer)
        told = setup("--yes").stdout
    assert f"~ {root / rules} — this version has another\n" in told
    assert f"- {root / gone}\n" in told
    assert f"! {root / UNIT} " in told
    assert ((root / rules).read_text(), (root / UNIT).read_text()) == ("newer\n", "changed\n")
    assert not (root / gone).exists()


def test_a_file_that_is_replaced_stays_with_its_owner(setup, root, monkeypatch):
    if os.geteuid() != 0:
        backends.missing("other users", backends.AS_ROOT, "only root can give files to others")
    setup("--yes")
    # as systemd-tmpfiles does, so that the service can read it
    os.chown(root / CONFIGURATION, 1234, 1235)

    def of_newer(file, command):
        content = shipped.read_shipped(file, command)
        return content + b"# newer\n" if file.target == CONFIGURATION else content

    monkeypatch.setattr("agent.cli.commands.setup.steps.read_shipped", of_newer)
    assert f"~ {root / CONFIGURATION} — this version has another\n" in setup("--yes").stdout
    status = (root / CONFIGURATION).stat()
    assert (status.st_uid, status.st_gid, mode(root / CONFIGURATION)) == (1234, 1235, 0o640)


def test_a_run_that_failed_in_the_middle_can_be_repeated_and_taken_back(setup, root, monkeypatch):
    before = listing(root)
    real = RootFolder.write
    written = []

    def full(self, target, content, mode):
        written.append(target)
        if len(written) == 4:
            raise OSError(28, "No space left on device")
        real(self, target, content, mode)

    for repeated in (True, False):
        written.clear()
        with monkeypatch.context() as patched:
            patched.setattr(RootFolder, "write", full)
            assert setup("--yes", code=1).code == 1
        assert (root / MANIFEST).exists()
        if repeated:
            setup("--yes")
            assert setup("--yes").stdout.endswith("nothing to do\n")
        setup("--remove", "--yes")
        assert listing(root) == before


def test_what_a_killed_run_left_unfinished_goes_too(setup, root):
    before = listing(root)
    setup("--yes")
    (root / UNIT).rename(root / "etc/systemd/system/.compute-node-agent.service.agent-setup")
    setup("--remove", "--yes")
    assert listing(root) == before


CHANGES = {"os.mkdir", "os.chmod", "os.rename", "os.remove", "os.rmdir", "open"}
"""Audit events of Python before what changes a file system; open: for writing."""


def killed_before(change, call):
    """Call in a fork that is killed before it changes a file system for the ``change``-th time.
    Return whether it was killed.
    """
    child = os.fork()
    if child == 0:
        left = [change]

        def count(event, arguments):
            if event in CHANGES and (event != "open" or (arguments[2] or 0) & os.O_ACCMODE):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(count)
            call()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("bare", [True, False])
def test_a_run_that_is_killed_at_any_time_can_be_repeated_and_taken_back(
    setup, root, tmp_path, monkeypatch, bare
):
    few = tuple(file for file in SHIPPED_FILES if file.target in (UNIT, CONFIGURATION))
    monkeypatch.setattr(shipped, "SHIPPED_FILES", few)
    # slow, and of no effect on what a killed process leaves
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    if bare:
        root = tmp_path / "bare"
        root.mkdir()
    there, before = ("--root", str(root), "--yes"), listing(root)
    back = (*there, "--remove")
    setup(*there)
    complete = listing(root)
    for first, killed in ((back, there), (there, back)):
        for change in itertools.count(1):
            setup(*first)
            was_killed = killed_before(change, partial(setup, *killed))
            if change % 2 == bare:
                setup(*there)
                assert listing(root) == complete, change
            setup(*back)
            assert listing(root) == before, change
            if not was_killed:
                break
        assert change > 10


def test_a_folder_with_another_mode_gets_its_own_again(setup, root):
    setup("--yes")
    (root / "etc/compute-node-agent/agent.conf.d").chmod(0o755)
    (root / "usr/local/share/zsh").chmod(0o700)
    setup()
    assert mode(root / "etc/compute-node-agent/agent.conf.d") == 0o755
    setup("--yes")
    assert mode(root / "etc/compute-node-agent/agent.conf.d") == 0o750
    # no folder of the service: as the operator wants it
    assert mode(root / "usr/local/share/zsh") == 0o700


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {"../x": []}, "folders": []}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {"/x": []}, "folders": []}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {"x": ["a"]}, "folders": []}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {}, "folders": ["/"]}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {"x": 1}, "folders": [2]}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {}, "folders": "etc"}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {"x\\u0000": []}, "folders": []}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {}, "folders": ["x\\ud800"]}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {}, "folders": [], '
        '"command": "agent"}',
        '{"schema": "compute-node-agent/setup-manifest/1", "files": {}, "folders": [], '
        '"command": ["/bin/agent"]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_manifest_is_refused(setup, root, content):
    (root / MANIFEST).parent.mkdir()
    (root / MANIFEST).write_text(content)
    before = listing(root)
    for arguments in (("--yes",), ("--remove", "--yes")):
        assert "is damaged" in setup(*arguments, code=1).stderr
    assert listing(root) == before


def test_a_manifest_that_is_no_regular_file_is_refused(setup, root, tmp_path):
    (root / MANIFEST).parent.mkdir()
    os.mkfifo(root / MANIFEST)
    before = listing(root)
    for arguments in ((), ("--yes",), ("--remove", "--yes")):
        assert "setup.json is no regular file" in setup(*arguments, code=1).stderr
    assert listing(root) == before
    (root / MANIFEST).unlink()
    (tmp_path / "manifest").write_text("")
    (root / MANIFEST).symlink_to(tmp_path / "manifest")
    for arguments in ((), ("--yes",), ("--remove", "--yes")):
        assert "setup.json is a link" in setup(*arguments, code=1).stderr


@pytest.mark.parametrize("link", ["etc", "etc/compute-node-agent"])
def test_a_removal_does_not_follow_a_link_out_of_the_root(setup, tmp_path, link):
    other, bare = tmp_path / "other", tmp_path / "bare"
    (other / CONFIGURATION).parent.mkdir(parents=True)
    # the operator's, so that the manifest has no file beside itself
    (other / CONFIGURATION).write_text("[DEFAULT]\n")
    setup("--root", str(other), "--yes")
    (bare / link).parent.mkdir(parents=True)
    (bare / link).symlink_to(other / link)
    before = listing(other)
    for arguments in ((), ("--remove",), ("--remove", "--yes")):
        told = setup("--root", str(bare), *arguments, code=1).stderr
        assert f"{bare / link} is a link that leads out of {bare}" in told
    assert listing(other) == before


@pytest.mark.parametrize("kind", ["files", "folders"])
def test_a_manifest_with_a_path_through_a_link_out_of_the_root_is_refused(
    setup, root, tmp_path, kind
):
    (tmp_path / "other/x").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "other")
    setup("--yes")
    document = json.loads((root / MANIFEST).read_text())
    if kind == "files":
        (tmp_path / "other/x/y").write_text("")
        document["files"]["link/x/y"] = [hashlib.sha256(b"").hexdigest()]
    else:
        document["folders"].append("link/x")
    (root / MANIFEST).write_text(json.dumps(document))
    before = listing(tmp_path)
    for arguments in (("--remove",), ("--remove", "--yes")):
        assert f"{root / 'link'} is a link that leads out of" in setup(*arguments, code=1).stderr
    assert listing(tmp_path) == before


@pytest.mark.parametrize("folder", ["etc", "usr", "etc/compute-node-agent"])
def test_a_link_that_leads_to_itself_is_refused(setup, tmp_path, folder):
    bare = tmp_path / "bare"
    (bare / folder).parent.mkdir(parents=True)
    (bare / folder).symlink_to(Path(folder).name)
    before = listing(bare)
    for arguments in ((), ("--yes",)):
        told = setup("--root", str(bare), *arguments, code=1).stderr
        assert f"{bare / folder} is a link that leads to no folder" in told
    told = setup("--root", str(bare), "--remove", "--yes", code=int(folder != "usr"))
    assert ("is a link" in told.stderr) == (folder != "usr")
    assert listing(bare) == before


def test_a_path_that_is_too_long_is_told(setup, root):
    setup("--yes")
    document = json.loads((root / MANIFEST).read_text())
    document["folders"].append(f"{'x' * 300}/y")
    (root / MANIFEST).write_text(json.dumps(document))
    before = listing(root)
    assert "File name too long" in setup("--remove", "--yes", code=1).stderr
    assert listing(root) == before


def test_arguments_that_cannot_be_used(setup, root, tmp_path):
    assert "there is no such folder" in setup("--root", str(tmp_path / "none"), code=1).stderr
    assert "'nowhere' is none of fleet, libvirt" in setup("--drop-in", "nowhere", code=64).stderr
    for command in ("agent", "/opt/a b/agent", "/opt/%h/agent", "/opt/"):
        assert "not the absolute path" in setup("--command", command, code=1).stderr
    # the unit calls agent, and nova-compute's drop-in agent-nova-compute beside it
    for command in ("/opt/x/my-agent", "/opt/agent/..", "/agent/bin/agent-nova-compute"):
        told = setup("--command", command, code=1).stderr
        assert f"--command {command}: not the absolute path of agent" in told
        assert "it ends with /agent" in told


def test_a_command_in_a_home_is_told(setup):
    assert "the unit hides this folder" in setup("--command", "/root/.venv/bin/agent").stdout


def test_as_json(setup, root):
    document = setup("--format", "json").json
    assert (document["schema"], document["carried_out"]) == ("compute-node-agent/setup/1", False)
    assert {"path": f"/{UNIT}", "action": "write", "reason": ""} in document["files"]


def test_what_setup_puts_in_place_is_what_the_wheel_has():
    config = ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    packaged = {
        f"{folder}/{Path(source).name}": source
        for folder, sources in config["options.data_files"].items()
        for source in sources.split()
    }
    assert packaged == {file.place: file.source for file in SHIPPED_FILES}
    for file in SHIPPED_FILES:
        assert (CHECKOUT / file.source).is_file(), file.source


def test_every_drop_in_can_be_chosen():
    (command,) = (command for command in COMMANDS if command.words == ("setup",))
    (choices,) = (found.choices for found in command.arguments if found.name == "--drop-in")
    assert set(choices) == {file.drop_in for file in SHIPPED_FILES if file.drop_in}


def test_every_sample_and_example_is_shipped():
    tracked = subprocess.run(
        ["git", "ls-files", "etc", "systemd"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    sources = {file.source for file in SHIPPED_FILES}
    others = {"etc/README.md", "etc/config-generator.conf"}
    assert {name for name in tracked if not name.startswith("systemd/debian/")} <= sources | others


def test_the_manual_has_every_command():
    text = (CHECKOUT / "docs" / "man" / "agent.1").read_text().replace("\\-", "-")
    for command in COMMANDS:
        assert f"agent {command.words[0]}" in text, "make genconfig"
        assert command.words[-1] in text
