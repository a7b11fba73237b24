"""The query of nova's scheduler, from flavor and image."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.explain.constraints import constraints_of, without_constraints
from agent.explain.host_answer import BudgetSpent, smallest_sets
from agent.explain.scheduler_query import property_faults, scheduler_query, spec_faults
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


# --- extra specs and properties that nova ignores, and those that it knows or may know ---


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("hw:cpu_polcy", "dedicated", "did you mean hw:cpu_policy?"),
        ("resource:VCPU", "2", "did you mean resources:?"),
        ("resources:VCPUS", "2", "did you mean VCPU?"),
        ("resources:NONSENSE", "2", "no resource class has that name"),
        ("resources:VCPU", "abc", "no whole number of at least 0"),
        ("resources1:VCPU", "-1", "no whole number of at least 0"),
        ("trait:HW_CPU_X86_AVX", "requird", "neither required nor forbidden"),
        ("trait:a&b", "c=required", "neither required nor forbidden"),
        ("group_policy", "isolat", "not one of none, isolate"),
        ("pci_passthrough:alais", "gpu:1", "did you mean pci_passthrough:alias?"),
    ],
)
def test_an_extra_spec_that_nova_ignores_is_told(key: str, value: str, why: str) -> None:
    (fault,) = spec_faults({key: value, "hw:cpu_policy": "dedicated"})
    assert fault.startswith(f"extra spec {key}={value}: ")
    assert why in fault


@pytest.mark.parametrize(
    "spec",
    [
        "hw:numa_cpus.0=1",
        "hw:numa_mem.1=512",
        "hw_rng:allowed=true",
        "quota:disk_read_bytes_sec=1",
        "aggregate_instance_extra_specs:ssd=true",
        "os:secure_boot=required",
        "resources:CUSTOM_GPU=0",
        "resources_NET-1:VCPU=1",
        "trait2:CUSTOM_A=forbidden",
        "group_policy=none",
        "of somebody else's=1",
    ],
)
def test_names_that_nova_or_others_know_are_no_faults(spec: str) -> None:
    key, _, value = spec.partition("=")
    assert list(spec_faults({key: value})) == []


def test_properties_of_an_image_are_looked_at_too() -> None:
    given = {
        "hw_cpu_polcy": "dedicated",
        "trait:HW_CPU_X86_AVX": "forbidden",
        "hw_vif_model": "virtio",
        "os_distro": "debian",
        "trait:HW_CPU_X86_AVX2": "required",
    }
    assert list(property_faults(given)) == [
        "image property hw_cpu_polcy=dedicated: nova does not know it; did you mean hw_cpu_policy?",
        "image property trait:HW_CPU_X86_AVX=forbidden: the value is not required",
    ]


def test_hostile_text_is_cut_and_stays_one_line() -> None:
    (fault,) = spec_faults({"resources:VCPU": "\n\x1b[31m" + "9" * 10_000 + "x"})
    assert len(fault) < 300
    assert "\n" not in fault
    assert "\x1b" not in fault


# --- the smallest sets of conditions without which a request fits ---


CONDITIONS = tuple("abcdef")
Fits = Callable[[frozenset[str]], bool]
SOME = st.lists(
    st.frozensets(st.sampled_from(CONDITIONS), min_size=1, max_size=4), min_size=1, max_size=5
)


def fits_without(*conflicts: frozenset[str]) -> Fits:
    """It fits once a condition of each conflict is left out."""
    return lambda left_out: all(left_out & conflict for conflict in conflicts)


def smallest(fits: Fits) -> set[frozenset[str]]:
    """By trying all sets."""
    for size in range(1, 6):
        if found := {
            frozenset(some) for some in combinations(CONDITIONS, size) if fits(frozenset(some))
        }:
            return found
    return set()


@given(SOME)
def test_what_is_known_to_be_unsatisfiable_changes_nothing(
    conflicts: list[frozenset[str]],
) -> None:
    fits = fits_without(*conflicts)
    assert set(smallest_sets(CONDITIONS, fits, conflicts[:2]).sets) == smallest(fits)


@given(SOME, SOME)
def test_each_part_of_a_set_is_needed_whatever_the_caller_believes(
    conflicts: list[frozenset[str]], believed: list[frozenset[str]]
) -> None:
    fits = fits_without(*conflicts)
    for left_out in smallest_sets(CONDITIONS, fits, believed).sets:
        assert fits(left_out)
        assert not any(fits(left_out - {condition}) for condition in left_out)


@pytest.mark.parametrize("most", range(12))
def test_a_search_that_is_cut_says_so_and_names_only_what_it_has_checked(most: int) -> None:
    asked: list[frozenset[str]] = []
    fits = fits_without(frozenset("ab"), frozenset("cd"))

    def bounded(left_out: frozenset[str]) -> bool:
        if len(asked) >= most:
            raise BudgetSpent
        asked.append(left_out)
        return fits(left_out)

    found = smallest_sets(CONDITIONS, bounded)
    assert not found.complete
    assert all(fits(left_out) and len(left_out) == 2 for left_out in found.sets)
    assert len(asked) == len(set(asked))


def test_what_is_known_saves_questions() -> None:
    asked: list[frozenset[str]] = []
    fits = fits_without(frozenset("a"), frozenset("b"))

    def counted(left_out: frozenset[str]) -> bool:
        asked.append(left_out)
        return fits(left_out)

    found = smallest_sets(CONDITIONS, counted, [frozenset("a"), frozenset("b")])
    assert found.sets == (frozenset("ab"),)
    assert len(asked) == 3
