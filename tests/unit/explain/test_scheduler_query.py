"""The query of nova's scheduler, from flavor and image."""

from typing import Any

import pytest

from agent.explain.constraints import constraints_of, without_constraints
from agent.explain.scheduler_query import scheduler_query
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.pci.device_request import Aliases, aliases
from agent.placement.allocations.candidates import parse_query
from agent.tracker.errors import FlavorImageConflict, InvalidDevices, InvalidTrackerRequest
from agent.tracker.stored_state import InstanceClaim
from tests.support.tracking import uuid_of

DISABLED = "!COMPUTE_STATUS_DISABLED"
GPU, _ = aliases(
    ['{"name": "gpu", "vendor_id": "10de", "product_id": "1db4", "traits": "big"}'], report=True
)


def words(
    specs: dict[str, str],
    image: dict[str, str] | None = None,
    known: Aliases | None = None,
    **more: Any,
) -> dict[str, str]:
    """The query for a guest of 4 CPUs, 1024 MiB and 10 GiB."""
    reported = more.pop("reported", True)
    volume_backed = more.pop("volume_backed", False)
    flavor = Flavor("f", "F", 4, 1024, **{"root_gb": 10, **more}, extra_specs=specs)
    instance = Instance(
        uuid=ConsumerUuid(uuid_of("i")),
        project_id="p",
        user_id="u",
        flavor=flavor,
        image_properties=image or {},
        volume_backed=volume_backed,
    )
    claim = InstanceClaim(id=uuid_of("c"), node=ProviderUuid(uuid_of("n")), instance=instance)
    found = scheduler_query(claim, known or {}, devices_in_placement=reported)
    pairs = dict(found.query.pairs())
    assert pairs["limit"] == "1000"
    assert DISABLED in pairs["root_required"]
    # What every query has.
    return {key: value for key, value in pairs.items() if key != "limit" and value != DISABLED}


@pytest.mark.parametrize(
    ("specs", "image", "expected"),
    [
        ({}, {}, {"resources": "DISK_GB:10,MEMORY_MB:1024,VCPU:4"}),
        ({"hw:cpu_policy": "dedicated"}, {}, {"resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:4"}),
        ({}, {"hw_cpu_policy": "dedicated"}, {"resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:4"}),
        (
            {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
            {},
            {"resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:5"},
        ),
        (
            {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-2"},
            {},
            {"resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:3,VCPU:1"},
        ),
        (
            {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
            {},
            {
                "resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:4",
                "required": "HW_CPU_HYPERTHREADING",
            },
        ),
        (
            {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
            {},
            {
                "resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:4",
                "required": "!HW_CPU_HYPERTHREADING",
            },
        ),
        (
            {"resources:PCPU": "4"},
            {},
            {"resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:4"},
        ),
        (
            {
                "resources:VCPU": "0",
                "resources:MEMORY_MB": "0",
                "resources:DISK_GB": "0",
                "resources:CUSTOM_BAREMETAL": "1",
                "trait:CUSTOM_GOLD": "required",
            },
            {},
            {"resources": "CUSTOM_BAREMETAL:1", "required": "CUSTOM_GOLD"},
        ),
        (
            {
                "resources1:PCPU": "2",
                "trait1:HW_NUMA_ROOT": "required",
                "resources2:PCPU": "2",
                "hw:numa_nodes": "2",
                "group_policy": "none",
            },
            {},
            {
                "resources": "DISK_GB:10,MEMORY_MB:1024",
                "resources1": "PCPU:2",
                "required1": "HW_NUMA_ROOT",
                "resources2": "PCPU:2",
                "group_policy": "none",
            },
        ),
        (
            {
                "resources_N:SRIOV_NET_VF": "1",
                "resources_M:SRIOV_NET_VF": "1",
                "group_policy": "isolate",
            },
            {},
            {
                "resources": "DISK_GB:10,MEMORY_MB:1024,VCPU:4",
                "resources_N": "SRIOV_NET_VF:1",
                "resources_M": "SRIOV_NET_VF:1",
                "group_policy": "isolate",
            },
        ),
        (
            {
                "trait:HW_CPU_X86_AVX2": "forbidden",
                "hw:pmem": "4gb,4gb",
                "hw:mem_encryption": "true",
            },
            {"trait:COMPUTE_TRUSTED_CERTS": "required"},
            {
                "resources": "CUSTOM_PMEM_NAMESPACE_4GB:2,DISK_GB:10,MEMORY_MB:1024,"
                "MEM_ENCRYPTION_CONTEXT:1,VCPU:4",
                "required": "COMPUTE_TRUSTED_CERTS,HW_CPU_X86_AMD_SEV,!HW_CPU_X86_AVX2",
            },
        ),
        (
            {"hw:pmem": "4gb-a", "hw:mem_encryption": "true"},
            {"hw_mem_encryption_model": "intel-tdx"},
            {
                "resources": "CUSTOM_PMEM_NAMESPACE_4GB_A:1,DISK_GB:10,MEMORY_MB:1024,"
                "MEM_ENCRYPTION_CONTEXT:1,VCPU:4",
                "required": "HW_CPU_X86_INTEL_TDX",
            },
        ),
        (
            {"hw:tpm_version": "2.0", "hw:maxphysaddr_mode": "emulate"},
            {"hw_firmware_stateless": "yes", "hw_firmware_type": "uefi"},
            {
                "resources": "DISK_GB:10,MEMORY_MB:1024,VCPU:4",
                "required": "COMPUTE_ADDRESS_SPACE_EMULATED,COMPUTE_SECURITY_STATELESS_FIRMWARE,"
                "COMPUTE_SECURITY_TPM_2_0,COMPUTE_SECURITY_TPM_TIS",
                "root_required": "COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,"
                "!COMPUTE_STATUS_DISABLED",
            },
        ),
        (
            {"accel:device_profile": "fpga", "hw:ephemeral_encryption": "1"},
            {"hw_ephemeral_encryption_format": "luks", "hw_sound_model": "virtio"},
            {
                "resources": "DISK_GB:10,MEMORY_MB:1024,VCPU:4",
                "root_required": "COMPUTE_ACCELERATORS,COMPUTE_EPHEMERAL_ENCRYPTION,"
                "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,COMPUTE_SOUND_MODEL_VIRTIO,"
                "!COMPUTE_STATUS_DISABLED",
            },
        ),
        (
            {"hw:cpu_policy": "dedicated", "resources:PCPU": "0", "resources:VCPU": "0"},
            {},
            {"resources": "DISK_GB:10,MEMORY_MB:1024,PCPU:4"},
        ),
        (
            {"resources:NOTHING": "1", "resources:CUSTOM_A": "-1", "resources:VGPU": " +2"},
            {},
            {"resources": "DISK_GB:10,MEMORY_MB:1024,VCPU:4,VGPU:2"},
        ),
        (
            {"group_policy": "any"},
            {},
            {"resources": "DISK_GB:10,MEMORY_MB:1024,VCPU:4"},
        ),
    ],
)
def test_the_query_follows_from_flavor_and_image(
    specs: dict[str, str], image: dict[str, str], expected: dict[str, str]
) -> None:
    assert words(specs, image) == expected


def test_a_contradiction_and_an_unknown_alias_are_refused() -> None:
    with pytest.raises(FlavorImageConflict):
        words({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"})
    with pytest.raises(InvalidDevices):
        words({"pci_passthrough:alias": "tpu:1"})


@pytest.mark.parametrize(
    ("specs", "image", "error"),
    [
        ({"hw:mem_encryption": "no"}, {"hw_mem_encryption": "yes"}, FlavorImageConflict),
        ({"hw:tpm_version": "2.0"}, {"hw_tpm_version": "1.2"}, FlavorImageConflict),
        ({"os:secure_boot": "required"}, {"os_secure_boot": "disabled"}, FlavorImageConflict),
        ({"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"}, {}, InvalidTrackerRequest),
        ({"hw:tpm_version": "3"}, {}, InvalidTrackerRequest),
        ({"hw:maxphysaddr_mode": "\x1b"}, {}, InvalidTrackerRequest),
    ],
)
def test_features_that_contradict_each_other_are_refused(
    specs: dict[str, str], image: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error) as found:
        words(specs, image)
    assert "\x1b" not in str(found.value)


def test_groups_of_the_flavor_without_a_policy_are_refused_by_placement() -> None:
    found = words({"resources1:VGPU": "1", "resources2:VGPU": "1"})
    assert "group_policy" not in found
    # One group of the flavor and one of a device get the policy from nova.
    specs = {"resources1:VGPU": "1", "pci_passthrough:alias": "gpu:1"}
    assert words(specs, known=GPU)["group_policy"] == "none"


def test_each_constraint_can_be_left_out() -> None:
    query = parse_query(
        [
            "resources=VCPU:2,MEMORY_MB:512",
            "required=A,!B",
            "resources_N=SRIOV_NET_VF:1",
            "required_R=HW_NUMA_ROOT",
            "same_subtree=_N,_R",
            "group_policy=isolate",
            "root_required=C,!D",
        ]
    )
    texts = {}
    for constraint in constraints_of(query):
        changed = without_constraints(query, [constraint])
        assert changed is not None
        assert not list(changed.problems()), constraint
        gone = {*query.pairs()} - {*changed.pairs()}
        texts[constraint.text] = sorted(key for key, _ in gone)
    assert texts == {
        "MEMORY_MB:512": ["resources"],
        "VCPU:2": ["resources"],
        "trait A required": ["required"],
        "trait B forbidden": ["required"],
        "group _N: SRIOV_NET_VF:1": ["required_R", "resources_N", "same_subtree"],
        "group _R: trait HW_NUMA_ROOT required": ["required_R", "same_subtree"],
        "groups _N, _R in the same subtree": ["required_R", "same_subtree"],
        "each group on a provider of its own": ["group_policy"],
        "trait C required of the root": ["root_required"],
        "trait D forbidden to the root": ["root_required"],
    }


def test_a_query_without_resources_cannot_be_asked() -> None:
    query = parse_query(["resources=VCPU:2", "required=A"])
    (cpus, _) = constraints_of(query)
    assert without_constraints(query, [cpus]) is None
