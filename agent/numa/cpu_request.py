"""How a guest wants its CPUs: policies for pinning, threads and emulator, and which of them are dedicated or realtime."""

from dataclasses import dataclass

from agent.model.guest import CpuPolicy, EmulatorPolicy, ThreadPolicy
from agent.numa.asked import Asked, boolean, mask, number
from agent.numa.request_error import RequestError

CPU_POLICIES: tuple[CpuPolicy, ...] = ("shared", "dedicated", "mixed")
THREAD_POLICIES: tuple[ThreadPolicy, ...] = ("prefer", "require", "isolate")
EMULATOR_POLICIES: tuple[EmulatorPolicy, ...] = ("share", "isolate")
HYPERTHREADING = "trait:HW_CPU_HYPERTHREADING"
PINNED = "with hw:cpu_policy dedicated or mixed"


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """``dedicated`` and ``realtime`` are guest CPUs."""

    policy: CpuPolicy
    threads: ThreadPolicy | None
    emulator: EmulatorPolicy | None
    dedicated: frozenset[int]
    realtime: frozenset[int]


def cpu_request(asked: Asked, vcpus: int) -> CpuRequest:
    """What flavor and image say about the ``vcpus`` CPUs of the guest.

    :raises RequestError: they contradict each other, or ask for something impossible.
    """
    cpus = frozenset(range(vcpus))
    emulator = asked.flavor_word("emulator_threads_policy", EMULATOR_POLICIES, "InvalidEmulatorPolicy")
    policy = _policy_of_resources(asked, vcpus, emulator) or _policy(asked)
    if emulator == "isolate" and policy == "shared":
        raise RequestError("EmulatorNeedsPinning", "hw:emulator_threads_policy", emulator, "the CPUs are not pinned", PINNED)
    threads = _threads(asked, policy)
    if policy != "mixed" and (text := asked.flavor("cpu_dedicated_mask")) is not None:
        raise RequestError("MaskNeedsMixed", "hw:cpu_dedicated_mask", text, f"the policy is {policy}", "with hw:cpu_policy mixed")
    if policy == "mixed":
        dedicated, realtime = _mixed(asked, cpus)
    else:
        dedicated, realtime = cpus if policy == "dedicated" else frozenset(), _realtime(asked, cpus, policy, emulator)
    return CpuRequest(policy, threads, emulator, dedicated, realtime)


def _policy(asked: Asked) -> CpuPolicy:
    flavor = asked.flavor_word("cpu_policy", CPU_POLICIES, "InvalidCpuPolicy")
    image = asked.image_word("cpu_policy", CPU_POLICIES, "InvalidCpuPolicy")
    if (flavor == "mixed" and image == "dedicated") or (flavor == "shared" and image not in (None, "shared")):
        raise RequestError("PinningForbidden", "hw_cpu_policy", image, f"the flavor says {flavor}", flavor)
    return flavor or image or "shared"


def _policy_of_resources(asked: Asked, vcpus: int, emulator: EmulatorPolicy | None) -> CpuPolicy | None:
    """The policy that ``resources:PCPU`` implies. An amount of 0, of either class, only keeps it out of the request."""
    keys = ("resources:PCPU", "resources:VCPU")
    dedicated, shared = (number(asked.specs.get(key), key, "VcpuPcpuConflict") for key in keys)
    if not dedicated and not shared:
        return None
    key, given = (keys[0], dedicated) if dedicated else (keys[1], shared)
    if dedicated and shared:
        raise RequestError("VcpuPcpuConflict", key, given, f"{keys[1]} = {shared} is given too", "one of the two")
    for other, policy in (("hw:cpu_policy", asked.flavor("cpu_policy")), ("hw_cpu_policy", asked.image("cpu_policy"))):
        if policy is not None:
            raise RequestError("VcpuPcpuConflict", key, given, f"{other} = {policy} is given too", "one of the two")
    needed = vcpus + int(emulator == "isolate")
    if dedicated and dedicated != needed:
        raise RequestError("VcpuPcpuConflict", key, given, f"the guest needs {needed}", str(needed))
    return "dedicated" if dedicated else None


def _threads(asked: Asked, policy: CpuPolicy) -> ThreadPolicy | None:
    flavor = asked.flavor_word("cpu_thread_policy", THREAD_POLICIES, "InvalidThreadPolicy")
    image = asked.image_word("cpu_thread_policy", THREAD_POLICIES, "InvalidThreadPolicy")
    if flavor not in (None, "prefer") and image not in (None, flavor):
        raise RequestError("ThreadPolicyForbidden", "hw_cpu_thread_policy", image, f"the flavor says {flavor}", str(flavor))
    # What is left to choose from: a flavor that prefers lets the image decide.
    chosen = flavor if flavor not in (None, "prefer") else image or flavor
    trait = asked.specs.get(HYPERTHREADING) or asked.properties.get(HYPERTHREADING)
    implied: ThreadPolicy | None = "require" if trait == "required" else "isolate" if trait == "forbidden" else None
    if implied and chosen:
        raise RequestError("ThreadPolicyForbidden", HYPERTHREADING, trait, f"the thread policy {chosen} is given too", "one of the two")
    if chosen and policy == "shared":
        raise RequestError("ThreadPolicyNeedsPinning", "hw:cpu_thread_policy", chosen, "the CPUs are not pinned", PINNED)
    # With shared CPUs the trait only chooses the host.
    return chosen or (implied if policy != "shared" else None)


def _mixed(asked: Asked, cpus: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    """The dedicated and the realtime CPUs: one mask says both."""
    dedicated_key, realtime_key = "hw:cpu_dedicated_mask", "hw:cpu_realtime_mask"
    dedicated_mask, realtime_mask = asked.flavor("cpu_dedicated_mask"), _realtime_mask(asked)
    if realtime_mask is not None and dedicated_mask is not None:
        raise RequestError("MaskInvalid", dedicated_key, dedicated_mask, f"{realtime_key} = {realtime_mask} is given too", "one of the two")
    key, text = (dedicated_key, dedicated_mask) if realtime_mask is None else (realtime_key, realtime_mask)
    if text is None:
        raise RequestError("MaskInvalid", key, "not set", "the policy mixed needs a mask", "a CPU list, or ^ and a CPU list")
    dedicated = mask(text, key, cpus)
    if not dedicated or dedicated == cpus:
        raise RequestError("MaskInvalid", key, text, "some CPU has to be dedicated, and some shared", "a part of the CPUs")
    return dedicated, dedicated if boolean(asked.flavor("cpu_realtime")) else frozenset()


def _realtime(asked: Asked, cpus: frozenset[int], policy: CpuPolicy, emulator: EmulatorPolicy | None) -> frozenset[int]:
    """The realtime CPUs of a guest whose CPUs are all of one kind."""
    if not boolean(asked.flavor("cpu_realtime")):
        return frozenset()
    if policy == "shared":
        raise RequestError("InvalidCpuPolicy", "hw:cpu_realtime", "true", "the CPUs are not pinned", PINNED)
    text = _realtime_mask(asked)
    realtime = cpus if text is None else mask(text, "hw:cpu_realtime_mask", cpus)
    if not realtime or (realtime == cpus and emulator is None):
        why = "some CPU has to be realtime, and some has to stay for the emulator"
        raise RequestError("MaskInvalid", "hw:cpu_realtime_mask", text or "not set", why, "a part of the CPUs, or an emulator policy")
    return realtime


def _realtime_mask(asked: Asked) -> str | None:
    """The mask of a guest that wants realtime CPUs; the image knows its workload better than the flavor."""
    image = asked.image("cpu_realtime_mask")
    mask_text = image if image is not None else asked.flavor("cpu_realtime_mask")
    return mask_text if boolean(asked.flavor("cpu_realtime")) else None
