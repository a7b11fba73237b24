"""Records come to their end: moves of guests that are gone, builds that came to nothing, claims
whose guests never come.
"""

from dataclasses import replace

import pytest

from agent.model.names import ConsumerUuid
from agent.model.node_records import RecordChanges
from agent.tracker.moves import finish
from tests.functional.tracker.test_orphans import domain
from tests.support.tracking import F1, F3, Host, World, guest, rows, uuid_of

MONTHS = 91 * 86400.0


def write(world: World, changes: RecordChanges) -> None:
    with world.records.transaction([]) as transaction:
        transaction.write(changes)


# --- moves of guests that are gone ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["resize", "migration", "live-migration", "evacuation"])
@pytest.mark.parametrize("said", [{"deleted": True}, {"vm_state": "deleted"}])
def test_a_guest_that_is_deleted_in_the_middle_of_a_move_ends_its_migration(
    ha: Host, hb: Host, kind: str, said: dict[str, object]
) -> None:
    ha.claim("i1", F1)
    hb.move("i1", kind, F3 if kind == "resize" else None)  # type: ignore[arg-type]
    ha.update("i1", **said)
    assert hb.migration("i1").status == ("failed" if kind == "evacuation" else "cancelled")
    assert ha.audit().usage.claims == hb.audit().usage.claims == 0


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("finished", "confirmed"),
        ("confirming", "confirmed"),
        ("reverting", "reverted"),
        ("error", "cancelled"),
    ],
)
def test_however_far_the_move_came_it_is_over_without_its_guest(
    world: World, ha: Host, hb: Host, status: str, ended: str
) -> None:
    ha.claim("i1", F1)
    hb.move("i1", "resize", F3)
    hb.tracker.change(hb.move_id("i1"), finish)
    write(world, RecordChanges(migrations=(replace(hb.migration("i1"), status=status),)))  # type: ignore[arg-type]
    hb.update("i1", deleted=True)
    assert hb.migration("i1").status == ended


@pytest.mark.parametrize("status", ["accepted", "error"])
def test_an_audit_ends_the_move_of_a_guest_of_whose_end_nobody_told_the_move(
    world: World, ha: Host, hb: Host, status: str
) -> None:
    ha.claim("i1", F1)
    hb.move("i1", "migration")
    known = hb.instance("i1")
    assert known is not None
    write(
        world,
        RecordChanges(
            instances=(replace(known, deleted=True),),
            migrations=(replace(hb.migration("i1"), status=status),),
        ),
    )  # type: ignore[arg-type]
    ha.audit()
    assert hb.migration("i1").status == "cancelled"
    assert ha.audit().usage.claims == hb.audit().usage.claims == 0
    before = rows(world)
    for host in (ha, hb):
        host.audit()
    assert rows(world) == before


# --- guests without a host ------------------------------------------------------------------------


# --- records of what ended long ago ---------------------------------------------------------------


def test_a_build_that_failed_and_a_move_in_error_are_not_kept_for_ever(
    world: World, ha: Host, hb: Host
) -> None:
    ha.claim("failed", F1)
    ha.update("failed", vm_state="error")
    ha.abort("failed")
    ha.claim("i1", F1)
    hb.move("i1", "migration")
    hb.tracker.abort(hb.move_id("i1"))
    write(world, RecordChanges(migrations=(replace(hb.migration("i1"), status="error"),)))
    ha.claim("shelved", F1)
    ha.update("shelved", vm_state="shelved_offloaded")
    world.time.pass_by(MONTHS)
    ha.usage_step.remove_ended_records()
    assert ha.instance("failed") is None
    with world.records.reading() as reading:
        assert reading.migration(ConsumerUuid(hb.move_id("i1"))) is None
    # One that is here, and one that may come back.
    assert ha.instance("i1") is not None
    assert ha.instance("shelved") is not None


# --- claims whose guests never come ---------------------------------------------------------------


def test_a_claim_whose_guest_never_comes_is_told_after_a_while_and_kept(
    world: World, ha: Host
) -> None:
    ha.claim("i1", F1)
    assert ha.audit(domains=()).drift == ()
    world.time.pass_by(ha.rules.stranded_after)
    for _ in range(2):
        (told,) = ha.audit(domains=()).drift
        assert (told.kind, told.severity, told.consumer) == (
            "stranded-claim",
            "warning",
            guest("i1"),
        )
        assert f"agent claim abort {uuid_of('claim-i1')}" in told.remedy
        assert ha.usage == "2560/2/22528"
    # The hypervisor shows it: somebody only forgot to tell.
    assert ha.audit(domains=(domain("i1", 2048, 1),)).drift == ()


def test_a_guest_that_has_come_or_is_gone_is_not_waited_for(world: World, ha: Host) -> None:
    ha.claim("i1", F1)
    ha.claim("i2", F1)
    ha.update("i1", vm_state="active")
    ha.update("i2", deleted=True)
    world.time.pass_by(10 * ha.rules.stranded_after)
    assert ha.audit().drift == ()
