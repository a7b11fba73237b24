"""Requests that nobody could grant: each is refused for its own reason, and nothing is written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.model.claim import Migration
from agent.model.devices import DeviceRequest
from agent.model.instance import Flavor
from agent.model.names import ProviderUuid
from agent.tracker.moves import confirm
from agent.tracker.requests import DeviceClaim, InstanceClaim
from tests.support.refusals import refused, rows
from tests.support.tracking import (
    F1,
    F3,
    FG,
    FN,
    Host,
    World,
    device,
    guest,
    instance,
    uuid_of,
)

PF, VF = "0000:05:00.0", "0000:05:10.0"


def flavor(**fields: Any) -> Flavor:
    """F1 with some fields otherwise."""
    return replace(F1, **fields)


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


def migration(host: Host, **fields: Any) -> Migration:
    """The record of a live migration of i1, as its caller made it."""
    made = Migration(
        uuid=guest("migration"),
        instance=guest("i1"),
        type="live-migration",
        status="accepted",
        source_compute=host.name,
        source_node=host.node,
    )
    return replace(made, **fields)


Attempt = Callable[[Host], object]
CLAIMS: dict[str, tuple[str, Attempt]] = {
    "an unknown node": (
        "node.unknown",
        lambda host: host.tracker.claim(
            InstanceClaim(
                id=uuid_of("c"), node=ProviderUuid(uuid_of("HX")), instance=instance("i3", F1)
            )
        ),
    ),
    "a guest that another host has": (
        "instance.elsewhere",
        lambda host: host.claim("i3", F1, host="HB"),
    ),
    "cells of no number": (
        "request.topology",
        lambda host: host.claim("i3", flavor(extra_specs={"hw:numa_nodes": "many"})),
    ),
    "cells that do not add up": (
        "request.topology",
        lambda host: host.claim("i3", replace(FN, extra_specs={"hw:numa_nodes": "3"})),
    ),
    "CPUs that the guest has not": (
        "request.topology",
        lambda host: host.claim(
            "i3",
            replace(
                FN,
                extra_specs={
                    "hw:numa_nodes": "1",
                    "hw:numa_cpus.0": "0-7",
                    "hw:numa_mem.0": "4096",
                },
            ),
        ),
    ),
    "flavor and image in conflict": (
        "request.flavor-image",
        lambda host: host.claim(
            "i3",
            replace(FN, extra_specs={"hw:cpu_policy": "shared"}),
            image_properties={"hw_cpu_policy": "dedicated"},
        ),
    ),
    "a second holder of a device": (
        "resources.unavailable",
        lambda host: host.claim("i3", F1, devices=(DeviceRequest("vf", 1, {"address": VF}),)),
    ),
    "a second claim of a guest": (
        "instance.claimed",
        lambda host: host.claim("i1", F1, id="another"),
    ),
    "another claim of the same id": (
        "claim.id-taken",
        lambda host: host.claim("i3", F1, id="claim-i1"),
    ),
}
OTHERS: dict[str, tuple[str, Attempt]] = {
    "an update of an unknown guest": (
        "instance.unknown",
        lambda host: host.update("i3", vm_state="active"),
    ),
    "an update of what has changed since": (
        "record.changed",
        lambda host: host.update("i1", vm_state="stopped", version=1),
    ),
    "an unknown claim": ("claim.unknown", lambda host: host.tracker.abort(uuid_of("nothing"))),
    "an unknown move": (
        "claim.unknown",
        lambda host: host.tracker.change(uuid_of("nothing"), confirm),
    ),
    "a confirmation of what is no move": (
        "claim.unknown",
        lambda host: host.tracker.change(uuid_of("claim-i1"), confirm),
    ),
}
MOVES: dict[str, tuple[str, Callable[[Host, Host], object]]] = {
    "a migration of another guest": (
        "request.invalid",
        lambda hp, hb: hb.move(
            "i1", "live-migration", migration=migration(hp, instance=guest("i2"))
        ),
    ),
    "a migration that is over": (
        "state.wrong",
        lambda hp, hb: hb.move("i1", "live-migration", migration=migration(hp, status="cancelled")),
    ),
    "a resize to nothing": ("request.invalid", lambda hp, hb: hb.move("i1", "resize")),
    "a live migration to another flavor": (
        "request.invalid",
        lambda hp, hb: hb.move("i1", "live-migration", F3),
    ),
    "a live migration to where the guest is": (
        "request.invalid",
        lambda hp, hb: hp.move("i1", "live-migration"),
    ),
    "a move of a guest that is nowhere": (
        "state.wrong",
        lambda hp, hb: hb.move("i3", "migration", known=instance("i3", F1)),
    ),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_is_refused_for(world: World, hp: Host, what: str) -> None:
    code, attempt = CLAIMS[what]
    usage = hp.usage
    with refused(world, code):
        attempt(hp)
    assert hp.usage == usage


@pytest.mark.parametrize("what", OTHERS)
def test_an_operation_is_refused_for(world: World, hp: Host, what: str) -> None:
    code, attempt = OTHERS[what]
    usage = hp.usage
    with refused(world, code):
        attempt(hp)
    assert hp.usage == usage


@pytest.mark.parametrize("what", MOVES)
def test_a_move_is_refused_for(world: World, hp: Host, hb: Host, what: str) -> None:
    code, attempt = MOVES[what]
    usages = hp.usage, hb.usage
    with refused(world, code):
        attempt(hp, hb)
    assert (hp.usage, hb.usage) == usages


def test_what_comes_from_outside_cannot_forge_a_line_of_the_log(world: World, hp: Host) -> None:
    with refused(world, "request.topology") as caught:
        hp.claim(
            "i3",
            flavor(name="F1\nERROR all is lost", extra_specs={"hw:numa_nodes": "\x1b[31mmany"}),
        )
    assert "\x1b" not in str(caught.value)


def damaged(world: World, host: Host, statement: str) -> None:
    """Let records make no sense, behind everybody's back, and audit the host."""
    with world.store.writing() as connection:
        connection.exec_driver_sql(statement)
    host.restart()
    assert host.audit().problems != ()


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
