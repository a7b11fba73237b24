"""The options of mediated devices."""

import pytest
from oslo_config import cfg

from agent.conf import devices, options
from agent.errors import ConfigErrors
from agent.tree.policy import MdevPolicy, MdevType

GPU, OTHER = "0000:06:00.0", "0000:07:00.0"


def policy(types, **sections):
    """The policy of a list of types, and of the options of each by its name with an underscore for
    the dash.
    """
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("enabled_mdev_types", types, "devices")
    devices.register_types(conf)
    for name, values in sections.items():
        for option, value in values.items():
            conf.set_override(option, value, devices.type_group(name))
    return MdevPolicy.from_options(conf)


def complaints(types, **sections):
    with pytest.raises(ConfigErrors) as refused:
        policy(types, **sections)
    assert all(error.remedy for error in refused.value.errors)
    return [error.message for error in refused.value.errors]


def test_a_parent_has_the_type_that_names_it_and_others_the_one_that_names_none():
    found = policy(
        ["T1", "T2"],
        T1={"device_addresses": [GPU.upper(), "mtty"], "max_instances": 20},
        T2={"mdev_class": "CUSTOM_B", "max_per_guest": 1},
    )
    first, second = (
        MdevType("T1", frozenset({GPU, "mtty"}), max_instances=20),
        MdevType("T2", resource_class="CUSTOM_B", max_per_guest=1),
    )
    assert found == MdevPolicy((first, second))
    assert [found.type_of(one) for one in (GPU, "mtty", OTHER)] == [first, first, second]
    assert found.classes == {"VGPU", "CUSTOM_B"}


def test_where_every_type_names_its_parents_the_others_have_none():
    assert policy(["T1"], T1={"device_addresses": [GPU]}).type_of(OTHER) is None


def test_a_parent_in_two_types_is_an_error():
    assert complaints(
        ["T1", "T2", "T3"],
        T1={"device_addresses": [GPU]},
        T2={"device_addresses": [OTHER, GPU]},
        T3={"device_addresses": [GPU]},
    ) == ["[mdev_T1] and [mdev_T2] and [mdev_T3] device_addresses: each has 0000:06:00.0"]


def test_a_second_type_for_all_other_parents_is_ignored_with_a_warning(caplog):
    assert policy(["T1", "T2", "T3"], T2={"device_addresses": [GPU]}) == MdevPolicy(
        (MdevType("T1"), MdevType("T2", frozenset({GPU})))
    )
    assert [record.getMessage() for record in caplog.records] == [
        (
            "[devices] enabled_mdev_types: T3 is ignored, because it has no [mdev_T3] "
            "device_addresses, and T1 has all parents that no type names"
        )
    ]


def test_a_type_that_is_named_twice_counts_once():
    assert policy(["T1", "T1"], T1={"device_addresses": [GPU]}) == MdevPolicy(
        (MdevType("T1", frozenset({GPU})),)
    )
