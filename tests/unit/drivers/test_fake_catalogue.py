import uuid

import pytest

from agent.driver.interface import (
    NAMESPACE,
    NOVA_SPELLINGS,
    Driver,
    ReportsCapabilities,
    ShapesTree,
    available,
    canonical_name,
)
from agent.errors import DriverError
from agent.model.facts import HostFacts
from drivers.fake.catalogue import baremetal_uuid
from tests.unit.drivers.fakes import (
    EXAMPLES,
    IDENTITY,
    record,
    root_tree,
    shaped,
    started,
)

SIZES = {
    "fake": (1000, 800_000, 600_000),
    "fake.small": (2, 8192, 1028),
    "fake.medium": (10, 8192, 1028),
    "fake.medium_nested": (10, 8192, 1028),
    "fake.predictable_uuid": (2, 8192, 1028),
    "fake.local_identity": (1000, 800_000, 600_000),
    "fake.multi_node": (1000, 800_000, 600_000),
    "fake.pci": (2, 8192, 1028),
    "fake.same_host_migrate": (10, 8192, 1028),
    "fake.bfv_rescue": (10, 8192, 1028),
    "fake.power_event": (2, 8192, 1028),
    "fake.ephemeral_encryption": (10, 8192, 1028),
    "fake.ephemeral_encryption_luks": (10, 8192, 1028),
    "fake.ephemeral_encryption_plain": (10, 8192, 1028),
    "fake.caching": (1000, 800_000, 600_000),
    "fake.numa": (64, 262_144, 4096),
}
OTHERS = {"fake.baremetal", "fake.chaos", "fake.file"}
FAKES = sorted(name for name in available() if name.startswith("fake"))


def test_every_fake_of_the_catalogue_is_an_entry_point():
    assert set(FAKES) == SIZES.keys() | OTHERS


@pytest.mark.parametrize("name", FAKES)
def test_every_fake_loads_starts_and_gives_facts_of_its_nodes(name):
    driver = started(
        name, host_file=str(EXAMPLES / "numa.yaml"), baremetal_nodes=2, chaos_probability=0.0
    )
    assert isinstance(driver, Driver)
    nodes = driver.nodes()
    assert nodes
    for uuid_, node in nodes.items():
        assert str(uuid.UUID(uuid_)) == uuid_
        facts = driver.facts(node)
        assert isinstance(facts, HostFacts)
        assert facts.name == node
        assert not driver.is_node_deleted(node)
    assert driver.is_node_deleted("no such node")
    with pytest.raises(DriverError, match="no such node"):
        driver.facts("no such node")
    driver.stop()


@pytest.mark.parametrize("spelling", sorted(NOVA_SPELLINGS))
def test_every_spelling_of_nova_means_an_installed_fake_or_a_driver_of_another_extra(spelling):
    assert canonical_name(spelling) in {*FAKES, "libvirt", "ironic"}, NAMESPACE


@pytest.mark.parametrize("name", SIZES)
def test_a_host_has_the_size_of_the_catalogue(name):
    facts = started(name).facts("cn1")
    cpus, memory_mib, disk_gib = SIZES[name]
    assert facts.cpu.online == frozenset(range(cpus))
    assert (facts.cpu.architecture, facts.cpu.model, facts.hypervisor_type) == (
        "x86_64",
        "Nehalem",
        "fake",
    )
    assert (facts.memory_mib, facts.disk_gib) == (memory_mib, disk_gib)
    assert not facts.incomplete


@pytest.mark.parametrize(
    "name", ["fake", "fake.small", "fake.local_identity", "fake.numa", "fake.chaos"]
)
def test_the_only_node_has_the_identity_of_the_host(name):
    assert started(name, chaos_probability=0.0).nodes() == {IDENTITY: "cn1"}


def test_a_predictable_uuid_follows_from_the_name():
    assert started("fake.predictable_uuid").nodes() == {
        str(uuid.uuid5(uuid.NAMESPACE_DNS, "cn1")): "cn1"
    }


def test_a_child_that_is_there_already_keeps_its_uuid_and_comes_back_to_its_parent():
    driver = started("fake.medium_nested")
    facts = driver.facts("cn1")
    tree = root_tree(facts)
    tree.new_child("foreign", "cn1")
    kept = tree.new_child("cn1-child", "foreign", "6a3c1d52-2f5c-4a71-8a4f-6f9b3a0f7f1c")
    driver.shape(tree, facts, None)
    assert tree.data("cn1-child").uuid == kept
    assert tree.data("cn1-child").parent_uuid == IDENTITY


def test_shaping_keeps_what_others_put_on_the_root():
    driver = started("fake.baremetal", baremetal_nodes=1)
    facts = driver.facts(baremetal_uuid(0))
    tree = root_tree(facts)
    tree.update_inventory(facts.name, {"CUSTOM_OPS": record(3)})
    tree.add_traits(facts.name, "CUSTOM_T")
    driver.shape(tree, facts, None)
    assert set(tree.data(facts.name).inventory) == {"CUSTOM_OPS", "CUSTOM_BAREMETAL_GOLD"}
    assert tree.data(facts.name).traits == {"CUSTOM_T"}


def test_pci_devices_have_valid_ids_and_know_their_relations():
    devices = {str(device.address): device for device in started("fake.pci").facts("cn1").pci}
    assert set(devices) == {
        f"0000:0{bus}:00.{function}" for bus in (1, 2, 3) for function in (0, 1)
    }
    for bus in (1, 2, 3):
        card, function = devices[f"0000:0{bus}:00.0"], devices[f"0000:0{bus}:00.1"]
        assert card.is_physical_function
        assert card.virtual_functions == (function.address,)
        assert function.physical_function == card.address
    for device in devices.values():
        assert device.numa_node == 0
        assert all(
            len(text) == 4 and int(text, 16) for text in (device.vendor_id, device.product_id)
        )


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("fake", set()),
        ("fake.power_event", set()),
        ("fake.caching", set()),
        ("fake.same_host_migrate", {"COMPUTE_SAME_HOST_COLD_MIGRATE"}),
        ("fake.bfv_rescue", {"COMPUTE_RESCUE_BFV"}),
        ("fake.ephemeral_encryption", {"COMPUTE_EPHEMERAL_ENCRYPTION"}),
        (
            "fake.ephemeral_encryption_luks",
            {"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"},
        ),
        (
            "fake.ephemeral_encryption_plain",
            {"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN"},
        ),
    ],
)
def test_a_variant_has_its_capability_and_takes_away_those_of_the_others(name, traits):
    import os_traits

    plain, varied = started("fake").capabilities_as_traits(), started(name).capabilities_as_traits()
    assert varied.keys() == plain.keys() <= set(os_traits.get_traits("COMPUTE_"))
    assert {trait for trait in varied if varied[trait] != plain[trait]} == traits
    assert all(varied[trait] for trait in traits)


def test_the_numa_host_has_four_cells_on_two_sockets_with_two_threads_a_core():
    facts = started("fake.numa").facts("cn1")
    cells = facts.numa.cells
    assert [cell.socket for cell in cells] == [0, 0, 1, 1]
    assert frozenset().union(*(cell.cpus for cell in cells)) == facts.cpu.online
    assert sum(len(cell.cpus) for cell in cells) == 64
    for cell in cells:
        assert {len(core) for core in cell.siblings} == {2}
        assert frozenset().union(*cell.siblings) == cell.cpus
        assert {pool.size_kib for pool in cell.pages} == {4, 2048, 1048576}
        assert sum(pool.size_kib * pool.total for pool in cell.pages) == cell.memory_mib * 1024
        assert all(
            cells[other].distances[cell.id] == distance
            for other, distance in cell.distances.items()
        )
    assert facts.numa.memory_mib == facts.memory_mib
    assert {device.numa_node for device in facts.pci} == {0, 2}


def test_baremetal_nodes_are_one_unit_of_one_class_and_are_named_after_their_uuid():
    driver = started("fake.baremetal", baremetal_nodes=3)
    nodes = driver.nodes()
    assert len(nodes) == 3
    assert all(name == uuid_ for uuid_, name in nodes.items())
    assert nodes.keys() < started("fake.baremetal", baremetal_nodes=4).nodes().keys()
    name = next(iter(nodes))
    facts = driver.facts(name)
    assert (facts.cpu, facts.memory_mib, facts.disk_gib, facts.numa, facts.pci) == (None,) * 5
    assert shaped(driver, facts).data(name).inventory == {"CUSTOM_BAREMETAL_GOLD": record(1)}
    assert not isinstance(driver, ReportsCapabilities)


def test_only_hosts_with_providers_of_their_own_shape_the_tree():
    assert not isinstance(started("fake"), ShapesTree)
    with pytest.raises(DriverError, match="do not come from a fake driver"):
        started("fake.medium_nested").shape(
            root_tree(HostFacts("cn1", 0.0, "x")), HostFacts("cn1", 0.0, "x"), None
        )
