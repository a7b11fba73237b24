"""What an observer tells of the guests of a real libvirtd over a recorded host, beside nova's
allocations in the real Placement.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import LibvirtDaemon, Operator, guest_uuid, guest_xml
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs, smt_host
from tests.support.system import AgentHere

pytestmark = pytest.mark.long

MARKS = ("OWNER_NOVA", "CUSTOM_COMPUTE_NODE_AGENT_")
FUNCTIONS = ("0000:3b:02.0", "0000:3b:02.1")
FUNCTION = "CUSTOM_VF"
OPTIONS = {
    "compute": {"tree_layout": "flat", "cpu_shared_set": "0,4", "cpu_dedicated_set": "1-3,5"},
    "pci": {
        "device_spec": f'{{"address": "0000:3b:02.*", "resource_class": "{FUNCTION}"}}',
        "report_in_placement": True,
    },
}


def on_cell(cpu: int | None = None, *, pages: bool = False, device: str | None = None) -> str:
    """The part of a guest of 1 CPU and 768 MiB on cell 0."""
    pin = f"<cputune><vcpupin vcpu='0' cpuset='{cpu}'/></cputune>" if cpu is not None else ""
    huge = (
        "<memoryBacking><hugepages><page size='2048' unit='KiB' nodeset='0'/></hugepages>"
        "</memoryBacking>"
        if pages
        else ""
    )
    numa = (
        "<numatune><memory mode='strict' nodeset='0'/>"
        "<memnode cellid='0' mode='strict' nodeset='0'/></numatune>"
        "<cpu><numa><cell id='0' cpus='0' memory='768' unit='MiB'/></numa></cpu>"
        if cpu is not None or pages
        else ""
    )
    slot, function = device[8:].split(".") if device else ("", "")
    devices = (
        "<devices><hostdev mode='subsystem' type='pci' managed='yes'><source>"
        f"<address domain='0x0000' bus='0x3b' slot='0x{slot}' function='0x{function}'/>"
        "</source></hostdev></devices>"
        if device
        else ""
    )
    return huge + pin + numa + devices


GUESTS = {
    "right": on_cell(1, device=FUNCTIONS[0]),
    "pinned": on_cell(3),
    "pinned too": on_cell(3),
    "outside": on_cell(0),
    "same device": on_cell(device=FUNCTIONS[0]),
    "paged": on_cell(pages=True),
    "paged too": on_cell(pages=True),
    "bare": on_cell(),
    "unallocated": on_cell(device=FUNCTIONS[1]),
}
PINNED = {"right", "pinned", "pinned too", "outside"}


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[Libvirtd, RecordedSysfs]]:
    recording = smt_host(tmp_path / "sys").for_libvirt()
    server = Libvirtd(recording.root)
    server.start()
    yield server, recording
    server.remove()


class Beside:
    """The host, as nova has it in Placement, and an agent that observes it."""

    def __init__(
        self, folder: Path, recorded: tuple[Libvirtd, RecordedSysfs], placement: HttpPlacement
    ) -> None:
        server, recording = recorded
        self.folder, self.placement = folder, placement
        base = LibvirtDaemon(folder / "base", server, placement, -1).config
        self._config = {
            **base,
            **OPTIONS,
            "host": {"sysfs_root": recording.root},
        }
        manager = AgentHere(folder / "manager", self._config)
        assert manager.run("--once").code == 0
        providers = placement.dump()["providers"]
        ((self.root, _),) = ((uuid, one) for uuid, one in providers.items() if not one["parent"])
        (self.card,) = (uuid for uuid, one in providers.items() if one["parent"])
        traits = placement.other.traits(self.root)
        placement.other.set_traits(self.root, {one for one in traits if not one.startswith(MARKS)})
        placement.clear()

    def observe(self) -> Any:
        """What an audit finds; nothing was written."""
        (self.folder / "base" / "nova").mkdir()
        (self.folder / "base" / "nova" / "compute_id").write_text(self.root)
        found = AgentHere(self.folder / "agent", self._config).run(
            "--once", "--observe", "--format", "json"
        )
        assert {one.method for one in self.placement.requests} <= {"GET"}
        (node,) = found.json["nodes"]
        return node


def test_what_guests_of_a_real_libvirtd_have_twice_or_too_much_of_is_told(
    tmp_path: Path,
    recorded: tuple[Libvirtd, RecordedSysfs],
    http_placement: HttpPlacement,
) -> None:
    beside = Beside(tmp_path, recorded, http_placement)
    operator = Operator(recorded[0].uri)
    for name, more in GUESTS.items():
        operator.define(name, memory=768, nova=True, more=more)
        held = {"PCPU" if name in PINNED else "VCPU": 1, "MEMORY_MB": 768}
        device = {beside.card: {FUNCTION: 1}} if name == "right" else {}
        if name != "bare":
            http_placement.other.claim({beside.root: held, **device}, guest_uuid(name))
    garbled = guest_xml("garbled", memory=768, vcpus=1, nova=True)
    operator.connection.defineXML(garbled.replace('name="small"', ""))
    # By a flavor that nobody can read it may be right.
    http_placement.other.claim({beside.root: {"MEMORY_MB": 512}}, guest_uuid("garbled"))
    node = beside.observe()
    assert node["operations"] == []
    told = {(one["kind"], one.get("consumer")): one for one in node["drift"]}
    # Of two guests that have the same, the one with the lower uuid is taken to have it.
    pinned = max(guest_uuid("pinned"), guest_uuid("pinned too"))
    same = max(guest_uuid("right"), guest_uuid("same device"))
    assert told.keys() == {
        ("guest-conflict", pinned),
        ("guest-conflict", guest_uuid("outside")),
        ("guest-conflict", same),
        ("overcommitted", None),
        ("missing-allocation", guest_uuid("bare")),
        ("allocation-mismatch", guest_uuid("unallocated")),
        ("unknown-domain", guest_uuid("garbled")),
    }
    assert "it has no name" in told["unknown-domain", guest_uuid("garbled")]["detail"]
    assert "768 pages of 2048 KiB are promised, of 512" in told["overcommitted", None]["detail"]
    remedy = told["allocation-mismatch", guest_uuid("unallocated")]["remedy"]
    assert f"--allocation rp={beside.card},{FUNCTION}=1" in remedy
    assert node["errors"] == []
    operator.close()
