"""Guests of a real libvirtd with metadata that nova would not write: each is counted by its domain
and told, and all else goes on.
"""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import SOON, LibvirtDaemon, Operator, guest_uuid, guest_xml
from tests.support.libvirtd import Libvirtd
from tests.support.service_manager import until
from tests.support.system import AgentHere

pytestmark = pytest.mark.long

# An agent that believes such a number takes all memory of the machine.
ENOUGH = 1 << 31
VCPUS, NAME = "<nova:vcpus>1</nova:vcpus>", 'name="small"'
SPECS = '<nova:extraSpecs><nova:extraSpec name="a">{}</nova:extraSpec></nova:extraSpecs>'
HOSTILE = {
    "digits": (VCPUS, f"<nova:vcpus>{'9' * 15}</nova:vcpus>", "vcpus: 999999999999999 is more"),
    "more digits": (VCPUS, f"<nova:vcpus>{'9' * 30}</nova:vcpus>", "is not a number"),
    "memory": ("<nova:memory>16<", f"<nova:memory>{'9' * 15}<", "memory: 999999999999999 is more"),
    "nameless": (NAME, "", "it has no name"),
    "long": (NAME, f'name="{"x" * 256}"', "has 256 characters, more than 255"),
    "long spec": (VCPUS, VCPUS + SPECS.format("x" * 4097), "4097 characters, more than 4096"),
}


def high_water(pid: int) -> int:
    """The most memory in MiB that the process had at once."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) // 1024


def test_a_guest_whose_metadata_cannot_be_read_is_counted_by_its_domain_and_told(
    tmp_path: Path, libvirtd: Libvirtd, operator: Operator, http_placement: HttpPlacement
) -> None:
    for name, (old, new, _) in HOSTILE.items():
        xml = guest_xml(name, nova=True)
        assert old in xml
        operator.connection.defineXML(xml.replace(old, new))
    operator.define("sound", nova=True)
    daemon = LibvirtDaemon(tmp_path / "agent", libvirtd, http_placement, -1)
    daemon.config["DEFAULT"]["reserved_host_memory_mb"] = 0
    daemon.command.configure(daemon.config)
    agent = AgentHere(daemon.command.folder, daemon.config)
    hostile = {("unknown-domain", guest_uuid(name)) for name in HOSTILE}

    def told() -> set[tuple[str, str | None]]:
        return {one for one in daemon.drift() if one[0] == "unknown-domain"}

    with daemon.service.running() as service:
        pid = service.process.pid
        resource.prlimit(pid, resource.RLIMIT_AS, (ENOUGH, ENOUGH))
        until(daemon.ready, lambda: service)
        before = high_water(pid)
        (node,) = agent.run("guests", "list", "--format", "json").json["nodes"]
        assert node["errors"] == []
        assert {guest["name"]: guest["vcpus"] for guest in node["guests"]} == dict.fromkeys(
            [*HOSTILE, "sound"], 1
        )
        assert {guest["outcome"] for guest in node["guests"]} == {"importable"}
        assert agent.run("guests", "import").code == 0
        assert high_water(pid) < before + 16
        assert daemon.claim("another")["state"] == "held"
        until(lambda: told() == hostile, told, SOON)
        assert daemon.node["state"] == "in-sync"
        claims = {claim["instance"]: claim["amounts"] for claim in daemon.client.claims()}
        drift = daemon.client.node(daemon.node["uuid"])["drift"]
        said = {one["consumer"]: one for one in drift if one["kind"] == "unknown-domain"}
        for name, (_, _, why) in HOSTILE.items():
            assert claims[guest_uuid(name)] == {"memory_mb": 16, "vcpus": 1, "disk_mb": 0}
            assert why in said[guest_uuid(name)]["detail"]
            assert "with 1 CPU and 16 MiB" in said[guest_uuid(name)]["detail"]

        # What the remedies do: nova defines the domain anew, and somebody edits another.
        remedy = said[guest_uuid("nameless")]["remedy"]
        assert f": openstack server reboot --hard {guest_uuid('nameless')};" in remedy
        operator.define("nameless", nova=True)
        *_, command = said[guest_uuid("digits")]["remedy"].split(": ")
        assert command == f"virsh edit {guest_uuid('digits')}"
        subprocess.run(
            [*command.replace("virsh", f"virsh -q -c {libvirtd.uri}").split()],
            env={**os.environ, "EDITOR": f"sed -i s/{'9' * 15}/1/"},
            check=True,
        )
        mended = {("unknown-domain", guest_uuid(name)) for name in ("nameless", "digits")}
        until(lambda: told() == hostile - mended, told, SOON)
        assert service.stop()[0] == 0
    assert "Traceback" not in service.log
