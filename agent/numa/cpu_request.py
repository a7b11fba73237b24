"""CPU request of a guest: policies for pinning, threads and emulator, and its dedicated and
realtime CPUs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.model.instance import CpuPolicy, EmulatorPolicy, ThreadPolicy
from agent.numa.flavor_and_image import FlavorAndImage, GuestRequestError, boolean, mask

CPU_POLICIES: tuple[CpuPolicy, ...] = ("shared", "dedicated", "mixed")
THREAD_POLICIES: tuple[ThreadPolicy, ...] = ("prefer", "require", "isolate")
EMULATOR_POLICIES: tuple[EmulatorPolicy, ...] = ("share", "isolate")
HYPERTHREADING = "trait:HW_CPU_HYPERTHREADING"
# The unnumbered group and the numbered ones; other groups, resources_X:PCPU, matter to the
# scheduler only.
SIZED = re.compile(r"resources(?:[1-9][0-9]*)?:([VP]CPU)")
HYPERTHREADED = re.compile(r"trait(?:[1-9][0-9]*)?:HW_CPU_HYPERTHREADING")
AMOUNT = re.compile(r"\s*[+-]?[0-9]+\s*")
PINNED = "with hw:cpu_policy dedicated or mixed"


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """The CPUs that a guest requests."""

    policy: CpuPolicy
    threads: ThreadPolicy | None
    emulator: EmulatorPolicy | None
    dedicated: frozenset[int]
    """Guest CPUs."""
    realtime: frozenset[int]
    """Guest CPUs."""


def cpu_request(settings: FlavorAndImage, vcpus: int) -> CpuRequest:
    """Return what flavor and image request for the ``vcpus`` CPUs of the guest.

    :raises GuestRequestError: they contradict each other, or ask for something impossible.
    """
    cpus = frozenset(range(vcpus))
    emulator = settings.flavor_word(
        "emulator_threads_policy", EMULATOR_POLICIES, "InvalidEmulatorPolicy"
    )
    policy = _policy_of_resources(settings, vcpus, emulator) or _policy(settings)
    if emulator == "isolate" and policy == "shared":
        raise GuestRequestError(
            "EmulatorNeedsPinning",
            "hw:emulator_threads_policy",
            emulator,
            "the CPUs are not pinned",
            PINNED,
        )
    threads = _threads(settings, policy)
    if policy != "mixed" and (text := settings.flavor("cpu_dedicated_mask")) is not None:
        raise GuestRequestError(
            "MaskNeedsMixed",
            "hw:cpu_dedicated_mask",
            text,
            f"the policy is {policy}",
            "with hw:cpu_policy mixed",
        )
    if policy == "mixed":
        dedicated, realtime = _mixed(settings, cpus, emulator)
    else:
        dedicated, realtime = (
            cpus if policy == "dedicated" else frozenset(),
            _realtime(settings, cpus, policy, emulator),
        )
    return CpuRequest(policy, threads, emulator, dedicated, realtime)


def _policy(settings: FlavorAndImage) -> CpuPolicy:
    flavor = settings.flavor_word("cpu_policy", CPU_POLICIES, "InvalidCpuPolicy")
    image = settings.image_word("cpu_policy", CPU_POLICIES, "InvalidCpuPolicy")
    if (flavor == "mixed" and image == "dedicated") or (
        flavor == "shared" and image not in (None, "shared")
    ):
        raise GuestRequestError(
            "PinningForbidden", "hw_cpu_policy", image, f"the flavor says {flavor}", flavor
        )
    return flavor or image or "shared"


def _policy_of_resources(
    settings: FlavorAndImage, vcpus: int, emulator: EmulatorPolicy | None
) -> CpuPolicy | None:
    """Return the policy that ``resources:PCPU`` of all groups together implies. An amount of 0 of
    either class implies nothing: it only keeps the class out of the scheduler's request.
    """
    groups = {
        name: [(key, amount) for key, found, amount in sized(settings.specs) if found == name]
        for name in ("PCPU", "VCPU")
    }
    dedicated, shared = (
        sum(amount or 0 for _, amount in groups[name]) for name in ("PCPU", "VCPU")
    )
    if not dedicated and not shared:
        return None
    key, given = (groups["PCPU"][0][0], dedicated) if dedicated else (groups["VCPU"][0][0], shared)
    if dedicated and shared:
        raise GuestRequestError(
            "VcpuPcpuConflict",
            key,
            given,
            f"{groups['VCPU'][0][0]} = {shared} is given too",
            "one of the two",
        )
    for other, policy in (
        ("hw:cpu_policy", settings.flavor("cpu_policy")),
        ("hw_cpu_policy", settings.image("cpu_policy")),
    ):
        if policy is not None:
            raise GuestRequestError(
                "VcpuPcpuConflict", key, given, f"{other} = {policy} is given too", "one of the two"
            )
    needed = vcpus + int(emulator == "isolate")
    if dedicated and dedicated != needed:
        raise GuestRequestError(
            "VcpuPcpuConflict", key, given, f"the guest needs {needed}", str(needed)
        )
    return "dedicated" if dedicated else None


def sized(specs: Mapping[str, str]) -> Iterator[tuple[str, str, int | None]]:
    """Yield key, class and amount of the groups that size CPUs; amount None if it is no number."""
    for key, value in specs.items():
        if (found := SIZED.fullmatch(key)) is not None:
            yield key, found[1], int(value) if AMOUNT.fullmatch(value) else None


def _threads(settings: FlavorAndImage, policy: CpuPolicy) -> ThreadPolicy | None:
    flavor = settings.flavor_word("cpu_thread_policy", THREAD_POLICIES, "InvalidThreadPolicy")
    image = settings.image_word("cpu_thread_policy", THREAD_POLICIES, "InvalidThreadPolicy")
    if flavor not in (None, "prefer") and image not in (None, flavor):
        raise GuestRequestError(
            "ThreadPolicyForbidden",
            "hw_cpu_thread_policy",
            image,
            f"the flavor says {flavor}",
            str(flavor),
        )
    # Also for a flavor with prefer, because the scheduler did not ask for more because of it.
    chosen = flavor or image
    trait = next(
        (value for key, value in settings.specs.items() if HYPERTHREADED.fullmatch(key)), None
    )
    if trait is None and settings.properties.get(HYPERTHREADING) == "required":
        # A trait that the image forbids has no effect.
        trait = "required"
    implied: ThreadPolicy | None = (
        "require" if trait == "required" else "isolate" if trait == "forbidden" else None
    )
    if implied and chosen:
        raise GuestRequestError(
            "ThreadPolicyForbidden",
            HYPERTHREADING,
            trait,
            f"the thread policy {chosen} is given too",
            "one of the two",
        )
    if chosen and policy == "shared":
        raise GuestRequestError(
            "ThreadPolicyNeedsPinning",
            "hw:cpu_thread_policy",
            chosen,
            "the CPUs are not pinned",
            PINNED,
        )
    # With shared CPUs the trait only chooses the host.
    return chosen or (implied if policy != "shared" else None)


def _mixed(
    settings: FlavorAndImage, cpus: frozenset[int], emulator: EmulatorPolicy | None
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the dedicated and the realtime CPUs, which one mask names."""
    key, realtime_key = "hw:cpu_dedicated_mask", "hw:cpu_realtime_mask"
    text, realtime_mask = settings.flavor("cpu_dedicated_mask"), _realtime_mask(settings)
    if realtime_mask is not None and text is not None:
        raise GuestRequestError(
            "MaskInvalid",
            key,
            text,
            f"{realtime_key} = {realtime_mask} is given too",
            "one of the two",
        )
    if text is None and boolean(settings.flavor("cpu_realtime")):
        # All CPUs, if the emulator's threads have another place: such a guest is placed without
        # shared CPUs.
        realtime = _realtime(settings, cpus, "mixed", emulator)
        return realtime, realtime
    if text is None:
        raise GuestRequestError(
            "MaskInvalid",
            key,
            "not set",
            "the policy mixed needs a mask",
            "a CPU list, or ^ and a CPU list",
        )
    dedicated = mask(text, key, cpus)
    if not dedicated or dedicated == cpus:
        raise GuestRequestError(
            "MaskInvalid",
            key,
            text,
            "some CPU has to be dedicated, and some shared",
            "a part of the CPUs",
        )
    return dedicated, dedicated if boolean(settings.flavor("cpu_realtime")) else frozenset()


def _realtime(
    settings: FlavorAndImage,
    cpus: frozenset[int],
    policy: CpuPolicy,
    emulator: EmulatorPolicy | None,
) -> frozenset[int]:
    """Return the realtime CPUs of a guest."""
    if not boolean(settings.flavor("cpu_realtime")):
        return frozenset()
    if policy == "shared":
        raise GuestRequestError(
            "InvalidCpuPolicy", "hw:cpu_realtime", "true", "the CPUs are not pinned", PINNED
        )
    text = _realtime_mask(settings)
    realtime = cpus if text is None else mask(text, "hw:cpu_realtime_mask", cpus)
    if not realtime or (realtime == cpus and emulator is None):
        raise GuestRequestError(
            "MaskInvalid",
            "hw:cpu_realtime_mask",
            text or "not set",
            "some CPU has to be realtime, and some has to stay for the emulator",
            "a part of the CPUs, or an emulator policy",
        )
    return realtime


def _realtime_mask(settings: FlavorAndImage) -> str | None:
    """Return the mask of a guest with realtime CPUs. The image's counts before the flavor's,
    because it knows the workload better.
    """
    image = settings.image("cpu_realtime_mask")
    mask_text = image if image is not None else settings.flavor("cpu_realtime_mask")
    return mask_text if boolean(settings.flavor("cpu_realtime")) else None
