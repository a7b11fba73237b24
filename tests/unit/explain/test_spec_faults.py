"""Extra specs and properties that nova ignores, and those that it knows or may know."""

import pytest

from agent.explain.spec_faults import property_faults, spec_faults


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
