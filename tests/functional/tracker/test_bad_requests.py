"""Records that make no sense, and requests that would forge a line of the log."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.model.devices import DeviceRequest
from agent.tracker.stored_state import DeviceClaim
from tests.support.tracking import (
    F1,
    FG,
    Host,
    World,
    device,
    guest,
    refused,
    rows,
    uuid_of,
)

PF, VF = "0000:05:00.0", "0000:05:10.0"


def wanting(count: int) -> tuple[DeviceRequest, ...]:
    """A request for so many devices."""
    return (DeviceRequest("any", count),)


@pytest.fixture
def hp(world: World) -> Host:
    """A host with a network card and one function of it, i1 that runs there, and i2 that has the
    function.
    """
    host = world.plain("HP")
    host.devices = (device(host, PF, "type-PF"), device(host, VF, "type-VF", PF))
    host.audit()
    host.claim("i1", F1)
    host.update("i1", vm_state="active")
    host.claim("i2", FG, devices=(DeviceRequest("vf", 1, {"address": VF}),))
    return host


def test_what_comes_from_outside_cannot_forge_a_line_of_the_log(world: World, hp: Host) -> None:
    with refused(world, "request.topology") as caught:
        hp.claim(
            "i3",
            replace(
                F1, name="F1\nERROR all is lost", extra_specs={"hw:numa_nodes": "\x1b[31mmany"}
            ),
        )
    assert "\x1b" not in str(caught.value)


def damaged(world: World, host: Host, statement: str) -> None:
    """Let records make no sense, behind everybody's back, and audit the host."""
    with world.store.writing() as connection:
        connection.exec_driver_sql(statement)
    host.restart()
    assert host.audit().state.problems != ()


@pytest.mark.parametrize("moment", ["claim", "move", "devices"])
def test_a_node_whose_records_make_no_sense_promises_nothing(
    world: World, hp: Host, hb: Host, moment: str
) -> None:
    hb.claim("i3", F1)
    damaged(world, hp, "UPDATE device SET tags = '7'")
    attempts: dict[str, Callable[[], object]] = {
        "claim": lambda: hp.claim("i4", F1),
        "move": lambda: hp.move("i3", "migration"),
        "devices": lambda: hp.tracker.claim_devices(
            DeviceClaim(id=uuid_of("d"), node=hp.node, instance=guest("i1"), devices=wanting(1))
        ),
    }
    with refused(world, "node.degraded"):
        attempts[moment]()
    # What there is can be given back.
    hp.update("i1", deleted=True)


def test_what_a_claim_holds_that_makes_no_sense_stays_held(world: World, hp: Host) -> None:
    hp.tracker.claim_devices(
        DeviceClaim(id=uuid_of("d"), node=hp.node, instance=guest("i2"), devices=())
    )
    before = rows(world)
    damaged(world, hp, f"UPDATE claim SET cells = '7' WHERE id = '{uuid_of('claim-i2')}'")
    hp.audit()
    after = rows(world)
    assert after["device"] == before["device"]
    assert [row[0] for row in after["claim"] if row[5] != "released"] == [
        row[0] for row in before["claim"]
    ]


def test_a_unit_whose_row_makes_no_sense_is_left_alone(world: World) -> None:
    hm = world.pmem()
    damaged(world, hm, "UPDATE unit SET metadata = '7' WHERE identifier = 'ns_0'")
    before = rows(world)["unit"]
    hm.audit()
    assert rows(world)["unit"] == before
    assert [unit.identifier for unit in hm.tracker.view(hm.node).units.values()] == ["ns_1"]
