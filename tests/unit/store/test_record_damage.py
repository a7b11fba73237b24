"""Records that make no sense: set aside one by one, so that the others count."""

from pathlib import Path
from typing import Any

import pytest

from agent.errors import StoreError
from agent.model.node_records import DamagedRecord, RecordChanges
from agent.store.records import Records
from agent.store.store import open_read_only, open_store
from tests.support.store_place import Place
from tests.unit.store.record_samples import claim, device, instance, one_of_each, write

DAMAGES = [
    ("instance", "UPDATE instance SET flavor = '{'", "uuid", ""),
    (
        "instance",
        'UPDATE instance SET flavor = \'{"id": "f", "name": "f", "vcpus": "many"}\'',
        "uuid",
        "$.vcpus",
    ),
    ("instance", "UPDATE instance SET image_properties = '[1]'", "uuid", "object"),
    ("claim", 'UPDATE claim SET cells = \'[{"host_cell": "x"}]\'', "id", "$[0].host_cell"),
    (
        "claim",
        'UPDATE claim SET mdevs = \'[{"provider": 1, "resource_class": "VGPU", "count": 1}]\'',
        "id",
        "$[0].provider",
    ),
    ("device", "UPDATE device SET tags = '{\"a\": 1}'", "node", "str"),
    ("unit", "UPDATE unit SET metadata = 'x'", "node", ""),
]


@pytest.mark.parametrize(("table", "damage", "key", "place_told"), DAMAGES)
def test_a_damaged_record_is_set_aside_and_the_others_count(
    records: Records, place: Place, table: str, damage: str, key: str, place_told: str
) -> None:
    before = one_of_each()
    guest = instance(node=before.nodes[0].uuid)
    write(records, before)
    place.execute(damage)
    write(
        records,
        RecordChanges(
            instances=(guest,),
            claims=(claim(guest, before.nodes[0]),),
            devices=(device(before.nodes[0], "0000:00:09.0"),),
        ),
    )
    with records.reading() as reading:
        loaded = reading.load(before.nodes[0].uuid)
        consumers = reading.consumers([before.instances[0].uuid, guest.uuid])
    assert loaded is not None
    assert [one.table for one in loaded.damaged] == [table]
    assert loaded.damaged[0].key.startswith(getattr(_first(before, table), key))
    assert loaded.damaged[0].why
    assert place_told in loaded.damaged[0].why
    assert guest.uuid in {one.uuid for one in loaded.instances}
    assert guest.uuid in {one.instance for one in loaded.claims}
    assert "0000:00:09.0" in {one.address for one in loaded.devices}
    assert consumers.unreadable == ({before.instances[0].uuid} if table == "instance" else set())


def _first(changes: RecordChanges, table: str) -> Any:
    return {
        "instance": changes.instances,
        "claim": changes.claims,
        "device": changes.devices,
        "unit": changes.units,
    }[table][0]


def test_a_damaged_record_that_is_asked_for_is_an_error_that_names_it(
    records: Records, place: Place
) -> None:
    before = one_of_each()
    write(records, before)
    place.execute("UPDATE instance SET flavor = 'x'")
    place.execute("UPDATE claim SET cells = 'x'")
    with records.reading() as reading:
        for ask in (
            lambda: reading.instance(before.instances[0].uuid),
            lambda: reading.claims_of(before.instances[0].uuid),
        ):
            with pytest.raises(
                StoreError, match=r"the (instance|claim) [0-9a-f-]{36} is damaged"
            ) as refused:
                ask()
            assert refused.value.data["key"] in (before.instances[0].uuid, before.claims[0].id)


def test_a_state_that_only_a_newer_agent_knows_is_damage(folder: Path) -> None:
    before = one_of_each()
    with open_store(folder) as store:
        write(Records(store), before)
    with Place(folder, None).outside() as connection:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        connection.exec_driver_sql("UPDATE claim SET state = 'lent'")
        connection.exec_driver_sql("UPDATE migration SET status = 'flying', source_node = 'x'")
        connection.exec_driver_sql("UPDATE device SET type = 'type-CXL'")
        connection.exec_driver_sql("UPDATE instance SET vm_state = 'asleep', node = 'x'")
    with open_read_only(folder) as store, Records(store).reading() as reading:
        loaded = reading.load(before.nodes[0].uuid)
        assert loaded is not None
        assert {one.table for one in loaded.damaged} == {"claim", "device", "instance"}
        assert (
            DamagedRecord(
                "claim",
                before.claims[0].id,
                "ValueError: 'lent' is none of consumed, held, released",
            )
            in loaded.damaged
        )
        assert len(reading.migrations().damaged) == 1
        assert reading.consumers([before.instances[0].uuid]).unreadable == {
            before.instances[0].uuid,
            before.migrations[0].uuid,
        }
