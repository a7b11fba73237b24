"""From the facts of a host to the rows of its devices."""

import pytest

from agent.model.names import ProviderUuid
from agent.pci.settings import device_rows
from tests.unit.pci.scene import NAMES, physical, present, specs, virtual

NODE = ProviderUuid("5f9c2a34-7d1e-4a8b-9c46-000000000001")


def rows(*values, on=None):
    names = {text: name for name, text in NAMES.items()}
    return {
        names[row.address]: row
        for row in device_rows(NODE, on or present(), specs(*values, report=False))
    }


def serves(*values, on=None):
    return {name: row.serves for name, row in rows(*values, on=on).items()}


def test_all_functions_of_a_card_are_kept_when_one_is_offered():
    assert serves({"address": "0000:81:02.1"}) == {"F2": "nobody", "V20": "guests", "V21": "nobody"}
    assert serves({"product_id": "1572", "address": "0000:81:02.0"}) == {
        "F2": "guests",
        "V20": "nobody",
        "V21": "nobody",
    }


def test_virtual_function_that_the_host_uses_is_in_the_way_of_its_physical_one():
    on = present(V20=virtual("V20", "F2", host_use="interface ens1f0v0 is up"))
    assert serves({"product_id": "1572", "address": "0000:81:02.0"}, on=on) == {
        "F2": "guests",
        "V20": "host",
        "V21": "nobody",
    }


def test_virtual_function_that_is_offered_is_offered_though_the_host_uses_it():
    on = present(V20=virtual("V20", "F2", host_use="interface ens1f0v0 is up"))
    assert serves({"product_id": "154c", "address": "0000:81:02.*"}, on=on)["V20"] == "guests"


def test_physical_function_that_the_host_uses_is_in_nobody_s_way():
    on = present(F2=physical("F2", "V20", "V21", host_use="interface ens1f0 is up"))
    assert serves({"product_id": "154c", "address": "0000:81:02.*"}, on=on)["F2"] == "nobody"


def test_what_is_not_offered_has_no_tags():
    assert rows({"address": "0000:81:02.1", "managed": "no"})["V21"].tags == {}


def test_remote_managed_is_a_tag_of_functions_of_cards_only():
    found = rows({"vendor_id": "8086"})
    assert {name: row.tags for name, row in found.items() if name in ("P0", "F2", "V20")} == {
        "P0": {},
        "F2": {"remote_managed": "false"},
        "V20": {"remote_managed": "false"},
    }


@pytest.mark.parametrize(("kind", "has"), [({}, "false"), ({"has_vdpa": True}, "false")])
def test_remote_managed_tag_of_virtual_functions(kind, has):
    assert rows({"product_id": "154c"}, on=present(V20=virtual("V20", "F2", **kind)))[
        "V20"
    ].tags == {"remote_managed": has}
    serial = present(V20=virtual("V20", "F2", serial_number="MT1", **kind))
    assert rows({"product_id": "154c", "remote_managed": "1"}, on=serial)["V20"].tags == {
        "remote_managed": "true"
    }


def test_interface_of_the_parent_is_a_tag_of_functions_that_have_one_themselves():
    on = present(
        F2=physical("F2", "V20", "V21", netdev="ens1f0"),
        V20=virtual("V20", "F2", netdev="ens1f0v0"),
    )
    found = rows({"product_id": "154c", "address": "0000:81:02.*"}, on=on)
    assert found["V20"].tags == {"remote_managed": "false", "parent_ifname": "ens1f0"}
    assert found["V21"].tags == {"remote_managed": "false"}
