"""Recordings of real machines that change while guests have their devices: records, tree and
allocations agree after each step.

Those of real machines are not part of this tree; one of our own making is always there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.tree.policy import Layout
from tests.support.device_host import NODE, RecordedHost
from tests.support.placement import PlacementServer
from tests.support.recorded_sysfs import smt_host
from tests.support.recordings import RECORDINGS, enable_virtual_functions, sysfs_root
from tests.support.tracking import guest

pytestmark = pytest.mark.long

OTHER = "1520"
"""Another product of the same vendor."""

Enable = Callable[[int, str], None]


@dataclass
class Scene:
    """A recording with one card that can have functions. ``product``: of those that are offered;
    ``cells``: two that it has.

    ``held``: which device each guest has.
    """

    host: RecordedHost
    card: str
    product: str
    cells: tuple[int, int]
    enable: Enable
    held: dict[str, str] = field(default_factory=dict)

    @property
    def resource_class(self) -> str:
        return f"CUSTOM_PCI_8086_{self.product.upper()}"

    @property
    def functions(self) -> dict[str, str]:
        """The product of each function of the card, as its folder says."""
        links = self.host.bus.joinpath(self.card).glob("virtfn*")
        return {
            one.resolve().name: (one / "device").read_text().strip().removeprefix("0x")
            for one in links
        }

    def take(self, name: str, device: str) -> None:
        self.host.claim(name, device)
        self.host.allocate(name, **{device: 1})
        self.held[name] = device

    def end(self, name: str) -> None:
        """The agent itself takes the allocation of a guest that is gone; what the total kept for it
        goes a pass later.
        """
        self.host.delete(name)
        del self.held[name]
        self.host.cycle()

    def change(self, count: int, product: str | None = None) -> None:
        self.enable(count, product or self.product)
        self.agrees()

    def agrees(self) -> None:
        """After one pass all three say the same, and the next has nothing to do."""
        self.host.cycle()
        assert self.host.cycle().state == "in-sync"
        offered = {
            address for address, product in self.functions.items() if product == self.product
        }
        in_use = set(self.held.values())
        total = len(offered | in_use)
        assert self._card_in_placement() == (
            [f"{self.card.upper()}: {self.resource_class}={total}"] if total else []
        )
        rows = {
            address: one.present
            for address, one in self.host.rows.items()
            if one.serves == "guests" and one.parent == self.card
        }
        assert rows == {address: address in offered for address in offered | in_use}
        assert self.host.free & {*rows} == offered - in_use
        assert self.host.holders == {device: guest(name) for name, device in self.held.items()}
        assert {name: self.host.allocated(name) for name in self.held} == {
            name: {self.card.upper(): {self.resource_class: 1}} for name in self.held
        }

    def _card_in_placement(self) -> list[str]:
        return [one for one in self.host.tree if one.startswith(self.card.upper())]

    @property
    def parent(self) -> str | None:
        """What the card hangs below, in Placement."""
        return self.host.parents[self.card.upper()]

    def is_in(self, cell: int) -> None:
        self.host.file(self.card, "numa_node").write_text(f"{cell}\n")


@pytest.fixture(params=["made up", *(name for name in RECORDINGS if name.startswith("32intel64-"))])
def scene(
    request: pytest.FixtureRequest, layout: Layout, placement: PlacementServer, tmp_path: Path
) -> Iterator[Scene]:
    if request.param == "made up":
        tree, card = smt_host(tmp_path / "sys"), "0000:3b:00.0"
        host = RecordedHost(placement, tmp_path / "state", tree.root, layout)
        found = Scene(
            host,
            card,
            "154c",
            (0, 8),
            lambda count, product: tree.enable_virtual_functions(card, count, product),
        )
    else:
        root, card = sysfs_root(request.param, tmp_path), "0000:60:00.0"
        enable_virtual_functions(root, "0000:60:00.1", 8, "37cd")
        host = RecordedHost(placement, tmp_path / "state", root, layout)
        found = Scene(
            host,
            card,
            "37cd",
            (0, 1),
            lambda count, product: enable_virtual_functions(root, card, count, product),
        )
    yield found
    found.host.stop()


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_functions_come_go_and_change_while_guests_have_some(scene: Scene, layout: Layout) -> None:
    host, here, there = scene.host, *scene.cells
    scene.enable(0, scene.product)
    host.start({"vendor_id": "8086", "product_id": scene.product})
    others = [one for one in host.tree if not one.startswith(scene.card.upper())]
    scene.agrees()
    scene.change(4)
    first, second, third, fourth = sorted(scene.functions)
    scene.take("S1", first)
    scene.take("S2", fourth)
    scene.agrees()
    # Two of four go, one of them in use; and come back.
    scene.change(2)
    assert fourth not in scene.functions
    scene.change(4)
    scene.take("S3", second)
    scene.agrees()
    # All go; what comes is of another kind, which nobody offers.
    scene.change(0)
    scene.change(4, OTHER)
    scene.end("S1")
    scene.agrees()
    scene.change(4)
    assert host.free >= {first, third}
    # A new process sees what the old one saw.
    assert host.start().state == "in-sync"
    scene.agrees()
    # A card that is in another cell from now on stays where it is until nobody uses it.
    scene.is_in(there)
    scene.change(4)
    assert scene.parent == {"flat": NODE, "nested": f"NUMA{here}"}[layout]
    scene.end("S2")
    scene.end("S3")
    scene.agrees()
    assert scene.parent == {"flat": NODE, "nested": f"NUMA{there}"}[layout]
    scene.change(0)
    assert host.tree == others


# Of each recording: a device, its class, and the cell that it is in.
DEVICES: Mapping[str, tuple[str, str, int | None]] = {
    "made up": ("10000:00:04.0", "CUSTOM_PCI_1AF4_1001", None),
    "2pa-pcidomain32bits": ("10000:00:04.0", "CUSTOM_PCI_1AF4_1001", None),
    "32intel64-2p8co2t+8ve": ("0000:1b:00.0", "CUSTOM_PCI_1BCF_001C", 0),
}


@pytest.mark.parametrize("name", ["made up", *(name for name in DEVICES if name in RECORDINGS)])
def test_a_device_in_use_is_unplugged_and_plugged_in_again(
    name: str, placement: PlacementServer, tmp_path: Path
) -> None:
    address, resource_class, cell = DEVICES[name]
    root = smt_host(tmp_path / "sys").root if name == "made up" else sysfs_root(name, tmp_path)
    host = RecordedHost(placement, tmp_path / "state", root, "nested")
    card, link = address.upper(), host.bus / address
    target = link.readlink()
    below = NODE if cell is None else f"NUMA{cell}"

    def agrees(in_use: bool, there: bool, parent: str = below) -> None:
        host.cycle()
        assert host.cycle().state == "in-sync"
        held: dict[str, Any] = {address: guest("S1")} if in_use else {}
        assert (host.holders, address in host.free) == (held, there and not in_use)
        assert {one: row.present for one, row in host.rows.items()} == (
            {address: there} if in_use or there else {}
        )
        assert host.tree == ([f"{card}: {resource_class}=1"] if in_use or there else [])
        assert host.parents.get(card) == (parent if in_use or there else None)
        assert host.allocated("S1") == ({card: {resource_class: 1}} if in_use else {})

    try:
        host.start({"address": address})
        agrees(in_use=False, there=True)
        host.claim("S1", address)
        host.allocate("S1", **{address: 1})
        agrees(in_use=True, there=True)
        link.unlink()
        agrees(in_use=True, there=False)
        link.symlink_to(target)
        agrees(in_use=True, there=True)
        # Where it belongs now counts once it is free.
        host.file(address, "numa_node").write_text("0\n")
        agrees(in_use=True, there=True)
        host.delete("S1")
        agrees(in_use=False, there=True, parent="NUMA0")
        link.unlink()
        agrees(in_use=False, there=False)
    finally:
        host.stop()
