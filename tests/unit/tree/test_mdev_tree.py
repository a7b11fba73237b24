"""Where mediated devices are counted, and what is left of them."""

from agent.model.host_units import Mdev, MdevParent
from agent.tree.children import put_mdevs
from agent.tree.node_trees import NodeTrees
from agent.tree.policy import MdevPolicy, MdevType
from tests.unit.tree.nodes import NAME, ROOT, amount, contents, facts, root_only

T = MdevPolicy((MdevType("T"),))
GPU = MdevParent("0000:06:00.0", available={"T": 2})


def put(*parents, policy=T, present=None, tree=None, **changes):
    tree = tree or root_only()
    trees = NodeTrees(tree, present or root_only(), ROOT)
    put_mdevs(trees, facts(mdev=parents, **changes), policy)
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
    assert put(GPU, policy=MdevPolicy((MdevType("T", max_per_guest=1),)))[
        f"{NAME}_pci_0000_06_00_0"
    ] == {"VGPU": {**amount(2), "max_unit": 1}}
    assert put(GPU, policy=MdevPolicy((MdevType("T", max_per_guest=9),)))[
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


def test_of_what_could_not_be_read_only_the_classes_of_mediated_devices_stay():
    present = root_only()
    for name, traits in (
        (f"{NAME}_pci_0000_06_00_0", ()),
        (f"{NAME}_0000:09:00.0", ("COMPUTE_MANAGED_PCI_DEVICE",)),
        ("other", ()),
    ):
        present.new_child(name, ROOT)
        present.update_inventory(name, {"VGPU": amount(4), "CUSTOM_LICENSE": amount(1)})
        present.add_traits(name, *traits)
    assert put(present=present, incomplete=["mdev"]) == {
        NAME: {},
        f"{NAME}_pci_0000_06_00_0": {"VGPU": amount(4)},
    }
