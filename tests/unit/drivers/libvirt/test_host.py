"""The disk for guests, told by commands that the tests put in the place of the real ones."""

import json
import time
from pathlib import Path

import pytest

from agent.errors import DriverError
from drivers.libvirt import host
from drivers.libvirt.host import read_disk_gib
from drivers.libvirt.settings import DiskSettings

GIB = 1024**3
LVM = DiskSettings("lvm", Path("/"), volume_group="vg0")
RBD = DiskSettings("rbd", Path("/"), pool="vms")


def pools(*found):
    return json.dumps(
        {
            "stats": {"total_bytes": 9 * GIB},
            "pools": [{"name": name, "id": 1, "stats": stats} for name, stats in found],
        }
    )


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Put a command on the path that prints this; what it was called with."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def say(name, text, code=0, error=""):
        script = tmp_path / name
        (tmp_path / "output").write_text(text)
        (tmp_path / "error").write_text(error)
        script.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/called\ncat {tmp_path}/output; cat '
            f"{tmp_path}/error >&2; exit {code}\n"
        )
        script.chmod(0o755)
        return tmp_path / "called"

    return say


@pytest.mark.parametrize("text", ["", "4.5", "440g", "  1\n  2\n", "-1", "\u0664"])
def test_a_volume_group_without_a_number_is_an_error(says, text):
    says("vgs", text)
    with pytest.raises(DriverError, match="volume group vg0"):
        read_disk_gib(LVM)


def test_a_ceph_that_does_not_tell_replicas_apart_counts_what_is_used(says):
    called = says("ceph", pools(("vms", {"bytes_used": 10 * GIB, "max_avail": 90 * GIB})))
    assert read_disk_gib(RBD) == 100
    assert called.read_text().strip() == "df --format json"


def test_ceph_is_asked_as_the_configured_client(says):
    called = says("ceph", pools(("vms", {"stored": 0, "max_avail": GIB})))
    settings = DiskSettings(
        "rbd", Path("/"), pool="vms", ceph_conf="/etc/ceph/other.conf", ceph_user="nova"
    )
    assert read_disk_gib(settings) == 1
    assert called.read_text().strip() == "df --format json --id nova --conf /etc/ceph/other.conf"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"pools": [{"name": "other", "stats": {}}]}',
        '{"pools": [{"name": "vms", "stats": {}}]}',
        "[" * 100_000,
    ],
)
def test_a_pool_that_ceph_does_not_tell_is_an_error_that_names_it(says, text):
    says("ceph", text)
    with pytest.raises(DriverError, match="pool vms"):
        read_disk_gib(RBD)


def test_a_command_that_fails_says_why(says):
    says("vgs", "", code=5, error="  Cannot process volume group vg0\n\x1b[31mreally\n")
    with pytest.raises(DriverError, match=r"vgs failed with 5: \\x1b\[31mreally"):
        read_disk_gib(LVM)


def test_a_command_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(DriverError, match="the command ceph is not installed"):
        read_disk_gib(RBD)


def test_a_command_that_hangs_is_ended():
    begun = time.monotonic()
    with pytest.raises(DriverError, match="timed out"):
        host.output_of(["sleep", "600"], deadline=0.1)
    assert time.monotonic() - begun < 60
