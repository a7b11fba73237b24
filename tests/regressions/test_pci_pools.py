"""Four faults of the older device tracker, which kept pools beside the devices and mended them step
by step.

What a refused claim had taken came back without its relatives; the test whether all fits looked at
counts, and not at what excludes each other; a device that was given back after it had vanished left
its card in no pool; and a device that changed its cell stayed in the pool of the old one, so that
its removal failed, and with it each further look at the host. Here what is free follows from the
devices alone. The scenarios are pci.md 60 and 68-71.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.devices import DeviceRequest
from agent.tracker.errors import ResourcesUnavailable
from tests.support.device_host import DeviceHost
from tests.support.placement import PlacementServer
from tests.unit.pci import scene

EVERYTHING = {"vendor_id": "8086"}
PF, FIRST, SECOND = "0000:81:00.0", "0000:81:00.1", "0000:81:00.2"
FAMILY = {
    PF: scene.physical(PF, FIRST, SECOND),
    FIRST: scene.virtual(FIRST, PF),
    SECOND: scene.virtual(SECOND, PF),
}


def of_product(product: str, count: int, **more: str) -> DeviceRequest:
    return DeviceRequest(
        f"{count} x {product}", count, {"vendor_id": "8086", "product_id": product, **more}
    )


@pytest.fixture
def family(placement: PlacementServer, tmp_path: Path) -> Iterator[DeviceHost]:
    """A card with two functions, all of which are offered."""
    host = DeviceHost(placement, tmp_path / "state")
    host.devices = dict(FAMILY)
    host.start(EVERYTHING, report=False)
    yield host
    host.stop()


@pytest.mark.parametrize(
    "missing",
    [of_product("ffff", 1), of_product("154c", 3)],
    ids=["no such device", "one too many"],
)
def test_s_60_s_68_a_refused_claim_gives_back_a_function_and_its_card(
    family: DeviceHost, missing: DeviceRequest
) -> None:
    with pytest.raises(ResourcesUnavailable):
        family.ask("S1", of_product("154c", 1), missing)
    assert (family.free, family.holders) == ({PF, FIRST, SECOND}, {})
    family.claim("S2", PF)
    assert family.free == set()


@pytest.mark.parametrize("turn", [1, -1])
def test_s_69_a_card_and_its_own_functions_do_not_fit_together(
    family: DeviceHost, turn: int
) -> None:
    wanted = (of_product("1572", 1, type="type-PF"), of_product("154c", 2))[::turn]
    with pytest.raises(ResourcesUnavailable) as caught:
        family.ask("S1", *wanted)
    assert "not all at once" in caught.value.message
    assert (family.free, family.holders) == ({PF, FIRST, SECOND}, {})


def test_s_70_a_function_that_vanished_and_is_given_back_leaves_its_card_to_be_had(
    family: DeviceHost,
) -> None:
    family.claim("S1", SECOND)
    del family.devices[SECOND]
    family.cycle()
    assert family.free == {FIRST}
    family.delete("S1")
    assert family.rows.keys() == family.free == {PF, FIRST}
    family.claim("S2", PF)


def test_s_71_a_free_device_that_changes_its_cell_is_had_there_and_may_go(
    family: DeviceHost,
) -> None:
    plain = "0000:82:00.0"
    family.devices[plain] = scene.plain(plain, numa_node=0)
    family.cycle()
    assert family.rows[plain].numa_node == 0
    family.devices[plain] = replace(family.devices[plain], numa_node=1)
    family.cycle()
    assert (family.rows[plain].numa_node, plain in family.free) == (1, True)
    del family.devices[plain]
    report = family.cycle()
    assert (report.state, report.errors) == ("in-sync", ())
    assert family.rows.keys() == {PF, FIRST, SECOND}
