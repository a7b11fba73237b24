"""The standard traits of CPUs and emulators."""

import os_traits
import pytest

from agent.errors import DriverError
from agent.model.devices import EncryptionFacts
from agent.tree.children import offered
from agent.tree.policy import EncryptionPolicy
from drivers.libvirt.domain_capabilities import Emulator, Sev, read_emulators, read_encryption
from drivers.libvirt.raw_capabilities import KernelAnswer
from drivers.libvirt.traits import (
    compute_capabilities,
    emulator_traits,
    expanded_features,
    feature_traits,
    with_flags,
)
from tests.unit.drivers.libvirt.libvirt_answers import answers, fixture

OLD, NEW = (8_000_000, 6_002_000), (10_004_000, 8_002_000)


def emulators(*texts: str):
    reading = read_emulators({("x86_64", str(number)): text for number, text in enumerate(texts)})
    assert reading.faults == ()
    return reading.value


def true(traits: dict[str, bool], prefix: str = "") -> set[str]:
    return {
        name.removeprefix(prefix) for name, has in traits.items() if has and name.startswith(prefix)
    }


def device(xml: str, architecture: str = "x86_64") -> str:
    return f"<domainCapabilities><arch>{architecture}</arch><devices>{xml}</devices></domainCapabilities>"


@pytest.mark.parametrize(
    ("feature", "traits"),
    [
        ("avx2", {"AVX2"}),
        ("sse4.1", {"SSE41"}),
        ("avx512-vpopcntdq", {"AVX512VPOPCNTDQ"}),
        ("pni", {"SSE3"}),
        ("vmx", {"VMX", "INTEL_VMX"}),
        ("svm", {"SVM", "AMD_SVM"}),
        ("aes", {"AESNI"}),
        ("bmi1", {"BMI"}),
        ("ibpb", {"AMD_IBPB"}),
        ("amx-tile", {"AMXTILE"}),
        ("sha-ni", {"SHA"}),
        ("hypervisor", set()),
        ("AVX2", set()),
    ],
)
def test_feature_is_the_traits_that_are_called_otherwise(feature, traits):
    assert (
        true(feature_traits("x86_64", frozenset({feature}), is_complete=True), "HW_CPU_X86_")
        == traits
    )


def test_every_trait_of_a_feature_is_a_standard_one_and_the_others_are_false():
    traits = feature_traits("x86_64", frozenset({"mmx"}), is_complete=True)
    assert set(traits) <= set(os_traits.get_traits("HW_CPU_X86_"))
    assert len(traits) > 50
    assert true(traits) == {os_traits.HW_CPU_X86_MMX}


def test_features_that_nobody_wrote_out_make_no_trait_false():
    assert feature_traits("x86_64", frozenset({"mmx", "ht"}), is_complete=False) == {
        os_traits.HW_CPU_X86_MMX: True
    }


def test_arm_has_traits_of_its_own_and_others_none():
    assert true(
        feature_traits("aarch64", frozenset({"asimd", "sve", "avx2"}), is_complete=True)
    ) == {
        "HW_CPU_AARCH64_ASIMD",
        "HW_CPU_AARCH64_SVE",
    }
    assert feature_traits("s390x", frozenset({"vx", "avx2"}), is_complete=True) == {}


def test_expanded_features_are_those_of_all_models_but_the_ones_switched_off():
    one = (
        "<cpu><feature name='a'/><feature policy='disable' name='b'/><feature policy='force' "
        "name='c'/><feature/></cpu>"
    )
    assert expanded_features(
        [one, "<cpu><feature policy='forbid' name='d'/><feature policy='require' name='e'/></cpu>"]
    ) == {"a", "c", "e"}
    with pytest.raises(DriverError, match="baselineCPU: malformed XML"):
        expanded_features([one, "<cpu>"])


def test_operators_flags_add_and_take_away():
    assert with_flags(frozenset({"a", "b"}), [" PCID", "+vmx", "-a", "-unknown"]) == {
        "b",
        "pcid",
        "vmx",
    }


def test_what_domain_capabilities_list_is_true_and_the_rest_of_a_group_false():
    traits = emulator_traits(emulators(fixture("emulator.xml")), *NEW, vtpm=True)
    assert true(traits, "COMPUTE_STORAGE_BUS_") == {"FDC", "SCSI", "VIRTIO", "SATA"}
    assert traits["COMPUTE_STORAGE_BUS_IDE"] is False
    assert true(traits, "COMPUTE_GRAPHICS_MODEL_") == {"VGA", "QXL", "VIRTIO", "NONE"}
    assert true(traits, "COMPUTE_SECURITY_TPM_") == {"TIS", "CRB", "2_0"}
    assert traits["COMPUTE_SECURITY_TPM_1_2"] is False
    assert true(traits, "COMPUTE_ARCH_") == {"X86_64"}
    assert traits["COMPUTE_NET_VIRTIO_PACKED"]
    assert set(traits) <= set(os_traits.get_traits("COMPUTE_"))


def test_what_is_not_listed_follows_from_the_versions():
    old, new = (
        emulator_traits(emulators(fixture("emulator.xml")), *versions, vtpm=True)
        for versions in (OLD, NEW)
    )
    assert true(new, "COMPUTE_NET_VIF_MODEL_") - true(old, "COMPUTE_NET_VIF_MODEL_") == {"IGB"}
    assert true(new, "COMPUTE_SOUND_MODEL_") - true(old, "COMPUTE_SOUND_MODEL_") == {"VIRTIO"}
    assert {"VIRTIO", "E1000E", "SPAPR_VLAN"} <= true(old, "COMPUTE_NET_VIF_MODEL_")
    assert true(old, "COMPUTE_VIOMMU_MODEL_") == {"INTEL", "AUTO"}
    assert true(new, "COMPUTE_VIOMMU_MODEL_") == {"INTEL", "VIRTIO", "AUTO"}
    assert "COMPUTE_NET_VIF_MODEL_SRIOV" not in new


def test_newer_libvirts_list_more_and_are_believed():
    lists = "".join(
        f"<{name} supported='yes'><enum name='model'><value>{value}</value></enum></{name}>"
        for name, value in (("interface", "e1000"), ("sound", "usb"), ("iommu", "smmuv3"))
    )
    traits = emulator_traits(emulators(device(lists)), *NEW, vtpm=True)
    assert true(traits, "COMPUTE_NET_VIF_MODEL_") == {"E1000"}
    assert true(traits, "COMPUTE_SOUND_MODEL_") == {"USB"}
    assert true(traits, "COMPUTE_VIOMMU_MODEL_") == {"SMMUV3", "AUTO"}


def test_what_one_of_the_emulators_has_can_be_had():
    ide = "<disk supported='yes'><enum name='bus'><value>ide</value></enum></disk>"
    traits = emulator_traits(
        emulators(fixture("emulator.xml"), device(ide, "aarch64")), *NEW, vtpm=True
    )
    assert {"IDE", "SATA"} <= true(traits, "COMPUTE_STORAGE_BUS_")
    assert true(traits, "COMPUTE_ARCH_") == {"X86_64", "AARCH64"}
    assert {"INTEL", "SMMUV3"} <= true(traits, "COMPUTE_VIOMMU_MODEL_")


def test_a_device_that_is_not_supported_is_none_and_one_that_is_not_listed_is_not_told():
    traits = emulator_traits(emulators(device("<disk supported='no'/>")), *NEW, vtpm=True)
    assert traits["COMPUTE_STORAGE_BUS_VIRTIO"] is False
    assert "COMPUTE_GRAPHICS_MODEL_VGA" not in traits


def test_one_emulator_that_cannot_be_understood_is_set_aside():
    reading = read_emulators(
        {("x86_64", "pc"): "<domainCapabilities>", ("x86_64", "q35"): fixture("emulator.xml")}
    )
    assert [one.architecture for one in reading.value] == ["x86_64"]
    assert len(reading.faults) == 1
    assert reading.faults[0].startswith("domain capabilities of x86_64 pc: malformed XML")


# --- what a compute service on libvirt can do ---


LOADER = (
    "<domainCapabilities><os><loader supported='yes'><enum "
    "name='secure'>{}</enum></loader></os></domainCapabilities>"
)


def secure(*values):
    return LOADER.format("".join(f"<value>{one}</value>" for one in values))


@pytest.mark.parametrize(
    ("version", "firmware", "addresses"),
    [(8_000_000, False, False), (8_006_000, True, False), (8_007_000, True, True)],
)
def test_what_came_with_a_later_libvirt(version, firmware, addresses):
    found = compute_capabilities(answers(libvirt_version=version), [], file_backed_memory=False)
    assert found["COMPUTE_SECURITY_STATELESS_FIRMWARE"] is firmware
    assert (
        found["COMPUTE_ADDRESS_SPACE_PASSTHROUGH"]
        is found["COMPUTE_ADDRESS_SPACE_EMULATED"]
        is addresses
    )
    assert found["COMPUTE_TRUSTED_CERTS"] is True
    assert found["COMPUTE_SAME_HOST_COLD_MIGRATE"] is False


def test_secure_boot_is_what_some_emulator_says_and_unknown_where_none_does():
    trait = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
    both = {("x86_64", "pc"): secure("no"), ("x86_64", "q35"): secure("no", "yes")}
    assert (
        compute_capabilities(answers(domain_capabilities=both), [], file_backed_memory=False)[trait]
        is True
    )
    assert (
        compute_capabilities(
            answers(
                domain_capabilities={("x86_64", "pc"): secure("no"), ("x86_64", "q35"): "<broken"}
            ),
            [],
            file_backed_memory=False,
        )[trait]
        is False
    )
    assert trait not in compute_capabilities(
        answers(domain_capabilities={}), [], file_backed_memory=False
    )


# --- encrypted guests: what the kernel switched on, and what libvirt can give ---


SEV = Emulator("x86_64", sev=Sev(15, 100))
ON = {"sev": "Y\n", "sev_es": "1"}


UNCOUNTED = Emulator("x86_64", sev=Sev(None, None))
ALL = {**ON, "sev_snp": "Y", "tdx": "Y"}


@pytest.mark.parametrize(
    ("switches", "emulators", "capacities", "contexts"),
    [
        (ON, (SEV,), None, {"sev": 15, "sev_es": 100}),
        # What libvirt does not count the kernel does.
        (ON, (UNCOUNTED,), "sev 9\nsev_es 410\n", {"sev": 9, "sev_es": 410}),
        (ON, (UNCOUNTED,), "sev 9\n", {"sev": 9, "sev_es": 0}),
        (ON, (UNCOUNTED,), None, {"sev": None, "sev_es": None}),
        # Without domain capabilities the kernel alone is believed.
        (ON, (), "sev 9\nsev_es 410", {"sev": 9, "sev_es": 410}),
        # A newer libvirt says what it can protect.
        (
            ALL,
            (Emulator("x86_64", sev=Sev(1, 2), launch_security=frozenset({"sev"})),),
            None,
            {"sev": 1, "sev_es": 2},
        ),
        (
            ALL,
            (Emulator("x86_64", launch_security=frozenset({"tdx"})),),
            "tdx 31",
            {"tdx": 31},
        ),
        # Contexts of SEV are none of TDX.
        ({"tdx": "Y"}, (SEV,), "tdx 31", {"tdx": 31}),
        # No parameter, off, no emulator that has it, no protection that is listed.
        ({}, (SEV,), None, {}),
        ({"sev": "N", "sev_es": "0"}, (SEV,), None, {}),
        (ON, (Emulator("x86_64"),), None, {}),
        (ON, (Emulator("x86_64", sev=Sev(1, 1), launch_security=frozenset()),), None, {}),
    ],
)
def test_a_technique_has_the_contexts_that_libvirt_or_the_kernel_says(
    switches, emulators, capacities, contexts
):
    reading = read_encryption(KernelAnswer(switches, capacities), emulators)
    assert reading.faults == ()
    assert (reading.value.contexts if reading.value else {}) == contexts


def test_sev_snp_has_the_contexts_of_sev_es_which_is_left_none():
    reading = read_encryption(KernelAnswer({**ON, "sev_snp": "Y"}), (SEV,))
    assert offered(EncryptionFacts(reading.value.contexts), EncryptionPolicy()) == {
        "sev": 15,
        "sev_snp": 100,
    }


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (KernelAnswer({"sev": "maybe"}), "the kernel's parameter sev: 'maybe' is neither Y nor N"),
        (KernelAnswer(ON, "sev"), "misc.capacity: 'sev' is not a list"),
    ],
    ids=("switch", "capacity"),
)
def test_texts_of_the_kernel_that_make_no_sense_are_named(answer, what):
    reading = read_encryption(answer, (SEV,))
    assert reading.value is None
    assert reading.faults[0].startswith(what)
