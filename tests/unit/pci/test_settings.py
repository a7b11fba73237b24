"""What the operator says of PCI devices, from the options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from agent.conf import options
from agent.model.facts import HostFacts
from agent.model.names import ProviderUuid, is_token
from agent.pci.option_value import class_of, class_of_ids, traits_of
from agent.pci.settings import PciSettings, PresentDevices, device_rows, misfits
from tests.support.ini import write_config
from tests.unit.pci.scene import NAMES, host, offered, physical, plain, present, specs, virtual


def settings(tmp_path, **said):
    conf = cfg.ConfigOpts()
    options.register(conf)
    groups = {
        "DEFAULT": {
            name.removeprefix("DEFAULT_"): said.pop(name)
            for name in list(said)
            if name.startswith("DEFAULT_")
        },
        "pci": said,
    }
    conf([], default_config_files=[str(write_config(tmp_path / "agent.conf", groups))])
    return PciSettings.from_options(conf)


def test_options_given_several_times(tmp_path):
    found = settings(
        tmp_path,
        device_spec=['{"vendor_id": "8086"}', '[{"address": {"function": "[1-2]$"}}]'],
        alias=['{"name": "a", "vendor_id": "8086", "product_id": "154c"}'],
        report_in_placement=True,
    )
    assert ([spec.place for spec in found.specs], list(found.aliases), found.report) == (
        ["#1", "#2.1"],
        ["a"],
        True,
    )


@pytest.mark.parametrize("name", ["passthrough_whitelist", "DEFAULT_pci_passthrough_whitelist"])
def test_older_names_of_the_option(tmp_path, name):
    assert [
        spec.vendor_id for spec in settings(tmp_path, **{name: ['{"vendor_id": "8086"}']}).specs
    ] == ["8086"]


def test_older_name_of_the_aliases(tmp_path):
    assert list(
        settings(
            tmp_path, DEFAULT_pci_alias=['{"name": "a", "vendor_id": "8086", "product_id": "154c"}']
        ).aliases
    ) == ["a"]


def test_misfits_are_known_only_where_the_host_has_told_its_devices(tmp_path):
    found = settings(tmp_path, device_spec=['{"address": "0000:81:02.0", "remote_managed": "yes"}'])
    facts = HostFacts("node-1", 0.0, "test", pci=tuple(host().values()))
    (misfit,) = found.misfits(facts.known_devices)
    assert "0000:81:02.0 is a physical function" in misfit.message
    hanging = HostFacts("node-1", 0.0, "test", pci=facts.pci, incomplete={"pci": "it hangs"})
    assert list(found.misfits(hanging.known_devices)) == []


# --- resource classes and traits: what an operator writes, and what Placement gets ---


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pgpu", "PGPU"),
        ("VGPU", "VGPU"),
        ("a16 16a", "CUSTOM_A16_16A"),
        ("CUSTOM_foo", "CUSTOM_FOO"),
        ("custom-foo", "CUSTOM_CUSTOM_FOO"),
        ("a - b", "CUSTOM_A_B"),
        ("a__b", "CUSTOM_A__B"),
        (" pgpu ", "PGPU"),
        ("größe", "CUSTOM_GR_SSE"),
    ],
)
def test_classes(text, name):
    assert class_of(text) == name


def test_class_of_a_device_without_one():
    assert class_of_ids("8086", "15ab") == "CUSTOM_PCI_8086_15AB"
    assert offered({"address": "0000:81:00.0"})["P0"].resource_class == "CUSTOM_PCI_8086_1533"


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("", set()),
        (" , ,", set()),
        ("HW_GPU_API_VULKAN,purple", {"HW_GPU_API_VULKAN", "CUSTOM_PURPLE"}),
        ("blue, big", {"CUSTOM_BLUE", "CUSTOM_BIG"}),
        ("a,,b", {"CUSTOM_A", "CUSTOM_B"}),
        ("hw_gpu_api_vulkan", {"HW_GPU_API_VULKAN"}),
        ("custom_x", {"CUSTOM_X"}),
        ("HW_NO_SUCH_THING", {"CUSTOM_HW_NO_SUCH_THING"}),
        ("a b - c", {"CUSTOM_A_B_C"}),
        ("same,SAME,CUSTOM_SAME", {"CUSTOM_SAME"}),
    ],
)
def test_traits(text, traits):
    assert traits_of(text) == (traits, [])


def test_traits_that_none_can_be_called():
    traits, wrong = traits_of(f"CUSTOM_bad-char,good,{'x' * 250},CUSTOM_{'y' * 249}")
    assert traits == {"CUSTOM_GOOD"}
    assert [why.partition(" has ")[2] for why in wrong] == [
        "other characters than A-Z, 0-9 and _",
        "257 characters, more than 255",
        "256 characters, more than 255",
    ]


@given(st.text(min_size=1, max_size=300))
def test_every_name_is_one_that_placement_takes_or_an_error(text: str):
    traits, wrong = traits_of(text)
    assert all(map(is_token, traits))
    assert len(traits) + len(wrong) <= text.count(",") + 1
    try:
        assert is_token(class_of(text))
    except ValueError as error:
        assert "characters" in str(error)


# --- how the devices of a host stand to each other ---


def names(devices):
    return [str(device.address)[5:] for device in devices]


def test_family():
    on = present()
    everyone = ["81:02.0", "81:02.1", "81:02.2"]
    assert names(on.family(host()["F2"])) == names(on.family(host()["V21"])) == everyone
    assert names(on.family(host()["P0"])) == ["81:00.0"]


def test_family_of_a_function_whose_parent_is_not_shown():
    lost = virtual("V20", "F2")
    assert PresentDevices.of([lost]).family(lost) == (lost,)
    assert PresentDevices.of([lost]).parent(lost) is None


def test_serial_number_is_the_function_s_own_or_its_parent_s():
    on = present(
        F2=physical("F2", "V20", "V21", serial_number="MT1"),
        V20=virtual("V20", "F2", serial_number="MT2"),
    )
    assert [on.serial_number(one) for one in on.family(host()["F2"])] == ["MT1", "MT2", "MT1"]
    assert on.serial_number(host()["V30"]) is None


def test_number_of_a_function_is_its_place_among_those_of_its_parent():
    on = present(F2=physical("F2", "V21", "V20"))
    assert [on.number(host()[name]) for name in ("V20", "V21", "F2", "P0")] == [1, 0, None, None]
    assert present(F2=physical("F2")).number(host()["V20"]) is None


def test_interfaces():
    on = present(F2=physical("F2", netdev="ens1f0"), P0=plain("P0", netdev="ens2"))
    assert {name: str(one.address) for name, one in on.by_netdev.items()} == {
        "ens1f0": "0000:81:02.0",
        "ens2": "0000:81:00.0",
    }


# --- objects that say ``remote_managed`` against the cards that are there ---


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


# --- from the facts of a host to the rows of its devices ---


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
