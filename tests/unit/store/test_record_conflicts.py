"""What the store refuses to write: what somebody else has changed, and what no record may be."""

from dataclasses import replace
from typing import Any

import pytest

from agent.errors import RecordConflict, StoreError
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from tests.unit.store import record_samples as samples
from tests.unit.store.record_samples import (
    claim,
    device,
    grown,
    instance,
    migration,
    node,
    one_of_each,
    unit,
    write,
)

# --- versions -------------------------------------------------------------------------------------


def test_each_node_of_which_something_changes_gets_the_next_version_once(records: Records) -> None:
    here, there, other, guest = node(), node("n2"), node("n3"), instance()
    write(records, RecordChanges(nodes=(here, there, other)))
    write(
        records,
        RecordChanges(
            nodes=(grown(here),),
            instances=(guest,),
            claims=(claim(guest, here), claim(guest, there)),
            devices=(device(here),),
        ),
    )
    with records.reading() as reading:
        assert reading.node_versions([here.uuid, there.uuid, other.uuid]) == {
            here.uuid: 2,
            there.uuid: 2,
            other.uuid: 1,
        }
    write(records, RecordChanges(dropped_devices=(grown(device(here)),)))
    write(records, RecordChanges(instances=(replace(grown(guest), node=there.uuid),)))
    write(records, RecordChanges(units=(unit(there),)))
    write(records, RecordChanges(dropped_units=(grown(unit(there)),)))
    with records.reading() as reading:
        assert reading.node_versions([here.uuid, there.uuid]) == {here.uuid: 3, there.uuid: 5}
        loaded = reading.load(there.uuid)
        assert loaded is not None
        assert (loaded.units, loaded.node.version) == ((), 5)


KINDS = ["nodes", "instances", "migrations", "claims", "devices", "units", "leases"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expected", [0, 2], ids=["taken for new", "changed meanwhile"])
def test_a_record_of_another_version_is_a_conflict_and_nothing_is_written(
    records: Records, kind: str, expected: int
) -> None:
    before = one_of_each()
    write(records, before)
    another = instance()
    stale = replace(getattr(before, kind)[0], version=expected)
    with pytest.raises(RecordConflict) as refused:
        write(records, RecordChanges(instances=(another,)) + RecordChanges(**{kind: (stale,)}))
    assert refused.value.code == "store.conflict"
    if expected:
        assert refused.value.data["table"] in refused.value.message
    with records.reading() as reading:
        assert reading.instance(another.uuid) is None
        assert reading.node_versions([before.nodes[0].uuid]) == {before.nodes[0].uuid: 1}


@pytest.mark.parametrize("kind", ["devices", "units"])
def test_dropping_what_has_changed_is_a_conflict(records: Records, kind: str) -> None:
    before = one_of_each()
    write(records, before)
    row = getattr(before, kind)[0]
    for stale in (
        replace(row, version=2),
        replace(row, **{"address" if kind == "devices" else "identifier": "another"}, version=1),
    ):
        with pytest.raises(RecordConflict):
            write(records, RecordChanges(**{f"dropped_{kind}": (stale,)}))
    write(records, RecordChanges(**{f"dropped_{kind}": (grown(row),)}))


def test_a_second_holder_is_a_conflict(records: Records) -> None:
    here, guests = node(), [instance(), instance()]
    claims = [claim(guest, here) for guest in guests]
    free, space = device(here), unit(here)
    write(
        records,
        RecordChanges(
            nodes=(here,),
            instances=tuple(guests),
            claims=tuple(claims),
            devices=(free,),
            units=(space,),
        ),
    )
    first, second = (replace(grown(free), holder=one.id, state="claimed") for one in claims)
    write(
        records,
        RecordChanges(devices=(first,), units=(replace(grown(space), holder=claims[0].id),)),
    )
    for taken in (
        RecordChanges(devices=(second,)),
        RecordChanges(devices=(replace(second, version=0),)),
        RecordChanges(units=(replace(grown(space), holder=claims[1].id),)),
    ):
        with pytest.raises(RecordConflict):
            write(records, taken)
    with records.reading() as reading:
        devices, units = reading.held_by([claims[0].id])
        assert (len(devices), len(units), reading.held_by([claims[1].id])) == (1, 1, ((), ()))


def test_a_second_node_of_the_same_name_on_a_host_is_a_conflict(records: Records) -> None:
    write(records, RecordChanges(nodes=(node(),)))
    with pytest.raises(RecordConflict):
        write(records, RecordChanges(nodes=(node(),)))
    write(records, RecordChanges(nodes=(replace(node(), deleted=True), node(host="h2"))))


# --- what no record may be ------------------------------------------------------------------------


def test_what_refers_to_nothing_is_refused(records: Records) -> None:
    here, guest = node(), instance()
    write(records, RecordChanges(nodes=(here,), instances=(guest,)))
    for dangling in (
        RecordChanges(claims=(claim(guest, node()),)),
        RecordChanges(claims=(claim(instance(), here),)),
        RecordChanges(claims=(claim(guest, here, migration=samples.new_uuid()),)),
        RecordChanges(migrations=(migration(instance()),)),
        RecordChanges(devices=(device(node()),)),
        RecordChanges(devices=(device(here, holder=samples.new_uuid(), state="claimed"),)),
        RecordChanges(units=(unit(here, holder=samples.new_uuid()),)),
    ):
        with pytest.raises(RecordConflict):
            write(records, dangling)


@pytest.mark.parametrize(
    "change",
    [
        lambda before: RecordChanges(instances=(instance(vm_state="vanished"),)),
        lambda before: RecordChanges(instances=(instance(task_state="thinking"),)),
        lambda before: RecordChanges(migrations=(migration(before.instances[0], status="lost"),)),
        lambda before: RecordChanges(migrations=(migration(before.instances[0], type="walk"),)),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], half="third"),)
        ),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], state="maybe"),)
        ),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], purpose="fun"),)
        ),
        lambda before: RecordChanges(
            claims=(claim(before.instances[0], before.nodes[0], amounts=samples.Amounts(-1, 0, 0)),)
        ),
        lambda before: RecordChanges(
            claims=(
                claim(before.instances[0], before.nodes[0], amounts=samples.Amounts(0, 2**63, 0)),
            )
        ),
        lambda before: RecordChanges(
            devices=(
                device(before.nodes[0], "0000:00:07.0", state="broken", holder=before.claims[0].id),
            )
        ),
        lambda before: RecordChanges(
            devices=(device(before.nodes[0], "0000:00:07.0", type="type-ISA"),)
        ),
        lambda before: RecordChanges(
            devices=(device(before.nodes[0], "0000:00:07.0", state="claimed"),)
        ),
        lambda before: RecordChanges(
            devices=(device(before.nodes[0], "0000:00:07.0", holder=before.claims[0].id),)
        ),
        lambda before: RecordChanges(nodes=(replace(node("n9"), failed_builds=-1),)),
        lambda before: RecordChanges(instances=(instance(project_id=None),)),
        lambda before: RecordChanges(instances=(instance(project_id="half a \ud800 surrogate"),)),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_and_nothing_is_written(
    records: Records, change: Any
) -> None:
    before = one_of_each()
    write(records, before)
    with pytest.raises(StoreError) as refused:
        write(records, change(before))
    assert not isinstance(refused.value, RecordConflict)
    assert "report it" in refused.value.remedy
    with records.reading() as reading:
        assert reading.node_versions([before.nodes[0].uuid]) == {before.nodes[0].uuid: 1}
        assert len(reading.instances().records) == 1
