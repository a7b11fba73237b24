"""The whole table of the specification: when the one unit of a node is reserved."""

from collections.abc import Iterator

import pytest

from drivers.ironic.node import reserved
from tests.unit.drivers.ironic.samples import INSTANCE, node

OFF, ON, ERROR, NONE = "power off", "power on", "error", None
POWERS = (OFF, ON, ERROR, NONE)
EITHER, BOTH = (False,), (False, True)
FREE, USED, ANY = (None,), (INSTANCE,), (None, INSTANCE)
NEVER, ALWAYS, UNLESS_SKIPPED = (0, 0), (1, 1), (1, 0)
"""What is reserved by default, and with skip_reserve_in_use_ironic_nodes."""

TABLE = (
    (("available",), (OFF, ON), EITHER, FREE, NEVER),
    (("available",), POWERS, (True,), FREE, ALWAYS),
    (("available",), (ERROR, NONE), EITHER, FREE, ALWAYS),
    (("available",), (OFF,), EITHER, USED, UNLESS_SKIPPED),
    ((None,), (OFF,), EITHER, FREE, NEVER),
    (("active",), (ON,), EITHER, USED, ALWAYS),
    (
        ("deploying", "wait call-back", "deploy complete", "deploy hold"),
        POWERS,
        EITHER,
        USED,
        ALWAYS,
    ),
    (("deploy failed", "error", "rebuild"), POWERS, EITHER, ANY, ALWAYS),
    (
        ("deleting", "deleted", "cleaning", "clean wait", "clean hold", "clean failed"),
        POWERS,
        BOTH,
        FREE,
        ALWAYS,
    ),
    (
        ("enroll", "verifying", "manageable", "inspecting", "inspect wait", "inspect failed"),
        POWERS,
        BOTH,
        FREE,
        ALWAYS,
    ),
    (("adopting", "adopt failed"), POWERS, BOTH, ANY, ALWAYS),
    (
        ("rescue", "rescuing", "rescue wait", "rescue failed", "unrescuing", "unrescue failed"),
        POWERS,
        BOTH,
        USED,
        ALWAYS,
    ),
    (("servicing", "service wait", "service failed", "service hold"), POWERS, BOTH, USED, ALWAYS),
    (("being polished",), POWERS, BOTH, ANY, ALWAYS),
)
"""States, powers, maintenance, instance, reserved."""


def rows() -> Iterator[tuple[str | None, str | None, bool, str | None, tuple[int, int]]]:
    for states, powers, maintenance, instances, wanted in TABLE:
        for state in states:
            for power in powers:
                for kept in maintenance:
                    yield from ((state, power, kept, instance, wanted) for instance in instances)


def name(row: tuple[str | None, str | None, bool, str | None, tuple[int, int]]) -> str:
    state, power, maintenance, instance, _ = row
    return "-".join(
        [
            state if state is not None else "none",
            power or "unknown power",
            *["maintenance"] * maintenance,
            *["used"] * bool(instance),
        ]
    )


@pytest.mark.parametrize("row", [pytest.param(row, id=name(row)) for row in rows()])
def test_the_unit_of_a_node_is_reserved_as_the_table_says(row):
    state, power, maintenance, instance, (wanted, skipping) = row
    one = node(
        provision_state=state, power_state=power, maintenance=maintenance, instance_uuid=instance
    )
    assert reserved(one) == wanted
    assert reserved(one, skip_in_use=True) == skipping
