"""An agent that was started again knows its nodes after their first audits; whoever asks before has
to wait, and nothing is denied.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.tracker.errors import NodeNotReady, TrackerError, UnknownNode
from agent.tracker.moves import confirm, finish
from agent.tracker.node_entry import NodeEntry
from agent.tracker.node_record import HostCapacity
from tests.support.tracking import F1, F3, Host

ASKED: dict[str, Callable[[Host], object]] = {
    "a claim": lambda host: host.claim("i2", F1),
    "its end": lambda host: host.abort("i1"),
    "a guest's new state": lambda host: host.update("i1", task_state="rebooting"),
    "a view": lambda host: host.tracker.view(host.node),
    "the end of a move from here": lambda host: host.tracker.change(host.move_id("i3"), confirm),
    "the end of a move that has left here": lambda host: host.tracker.change(
        host.move_id("i4"), confirm
    ),
}


@pytest.fixture
def moving(ha: Host, hb: Host) -> Host:
    """HA, with a guest, one that went to HB and may come back, and one that is there for good."""
    for name in ("i1", "i3", "i4"):
        ha.claim(name, F1)
    for name in ("i3", "i4"):
        hb.move(name, "resize", F3)
        hb.tracker.change(hb.move_id(name), finish)
    hb.tracker.change(hb.move_id("i4"), confirm)
    return ha


@pytest.mark.parametrize("what", ASKED)
def test_before_its_first_audit_a_node_is_not_ready(moving: Host, what: str) -> None:
    moving.restart()
    with pytest.raises(NodeNotReady):
        ASKED[what](moving)
    moving.audit(start=True)
    ASKED[what](moving)


def test_a_node_that_is_new_to_the_store_is_unknown_only_once_a_node_was_audited(ha: Host) -> None:
    new = replace(ha, name="HX")
    with pytest.raises(NodeNotReady):
        new.claim("i1", F1)
    new.beside("HX2")
    with pytest.raises(UnknownNode):
        new.claim("i1", F1)
    new.audit(start=True)
    new.claim("i1", F1)


def test_a_node_whose_first_audit_begins_meanwhile_is_not_unknown(
    ha: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen of a daemon on a new store: the claim found no node in memory, then its audit began,
    then there was none in the store yet.
    """
    new = replace(ha, name="HX")
    records = new.tracker._records
    reading = records.reading

    def meanwhile() -> object:
        new.tracker._entries[new.node] = NodeEntry(HostCapacity())  # type: ignore[index]
        return reading()

    monkeypatch.setattr(records, "reading", meanwhile)
    with pytest.raises(NodeNotReady):
        new.claim("i1", F1)


@pytest.mark.parametrize("what", ["its end", "a guest's new state"])
def test_what_is_another_hosts_is_not_waited_for(moving: Host, hb: Host, what: str) -> None:
    with pytest.raises(TrackerError) as refused:
        ASKED[what](hb)
    assert not isinstance(refused.value, NodeNotReady)


def test_another_node_of_the_same_agent_that_was_audited_does_not_answer_for_it(
    moving: Host,
) -> None:
    beside = moving.beside("HA2")
    moving.restart()
    beside.usage_step, beside.tracker = moving.usage_step, moving.tracker
    beside.audit(start=True)
    for what in ("its end", "a guest's new state"):
        with pytest.raises(NodeNotReady):
            ASKED[what](moving)
    moving.audit(start=True)
    ASKED["its end"](moving)


def test_the_nodes_of_the_host_are_known_before_their_first_audit_if_they_ever_had_one(
    moving: Host, hb: Host
) -> None:
    moving.restart()
    assert moving.tracker.nodes() == [moving.node]
    assert hb.tracker.nodes() == [hb.node]
    new = replace(moving, name="HX")
    with pytest.raises(NodeNotReady):
        new.tracker.nodes()


def test_of_the_nodes_that_the_driver_lists_those_that_were_not_audited_yet_are_waited_for_and_no_others(
    ha: Host,
) -> None:
    """Seen of a first pass over many nodes: a claim on one that it had not reached was denied as
    soon as another was audited.
    """
    listed, other = replace(ha, name="HX"), replace(ha, name="HY")
    other.usage_step, other.tracker = listed.usage_step, listed.tracker
    listed.usage_step.set_listed_nodes([listed.node])
    with pytest.raises(NodeNotReady):
        listed.claim("i1", F1)
    with pytest.raises(UnknownNode):
        other.claim("i1", F1)
    listed.beside("HX2")
    with pytest.raises(NodeNotReady):
        listed.claim("i1", F1)
    with pytest.raises(UnknownNode):
        other.claim("i1", F1)
    listed.audit(start=True)
    listed.claim("i1", F1)


def test_an_agent_that_stands_by_denies_no_node(ha: Host) -> None:
    new = replace(ha, name="HX")
    new.usage_step.set_listed_nodes([])
    with pytest.raises(NodeNotReady):
        new.claim("i1", F1)
