"""What guests are promised against what Placement has of them."""

from typing import Any

import pytest

from agent.model.claim import Claim, Migration
from agent.model.finding import Drift
from agent.model.instance import Amounts, Flavor, GuestCell, PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.allocation_drift import allocation_drift
from agent.tracker.allocations import AllocationShare
from agent.tracker.stored_state import TreeConsumers
from tests.support.consumer_book import HOST, claim, instance

NODE = ProviderUuid("node-a")
GUEST, MOVE = ConsumerUuid("guest"), ConsumerUuid("move")
OFFERED = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
F1 = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}


def told(
    held: dict[ConsumerUuid, dict[str, int]],
    *claims: Claim,
    migrations: tuple[Migration, ...] = (),
    offered: frozenset[str] = OFFERED,
    **guest: Any,
) -> list[Drift]:
    records = TreeConsumers(
        host=HOST,
        claims=claims or (claim(GUEST, NODE),),
        instances={GUEST: instance(GUEST, **guest)},
        migrations={migration.uuid: migration for migration in migrations},
    )
    return list(allocation_drift(AllocationShare(NODE, {NODE: held}, offered), records))


def migration(status: Any) -> Migration:
    return Migration(
        uuid=MOVE,
        instance=GUEST,
        type="resize",
        status=status,
        source_compute=HOST,
        source_node=NODE,
    )


@pytest.mark.parametrize(("disk_mb", "gib"), [(0, 0), (1, 1), (1024, 1), (51712, 51)])
def test_disk_is_promised_in_mib_and_allocated_in_gib_rounded_up(disk_mb: int, gib: int) -> None:
    promised = claim(GUEST, NODE, amounts=Amounts(2048, 1, disk_mb))
    assert (
        told({GUEST: {"VCPU": 1, "MEMORY_MB": 2048, **({"DISK_GB": gib} if gib else {})}}, promised)
        == []
    )


def test_the_halves_of_a_resize_here_are_rounded_one_by_one() -> None:
    halves = [
        claim(GUEST, NODE, amounts=Amounts(2048, 1, 512), half=half) for half in ("old", "new")
    ]
    one = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 1}
    assert told({GUEST: one, MOVE: one}, *halves, migrations=(migration("finished"),)) == []


def test_the_cpu_for_an_isolated_emulator_counts() -> None:
    cell = PlacedCell(
        GuestCell(frozenset(), frozenset({0, 1}), 2048),
        0,
        pins={0: 4, 1: 6},
        reserved=frozenset({8}),
    )
    promised = claim(GUEST, NODE, amounts=Amounts(2048, 2, 20480), cells=(cell,))
    assert told({GUEST: {"PCPU": 3, "MEMORY_MB": 2048, "DISK_GB": 20}}, promised) == []


@pytest.mark.parametrize("spec", ["resources:VCPU", "resources1:VCPU", "resources_cpus:PCPU"])
def test_a_class_that_the_flavor_sizes_itself_is_not_compared(spec: str) -> None:
    flavor = Flavor("f", "F", 1, 2048, 20, extra_specs={spec: "0", "hw:cpu_policy": "shared"})
    assert told({GUEST: F1 | {"VCPU": 4}}, flavor=flavor) == []
    (found,) = told({GUEST: F1 | {"MEMORY_MB": 1}}, flavor=flavor)
    assert found.detail == "instance guest holds MEMORY_MB 1 instead of 2048"


def test_a_migration_that_is_over_does_not() -> None:
    (found,) = told({MOVE: F1}, migrations=(migration("failed"),))
    assert found.kind == "missing-allocation"
    assert "(failed)" in found.detail
