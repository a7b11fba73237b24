"""A card and its virtual functions, of which only one or the others can be had, while nothing is
reported to Placement.
"""

from dataclasses import replace

import pytest

from agent.errors import StoreError
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import open_store
from tests.support.device_host import ROOT, DeviceHost
from tests.support.tracking import guest

FAMILY = {"address": "0000:81:02.*"}


@pytest.fixture
def family(host: DeviceHost) -> DeviceHost:
    """F2 and its functions V20 and V21."""
    host.start(FAMILY, report=False)
    assert host.free == {"F2", "V20", "V21"}
    return host


def test_a_card_can_be_had_while_none_of_its_functions_is_in_use(family: DeviceHost) -> None:
    family.claim("S1", "V20")
    assert family.free == {"V21"}
    family.claim("S2", "V21")
    assert family.free == set()
    family.delete("S1")
    assert family.free == {"V20"}
    family.delete("S2")
    assert family.free == {"F2", "V20", "V21"}
    family.start(report=False)
    assert family.free == {"F2", "V20", "V21"}


def test_no_record_can_say_that_a_function_is_out_of_reach_so_none_can_say_so_wrongly(
    family: DeviceHost,
) -> None:
    for state in ("unavailable", "unclaimable"):
        wrong = RecordChanges(devices=(replace(family.rows["V20"], state=state),))  # type: ignore[arg-type]
        with (
            open_store(family.folder) as store,
            pytest.raises(StoreError),
            Records(store).transaction([ProviderUuid(ROOT)]) as transaction,
        ):
            transaction.write(wrong)
    family.claim("S1", "F2")
    assert family.holders == {"F2": guest("S1")}
