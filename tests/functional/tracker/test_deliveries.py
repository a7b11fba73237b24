"""Operations that come late, again, or in the wrong order: what they find is not what the caller
thinks.
"""

from dataclasses import replace

import pytest

from agent.model.node_records import MigrationStatus, RecordChanges
from agent.tracker.errors import WrongState
from agent.tracker.moves import confirm, finish
from tests.support.tracking import F1, F3, Host


def written(host: Host, name: str, status: MigrationStatus) -> None:
    """An orchestrator writes how the move of ``name`` goes."""
    with host.records.transaction([host.node]) as transaction:
        transaction.write(RecordChanges(migrations=(replace(host.migration(name), status=status),)))


@pytest.mark.parametrize("status", ["confirming", "reverting", "error"])
def test_a_finish_that_comes_again_takes_back_nothing_that_came_after_it(
    ha: Host, hb: Host, status: MigrationStatus
) -> None:
    ha.claim("i1", F1)
    hb.move("i1", "resize", F3)
    hb.tracker.change(hb.move_id("i1"), finish)
    written(hb, "i1", status)
    assert hb.tracker.change(hb.move_id("i1"), finish).repeated
    assert hb.migration("i1").status == status
    assert (ha.usage, hb.usage) == ("2560/2/22528", "8704/5/84992")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_move_that_was_given_up_does_not_arrive(
    ha: Host, hb: Host, status: MigrationStatus
) -> None:
    ha.claim("i1", F1)
    hb.move("i1", "live-migration")
    written(hb, "i1", status)
    with pytest.raises(WrongState, match=f"was given up: migration .* is {status}"):
        hb.tracker.change(hb.move_id("i1"), finish)
    found = ha.instance("i1")
    assert found is not None
    assert found.host == "HA"


def test_a_guest_that_is_gone_is_not_moved(ha: Host, hb: Host) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="deleted")
    with pytest.raises(WrongState, match="is deleted"):
        hb.move("i1", "migration")
    assert (ha.usage, hb.usage) == ("512/1/2048", "512/1/2048")


def test_a_confirm_comes_again_although_the_source_is_no_more(ha: Host, hb: Host) -> None:
    ha.claim("i1", F1)
    hb.move("i1", "migration")
    hb.tracker.change(hb.move_id("i1"), finish)
    ha.usage_step.mark_deleted(ha.node)
    assert not ha.tracker.change(ha.move_id("i1"), confirm).repeated
    assert ha.tracker.change(ha.move_id("i1"), confirm).repeated
    assert hb.usage == "2560/2/22528"
