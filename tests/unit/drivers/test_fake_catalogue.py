import uuid

import pytest

from agent.driver.interface import (
    NAMESPACE,
    NOVA_SPELLINGS,
    ShapesTree,
    available,
    canonical_name,
)
from agent.errors import DriverError
from agent.model.facts import HostFacts
from tests.unit.drivers.fakes import (
    root_tree,
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


def test_a_predictable_uuid_follows_from_the_name():
    assert started("fake.predictable_uuid").nodes() == {
        str(uuid.uuid5(uuid.NAMESPACE_DNS, "cn1")): "cn1"
    }


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


def test_only_hosts_with_providers_of_their_own_shape_the_tree():
    assert not isinstance(started("fake"), ShapesTree)
    with pytest.raises(DriverError, match="do not come from a fake driver"):
        started("fake.medium_nested").shape(
            root_tree(HostFacts("cn1", 0.0, "x")), HostFacts("cn1", 0.0, "x"), None
        )
