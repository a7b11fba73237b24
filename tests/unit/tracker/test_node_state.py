"""The state of a node: that it is the same whether it was kept up to date or read anew, and what it
tells.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.instance import Amounts
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import open_store
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import StoredState
from agent.tracker.verdicts import release_claims
from tests.unit.store.record_samples import claim, device, instance, migration, new_uuid, node, unit
from tests.unit.tracker.samples import (
    ELSEWHERE,
    HERE,
    HOST,
    gpus,
    guest_here,
    pinned,
    state,
)

Step = Callable[[st.DrawFn, NodeState], RecordChanges]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    """A store, for all examples."""
    path: Path = tmp_path_factory.mktemp("state")
    with open_store(path) as store:
        yield Records(store)


# --- what can happen to a node's records ----------------------------------------------------------


def some(draw: st.DrawFn, of: Any) -> Any:
    """One of them, or None if there is none."""
    found = sorted(of, key=repr)
    return draw(st.sampled_from(found)) if found else None


def comes(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A guest comes, perhaps with pins that another has, perhaps only on its way."""
    cells = draw(
        st.lists(
            st.sampled_from(
                [pinned(0, 4), pinned(0, 5, 6), pinned(1, 12), pinned(1, 12, 13), pinned(7, 99)]
            ),
            max_size=2,
            unique_by=str,
        )
    )
    owned = instance(host="HA", node=draw(st.sampled_from([now.node.uuid, None])))
    amounts = Amounts(*draw(st.tuples(*[st.integers(0, 4096)] * 3)))
    return RecordChanges(
        instances=(owned,),
        claims=(
            claim(
                owned,
                now.node,
                amounts=amounts,
                cells=tuple(cells),
                created_at=float(draw(st.integers(0, 3))),
            ),
        ),
    )


def goes(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A claim is given back, with all that it holds."""
    one = some(draw, now.claims.values())
    return (
        RecordChanges()
        if one is None
        else release_claims(
            [one],
            StoredState(devices=tuple(now.devices.values()), units=tuple(now.units.values())),
            5.0,
        )
    )


def changes(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A claim changes its state, or its cells."""
    one = some(draw, now.claims.values())
    if one is None:
        return RecordChanges()
    other = draw(
        st.sampled_from(
            [
                {"state": "consumed"},
                {"cells": ()},
                {"cells": (pinned(0, 7),)},
                {"amounts": Amounts(1, 2, 3)},
            ]
        )
    )
    return RecordChanges(claims=(replace(one, **other),))


def moves(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A guest moves, to here or from here or between others."""
    one = some(draw, now.claims.values())
    if one is None:
        return RecordChanges()
    ends = draw(
        st.sampled_from(
            [
                (now.node.uuid, ELSEWHERE.uuid),
                (ELSEWHERE.uuid, now.node.uuid),
                (ELSEWHERE.uuid, ELSEWHERE.uuid),
            ]
        )
    )
    move = migration(now.instances[one.instance], source_node=ends[0], dest_node=ends[1])
    named = draw(st.booleans())
    return RecordChanges(
        migrations=(move,), claims=(replace(one, half="old", migration=move.uuid),) if named else ()
    )


def arrives(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A move ends, and the claims that name it may go on to."""
    one = some(draw, now.migrations.values())
    return (
        RecordChanges()
        if one is None
        else RecordChanges(
            migrations=(
                replace(one, status=draw(st.sampled_from(["finished", "confirmed", "error"]))),
            )
        )
    )


def lives(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """An instance becomes something else, or somebody else's."""
    one = some(draw, now.instances.values())
    if one is None:
        return RecordChanges()
    other = draw(
        st.sampled_from(
            [
                {"deleted": True},
                {"vm_state": "active"},
                {"host": "HB", "node": ELSEWHERE.uuid},
                {"host": None, "node": None},
            ]
        )
    )
    return RecordChanges(instances=(replace(one, **other),))


def plugged(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A device and a unit come."""
    # The version is never the same twice.
    number = now.node.version
    return RecordChanges(
        devices=(device(now.node, f"0000:{number:02x}:00.0"),),
        units=(unit(now.node, f"ns_{number}"),),
    )


def taken(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A claim gets a device and a unit."""
    one, free = (
        some(draw, now.claims.values()),
        some(draw, [row for row in now.devices.values() if row.holder is None]),
    )
    unit_ = some(draw, [row for row in now.units.values() if row.holder is None])
    if one is None or free is None or unit_ is None:
        return RecordChanges()
    return RecordChanges(
        devices=(replace(free, holder=one.id, state="claimed"),),
        units=(replace(unit_, holder=one.id),),
    )


def unplugged(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """A device and a unit go; those that are held only from the host."""
    device_, unit_ = some(draw, now.devices.values()), some(draw, now.units.values())
    if device_ is None or unit_ is None:
        return RecordChanges()
    if device_.holder is None and unit_.holder is None:
        return RecordChanges(dropped_devices=(device_,), dropped_units=(unit_,))
    return RecordChanges(
        devices=(replace(device_, present=False),), units=(replace(unit_, present=False),)
    )


def built(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """The node's own record changes."""
    return RecordChanges(nodes=(replace(now.node, failed_builds=now.node.failed_builds + 1),))


def happens_elsewhere(draw: st.DrawFn, now: NodeState) -> RecordChanges:
    """Something happens that is none of the node's business."""
    stranger = instance(host="HB", node=ELSEWHERE.uuid)
    return RecordChanges(instances=(stranger,), claims=(claim(stranger, ELSEWHERE),))


STEPS: tuple[Step, ...] = (
    comes,
    goes,
    changes,
    moves,
    arrives,
    lives,
    plugged,
    taken,
    unplugged,
    built,
    happens_elsewhere,
)


def read(records: Records, uuid: ProviderUuid) -> NodeState:
    """The state that the store shows."""
    with records.reading() as reading:
        found = reading.load(uuid)
    assert found is not None
    return NodeState.of(found, HOST)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_state_kept_up_to_date_is_the_state_read_anew(
    records: Records, data: st.DataObject
) -> None:
    with records.transaction([]) as transaction:
        mine = node("HA", f"host of {new_uuid()}")
        first = RecordChanges(
            nodes=(mine, *(() if transaction.node(ELSEWHERE.uuid) else (ELSEWHERE,)))
        )
        transaction.write(first)
    now = read(records, mine.uuid)
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=14)):
        planned = step(data.draw, now)
        with records.transaction([mine.uuid]) as transaction:
            transaction.write(planned)
        now = now.after(planned)
        assert now == read(records, mine.uuid), step.__name__


# --- what it tells --------------------------------------------------------------------------------


def test_the_guest_that_an_operation_is_about_is_known_with_its_claim() -> None:
    coming = instance(host="HB", node=ELSEWHERE.uuid, version=3)
    incoming = RecordChanges(claims=(claim(coming, HERE, half="new"),))
    assert state().after(incoming, coming).instances == {coming.uuid: coming}
    assert state().after(RecordChanges(), coming).instances == {}


def test_a_claim_looks_at_no_other_guest_of_the_node() -> None:
    """Else it would cost more, the more guests there are."""

    class Unread(dict[Any, Any]):
        """Records that can be copied and looked up, and not gone through one by one."""

        def values(self) -> Any:
            raise AssertionError("all records are looked at")

        items = __iter__ = values

        def keys(self) -> Any:
            return dict.keys(self)

    others = [guest_here() for _ in range(3)]
    found = state(
        instances=others,
        claims=[claim(one, HERE, cells=(pinned(0, cpu),)) for cpu, one in enumerate(others)],
        devices=gpus(2),
    )
    unread = replace(
        found,
        **{
            name: Unread(getattr(found, name))
            for name in ("claims", "instances", "migrations", "devices", "units")
        },
    )
    coming = instance(host="HA", node=HERE.uuid)
    changes = RecordChanges(instances=(coming,), claims=(claim(coming, HERE),))
    assert unread.after(changes) == found.after(changes)
