"""The libvirt driver keeps the promises of the driver interface, on a real libvirtd and on libvirt's
own test backend.
"""

from pathlib import Path

import pytest

from tests.support.libvirt_host import Operator
from tests.support.libvirtd import Libvirtd, binding
from tests.support.system import AgentHere, Result

pytestmark = pytest.mark.long


def checked(folder: Path, uri: str) -> Result:
    agent = AgentHere(
        folder,
        {
            "DEFAULT": {"host": "compute-1", "instances_path": "/"},
            "libvirt": {"connection_uri": uri, "virt_type": "qemu"},
        },
    )
    return agent.run("driver", "check", "libvirt", "--format", "json")


def broken(result: Result) -> list[str]:
    return [promise["check"] for promise in result.json["checks"] if promise["state"] == "broken"]


def test_it_keeps_every_promise_on_a_real_libvirtd(
    libvirtd: Libvirtd, operator: Operator, tmp_path: Path
) -> None:
    operator.start("guest", paused=True, nova=True)
    result = checked(tmp_path, libvirtd.uri)
    assert (result.code, broken(result)) == (0, []), result


def test_a_libvirtd_that_found_no_qemu_needs_no_restart_once_there_is_one(
    libvirtd: Libvirtd, operator: Operator, tmp_path: Path
) -> None:
    with libvirtd.without_qemu():
        operator.connection.getCapabilities()
        assert "Cannot find suitable emulator" in checked(tmp_path, libvirtd.uri).stdout
    with pytest.raises(binding().libvirtError):
        operator.connection.getVersion()
    result = checked(tmp_path, libvirtd.uri)
    assert (result.code, broken(result)) == (0, []), result


def test_it_keeps_every_promise_on_the_test_backend(tmp_path: Path) -> None:
    result = checked(tmp_path, "test:///default")
    assert (result.code, broken(result)) == (0, []), result
