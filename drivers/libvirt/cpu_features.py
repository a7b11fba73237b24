"""What a CPU can do: the feature names of libvirt, and the standard traits that they are."""

from collections.abc import Iterable, Sequence

import os_traits

from drivers.libvirt.xml import parse

WHAT = "baselineCPU"

_OFF = frozenset({"disable", "forbid"})

# Features that are called in the traits as libvirt calls them, but for dots and dashes.
_SAME = (
    "3dnow", "abm", "amx-bf16", "amx-int8", "amx-tile", "avx", "avx2", "avx512-vpopcntdq", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq",
    "avx512er", "avx512f", "avx512ifma", "avx512pf", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "bmi2", "f16c", "fma4", "mmx", "mpx",
    "pdpe1gb", "sgx", "sse", "sse2", "sse4.1", "sse4.2", "sse4a", "ssse3", "stibp", "tbm", "xop",
)  # fmt: skip

# Those that are called otherwise.
_OTHER = {
    "aes": ("AESNI",), "amd-no-ssb": ("AMD_NO_SSB",), "amd-ssbd": ("AMD_SSBD",), "bmi1": ("BMI",), "fma": ("FMA3",), "gfni": ("AVX512GFNI",),
    "ibpb": ("AMD_IBPB",), "md-clear": ("INTEL_MD_CLEAR",), "pcid": ("INTEL_PCID",), "pclmulqdq": ("CLMUL",), "pclmuldq": ("CLMUL",), "pni": ("SSE3",),
    "rtm": ("TSX",), "sha-ni": ("SHA",), "spec-ctrl": ("INTEL_SPEC_CTRL",), "ssbd": ("INTEL_SSBD",), "svm": ("SVM", "AMD_SVM"), "vaes": ("AVX512VAES",),
    "virt-ssbd": ("AMD_VIRT_SSBD",), "vmx": ("VMX", "INTEL_VMX"), "vpclmulqdq": ("AVX512VPCLMULQDQ",),
}  # fmt: skip

_X86 = {name: (name.upper().replace(".", "").replace("-", ""),) for name in _SAME} | _OTHER
_STANDARD = frozenset(os_traits.get_traits("HW_CPU_"))


def _of_x86(name: str) -> set[str]:
    return {f"HW_CPU_X86_{one}" for one in _X86.get(name, ())} & _STANDARD


def _of_arm(name: str) -> set[str]:
    """libvirt calls them as the kernel does, and so do the traits."""
    return {f"HW_CPU_AARCH64_{name.upper()}"} & _STANDARD


_ALL = {
    "x86_64": frozenset(trait for name in _X86 for trait in _of_x86(name)),
    "i686": frozenset(trait for name in _X86 for trait in _of_x86(name)),
    "aarch64": frozenset(trait for trait in _STANDARD if trait.startswith("HW_CPU_AARCH64_")),
}


def expanded_features(answers: Sequence[str]) -> frozenset[str]:
    """The features of all CPUs that ``baselineCPU`` was asked for, the ones that it switched off left out.

    :raises DriverError: one of the answers is malformed.
    """
    found = (one for xml in answers for one in parse(xml, WHAT, "cpu").findall("feature"))
    return frozenset(one.get("name", "") for one in found if one.get("policy") not in _OFF) - {""}


def with_flags(features: frozenset[str], flags: Iterable[str]) -> frozenset[str]:
    """``features`` with what the operator adds (``pcid``, ``+pcid``) and takes away (``-pcid``)."""
    words = [flag.strip().lower() for flag in flags]
    added = {word.removeprefix("+") for word in words if not word.startswith("-")}
    return (features | added) - {word[1:] for word in words if word.startswith("-")}


def feature_traits(architecture: str, features: frozenset[str], *, all_told: bool) -> dict[str, bool]:
    """The standard traits of ``features``. ``all_told``: a feature that is not there is known to be missing, so that its trait is false."""
    known = _ALL.get(architecture, frozenset())
    of_one = _of_arm if architecture == "aarch64" else _of_x86
    found = {trait for name in features for trait in of_one(name)} & known
    return {trait: trait in found for trait in sorted(known) if all_told or trait in found}
