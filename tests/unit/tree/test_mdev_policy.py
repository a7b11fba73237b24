"""The options of mediated devices."""

import pytest
from oslo_config import cfg

from agent.conf import devices, options
from agent.errors import ConfigErrors
from agent.model.devices import Mdev, MdevParent
from agent.tree.children import put_mdevs
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import MdevPolicy, MdevType
from tests.unit.tree.nodes import NAME, ROOT, amount, contents, facts, root_only

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


# --- where mediated devices are counted, and what is left of them ---


T = MdevPolicy((MdevType("T"),))
CARD = MdevParent("0000:06:00.0", available={"T": 2})


def put(*parents, policy=T, present=None, tree=None, **changes):
    tree = tree or root_only()
    trees = NodeTrees(tree, present or root_only(), ROOT)
    put_mdevs(trees, parents if facts(**changes).complete("mdev") else None, policy)
    return contents(tree)


def test_a_virtual_parent_is_called_as_by_libvirt():
    assert set(
        put(MdevParent("mtty", "mtty", {"T": 4}), MdevParent("0.0.0313", "css", {"T": 1}))
    ) == {NAME, f"{NAME}_mtty_mtty", f"{NAME}_css_0_0_0313"}


def test_a_wide_domain_keeps_its_digits():
    assert set(put(MdevParent("10000:06:00.0", available={"T": 1}))) == {
        NAME,
        f"{NAME}_pci_10000_06_00_0",
    }


def test_devices_of_another_type_are_not_counted():
    parent = MdevParent(
        "0000:06:00.0", available={"T": 1, "U": 5}, mdevs=(Mdev("a", "T"), Mdev("b", "U"))
    )
    assert put(parent)[f"{NAME}_pci_0000_06_00_0"] == {"VGPU": amount(2)}


def test_a_guest_may_have_less_of_a_parent_than_there_is():
    assert put(CARD, policy=MdevPolicy((MdevType("T", max_per_guest=1),)))[
        f"{NAME}_pci_0000_06_00_0"
    ] == {"VGPU": {**amount(2), "max_unit": 1}}
    assert put(CARD, policy=MdevPolicy((MdevType("T", max_per_guest=9),)))[
        f"{NAME}_pci_0000_06_00_0"
    ] == {"VGPU": amount(2)}


def test_what_is_left_does_not_depend_on_the_order_in_which_parents_are_found():
    policy = MdevPolicy((MdevType("T", max_instances=3),))
    parents = [MdevParent(f"0000:0{bus}:00.0", available={"T": 2}) for bus in (8, 6, 7)]
    expected = {
        NAME: {},
        f"{NAME}_pci_0000_06_00_0": {"VGPU": amount(2)},
        f"{NAME}_pci_0000_07_00_0": {"VGPU": amount(1)},
    }
    assert put(*parents, policy=policy) == put(*reversed(parents), policy=policy) == expected
