"""A guest of a real libvirtd that is imported keeps everything that it has: its namespace of
persistent memory, its function, its mediated device, and the memory that devices add to its cells.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiProblem
from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import LibvirtDaemon, Operator
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import smt_host
from tests.support.service_manager import until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentHere
from tests.support.tracking import F1, uuid_of

pytestmark = pytest.mark.long

GPU, MDEV = "0000:06:00.0", "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
FUNCTION = "0000:3b:02.1"
PMEM = "CUSTOM_PMEM_NAMESPACE_BIG"
NAMESPACES = [
    {
        "dev": f"namespace0.{number}",
        "name": f"ns{number}",
        "size": 1 << 34,
        "chardev": f"dax0.{number}",
    }
    for number in range(2)
]
# libvirt adds all devices to the guest's memory, also persistent memory, which is no RAM.
GUEST = f"""\
<maxMemory slots='16' unit='MiB'>65536</maxMemory>
<numatune><memory mode='strict' nodeset='8'/></numatune>
<cpu><numa><cell id='0' cpus='0' memory='1024' unit='MiB'/></numa></cpu>
<features><acpi/></features>
<devices>
  <memory model='nvdimm' access='shared'>
    <source><path>/dev/dax0.0</path><alignsize unit='KiB'>2048</alignsize><pmem/></source>
    <target><size unit='MiB'>16384</size><node>0</node><label><size unit='KiB'>2048</size></label></target>
  </memory>
  <memory model='dimm'><target><size unit='MiB'>512</size><node>0</node></target></memory>
  <memory model='dimm'>
    <source><nodemask>0</nodemask><pagesize unit='KiB'>2048</pagesize></source>
    <target><size unit='MiB'>256</size><node>0</node></target>
  </memory>
  <hostdev mode='subsystem' type='pci' managed='yes'>
    <source><address domain='0x0000' bus='0x3b' slot='0x02' function='0x1'/></source>
  </hostdev>
  <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{MDEV}'/></source></hostdev>
</devices>
"""


def test_a_guest_is_imported_with_all_that_it_has_and_nobody_else_gets_it(
    tmp_path: Path, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ndctl").write_text(f"#!/bin/sh\necho '{json.dumps(NAMESPACES)}'\n")
    (programs / "ndctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin:/usr/sbin")
    sysfs = smt_host(tmp_path / "sys")
    sysfs.pci(GPU, "10de:1db4", class_code="0x030200", cell=8)
    sysfs.mediated(GPU, {"nvidia-35": 0}, {MDEV: "nvidia-35"})
    server = Libvirtd(sysfs.for_libvirt().root)
    try:
        server.start()
        operator = Operator(server.uri)
        operator.define("big", memory=1024, more=GUEST)
        operator.close()
        daemon = LibvirtDaemon(tmp_path / "agent", server, http_placement, -1)
        daemon.config["libvirt"] |= {"pmem_namespaces": "big:ns0|ns1"}
        daemon.config["pci"] = {"device_spec": json.dumps({"product_id": "154c"})}
        daemon.config["devices"] = {"enabled_mdev_types": "nvidia-35"}
        daemon.command.configure(daemon.config)
        ran = AgentHere(daemon.command.folder, daemon.config).run("guests", "import")
        assert ran.code == 0, ran
        with daemon.service.running():
            until(daemon.ready, lambda: daemon.service)
            node = daemon.node["uuid"]
            (claim,) = daemon.client.claims()
            assert claim["amounts"]["memory_mb"] == 1024 + 512 + 256
            assert [
                (cell["host_cell"], cell["memory_mb"], cell["page_size_kib"])
                for cell in claim["cells"]
            ] == [(8, 1536, None), (0, 256, 2048)]
            assert [device["address"] for device in claim["devices"]] == [FUNCTION]
            assert [unit["identifier"] for unit in claim["units"]] == ["ns0"]
            assert [(one["parent"], one["count"]) for one in claim["mdevs"]] == [(GPU, 1)]

            def body(name: str, **resources: int) -> dict[str, Any]:
                held = {"VCPU": 1, "MEMORY_MB": 2048, **resources}
                return {
                    "id": uuid_of(f"claim-{name}"),
                    "node": node,
                    "instance": instance_body(name),
                    "flavor": flavor_body(F1),
                    "allocations": {node: {"resources": held}},
                }

            next_one = daemon.client.create_claim(body("next", **{PMEM: 1}))
            assert [unit["identifier"] for unit in next_one["units"]] == ["ns1"]
            with pytest.raises(ApiProblem, match="none free"):
                daemon.client.create_claim(body("third", **{PMEM: 1}))
            assert daemon.service.stop()[0] == 0
    finally:
        server.remove()
