"""Objects that say ``remote_managed`` against the cards that are there."""

import pytest

from agent.pci.settings import misfits
from tests.unit.pci.scene import physical, plain, present, specs, virtual

PF2 = "0000:81:02.0"
NOT_A_PF = f"#1: {PF2} is a physical function, which cannot be remote managed"


def wrong(spec, on=None):
    found = list(misfits(specs({"remote_managed": True, **spec}, report=False), on or present()))
    assert all(one.remedy for one in found)
    return [one.message.removeprefix("[pci] device_spec ") for one in found]


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ({"product_id": "154c"}, []),
        ({"product_id": "154c", "vendor_id": "*"}, []),
        ({"product_id": "154c", "vendor_id": "8086"}, []),
        ({"product_id": "1572"}, [NOT_A_PF]),
        ({"product_id": "1572", "vendor_id": "8086"}, [NOT_A_PF]),
        ({"product_id": "*"}, [NOT_A_PF]),
        ({}, [NOT_A_PF]),
        (
            {"product_id": "154c", "vendor_id": "10de"},
            [f"#1: 10de:154c does not fit the virtual functions of {PF2}, 8086:154c"],
        ),
        (
            {"vendor_id": "10de"},
            [f"#1: 10de:* does not fit the virtual functions of {PF2}, 8086:154c"],
        ),
        (
            {"product_id": "1515"},
            [f"#1: *:1515 does not fit the virtual functions of {PF2}, 8086:154c"],
        ),
    ],
)
def test_address_of_a_physical_function(ids, told):
    assert wrong({"address": PF2, **ids}) == told


def test_what_the_virtual_functions_would_be_the_card_may_tell_itself():
    on = present(F2=physical("F2", virtual_function_product_id="1515"))
    assert wrong({"address": PF2, "product_id": "1515"}, on) == []
    assert wrong({"address": PF2, "product_id": "154c"}, on) == [
        f"#1: *:154c does not fit the virtual functions of {PF2}, 8086:1515"
    ]


def test_card_that_tells_nothing_of_virtual_functions_is_believed():
    on = present(F4=physical("0000:90:00.0"))
    assert wrong({"address": "0000:90:00.0", "product_id": "154c"}, on) == []
    assert wrong({"address": "0000:90:00.0", "product_id": "1572"}, on) == [
        "#1: 0000:90:00.0 is a physical function, which cannot be remote managed"
    ]


def test_virtual_functions_with_the_product_of_the_physical_one():
    on = present(
        F4=physical("0000:90:00.0", "0000:90:00.1"),
        V40=virtual("0000:90:00.1", "0000:90:00.0", product_id="1572"),
    )
    assert wrong({"address": "0000:90:00.0", "product_id": "1572"}, on) == []


@pytest.mark.parametrize(
    "place", ["0000:81:02.*", {"bus": "81"}, "0000:81:02.1", "0000:ff:00.0", "0000:81:00.0"]
)
def test_addresses_that_are_not_checked(place):
    assert wrong({"address": place}) == []


def test_interface():
    on = present(F2=physical("F2", "V20", "V21", netdev="ens1f0"), P0=plain("P0", netdev="ens2"))
    assert wrong({"devname": "ens1f0", "product_id": "154c"}, on) == []
    assert wrong({"devname": "ens1f0"}, on) == [NOT_A_PF]
    assert wrong({"devname": "ens9"}, on) == [
        "#1: remote_managed of devname ens9, which the host does not have"
    ]


def test_only_objects_that_say_it_are_checked():
    assert (
        list(misfits(specs({"address": PF2}, {"devname": "ens9"}, report=False), present())) == []
    )


def test_every_misfit_is_told():
    both = specs(
        {"remote_managed": True, "address": PF2},
        {"remote_managed": True, "devname": "ens9"},
        report=False,
    )
    assert [misfit.data["place"] for misfit in misfits(both, present())] == ["#1", "#2"]
