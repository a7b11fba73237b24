import pytest

from agent.errors import DriverError
from drivers.ironic.node import BareMetalNode, facts_of
from tests.unit.drivers.ironic.samples import INSTANCE, NODE, document, node


def test_a_node_has_what_ironic_tells_of_it():
    one = node(
        traits=["CUSTOM_A", "HW_CPU_X86_VMX"],
        instance_uuid=INSTANCE,
        properties={"cpus": 4},
        maintenance=True,
    )
    assert (one.uuid, one.power_state, one.provision_state, one.maintenance) == (
        NODE,
        "power off",
        "available",
        True,
    )
    assert (one.instance, one.resource_class, one.traits) == (
        INSTANCE,
        "baremetal-gold",
        frozenset({"CUSTOM_A", "HW_CPU_X86_VMX"}),
    )
    assert one.properties.cpus == 4


def test_null_is_none_and_no_traits_are_none():
    one = node(
        power_state=None, provision_state=None, resource_class=None, traits=None, instance_uuid=""
    )
    assert (one.power_state, one.provision_state, one.resource_class, one.instance, one.traits) == (
        None,
        None,
        None,
        None,
        frozenset(),
    )


@pytest.mark.parametrize(
    "nonsense",
    [None, "node", {}, {"uuid": 7}, {"uuid": "no uuid"}],
    ids=["null", "text", "empty", "number", "word"],
)
def test_what_is_no_node_is_refused(nonsense):
    with pytest.raises(DriverError, match="is no node"):
        BareMetalNode.of(nonsense)


def test_a_node_of_which_ironic_keeps_something_back_is_refused_by_name():
    hidden = {
        name: value for name, value in document().items() if name not in ("traits", "maintenance")
    }
    with pytest.raises(DriverError, match="does not report maintenance, traits of node"):
        BareMetalNode.of(hidden)


def test_facts_name_the_class_as_placement_knows_it():
    facts = facts_of(node(resource_class="baremetal--Gold.2"), 5.0, skip_in_use=False)
    assert (facts.name, facts.resource_class, facts.reserved, facts.taken_at, facts.exclusive) == (
        NODE,
        "CUSTOM_BAREMETAL_GOLD_2",
        0,
        5.0,
        True,
    )
    assert (facts.cpu, facts.memory_mib, facts.disk_gib, facts.numa) == (None, None, None, None)
