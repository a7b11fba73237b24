"""How a guest wants its CPUs: policies for pinning, threads and emulator, and which of them are dedicated or realtime."""

from dataclasses import dataclass

from agent.numa.asked import Asked, boolean, mask, word
from agent.numa.guest import CpuPolicy, EmulatorPolicy, ThreadPolicy
from agent.numa.request_error import RequestError

CPU_POLICIES: tuple[CpuPolicy, ...] = ("shared", "dedicated", "mixed")
THREAD_POLICIES: tuple[ThreadPolicy, ...] = ("prefer", "require", "isolate")
EMULATOR_POLICIES: tuple[EmulatorPolicy, ...] = ("share", "isolate")
HYPERTHREADING = "trait:HW_CPU_HYPERTHREADING"


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
    emulator = word(asked.flavor("emulator_threads_policy"), "hw:emulator_threads_policy", EMULATOR_POLICIES, "InvalidEmulatorPolicy")
    policy = _policy(asked, vcpus, emulator)
    if emulator == "isolate" and policy == "shared":
        raise RequestError("EmulatorNeedsPinning", "hw:emulator_threads_policy", emulator, "the CPUs are not pinned", "with dedicated or mixed")
    realtime = _realtime(asked, cpus, policy, emulator)
    return CpuRequest(policy, _threads(asked, policy), emulator, _dedicated(asked, cpus, policy, realtime), realtime)


def _policy(asked: Asked, vcpus: int, emulator: EmulatorPolicy | None) -> CpuPolicy:
    flavor = word(asked.flavor("cpu_policy"), "hw:cpu_policy", CPU_POLICIES, "InvalidCpuPolicy")
    image = word(asked.image("cpu_policy"), "hw_cpu_policy", CPU_POLICIES, "InvalidCpuPolicy")
    flavor = _policy_of_resources(asked, vcpus, emulator, flavor) or flavor
    if flavor == "dedicated" or image is None:
        return flavor or "shared"
    if (flavor == "mixed" and image == "dedicated") or (flavor == "shared" and image != "shared"):
        raise RequestError("PinningForbidden", "hw_cpu_policy", image, f"the flavor says {flavor}", str(flavor))
    return flavor or image


def _policy_of_resources(asked: Asked, vcpus: int, emulator: EmulatorPolicy | None, flavor: CpuPolicy | None) -> CpuPolicy | None:
    """The policy that ``resources:VCPU`` or ``resources:PCPU`` imply."""
    shared, dedicated = asked.specs.get("resources:VCPU"), asked.specs.get("resources:PCPU")
    given = dedicated if dedicated is not None else shared
    if given is None:
        return None
    key = "resources:PCPU" if dedicated is not None else "resources:VCPU"
    if shared is not None and dedicated is not None:
        raise RequestError("VcpuPcpuConflict", key, given, "resources:VCPU is given too", "one of the two")
    if flavor is not None:
        raise RequestError("VcpuPcpuConflict", key, given, f"hw:cpu_policy = {flavor} is given too", "one of the two")
    needed = vcpus + int(dedicated is not None and emulator == "isolate")
    if given.strip() != str(needed):
        raise RequestError("VcpuPcpuConflict", key, given, f"the guest needs {needed}", str(needed))
    return "dedicated" if dedicated is not None else "shared"


def _threads(asked: Asked, policy: CpuPolicy) -> ThreadPolicy | None:
    flavor = word(asked.flavor("cpu_thread_policy"), "hw:cpu_thread_policy", THREAD_POLICIES, "InvalidThreadPolicy")
    image = word(asked.image("cpu_thread_policy"), "hw_cpu_thread_policy", THREAD_POLICIES, "InvalidThreadPolicy")
    trait = asked.specs.get(HYPERTHREADING)
    implied: ThreadPolicy | None = {"required": "require", "forbidden": "isolate"}.get(trait or "")  # type: ignore[assignment]
    if implied and (flavor or image):
        raise RequestError("ThreadPolicyForbidden", HYPERTHREADING, trait, "a thread policy is given too", "one of the two")
    if flavor not in (None, "prefer") and image not in (None, flavor):
        raise RequestError("ThreadPolicyForbidden", "hw_cpu_thread_policy", image, f"the flavor says {flavor}", str(flavor))
    chosen = implied or (image or flavor if flavor in (None, "prefer") else flavor)
    if chosen and policy == "shared":
        if implied:
            return None  # With shared CPUs the trait only chooses the host.
        raise RequestError("ThreadPolicyNeedsPinning", "hw:cpu_thread_policy", chosen, "the CPUs are not pinned", "with dedicated or mixed")
    return chosen


def _realtime(asked: Asked, cpus: frozenset[int], policy: CpuPolicy, emulator: EmulatorPolicy | None) -> frozenset[int]:
    if not boolean(asked.flavor("cpu_realtime")):
        return frozenset()
    if policy == "shared":
        raise RequestError("PinningForbidden", "hw:cpu_realtime", "true", "the CPUs are not pinned", "with dedicated or mixed")
    text = asked.image("cpu_realtime_mask") or asked.flavor("cpu_realtime_mask")
    if text is None:
        if policy == "mixed" and asked.flavor("cpu_dedicated_mask"):
            return mask(str(asked.flavor("cpu_dedicated_mask")), "hw:cpu_dedicated_mask", cpus)
        if emulator is None:
            raise RequestError("MaskInvalid", "hw:cpu_realtime_mask", "not set", "some CPU has to stay for the emulator", "a mask, or an emulator policy")
        return cpus
    realtime = mask(text, "hw:cpu_realtime_mask", cpus)
    if not realtime or (realtime == cpus and emulator is None):
        raise RequestError("MaskInvalid", "hw:cpu_realtime_mask", text, "some CPU has to be realtime, and some not", "less, or an emulator policy")
    return realtime


def _dedicated(asked: Asked, cpus: frozenset[int], policy: CpuPolicy, realtime: frozenset[int]) -> frozenset[int]:
    text, key = asked.flavor("cpu_dedicated_mask"), "hw:cpu_dedicated_mask"
    if policy != "mixed":
        if text is not None:
            raise RequestError("MaskNeedsMixed", key, text, f"the policy is {policy}", "with hw:cpu_policy mixed")
        return cpus if policy == "dedicated" else frozenset()
    if realtime and asked.flavor("cpu_realtime_mask") and text is not None:
        raise RequestError("MaskInvalid", key, text, "hw:cpu_realtime_mask is given too", "one of the two")
    if text is None and not realtime:
        raise RequestError("MaskInvalid", key, "not set", "the policy mixed needs a mask", "a CPU list, or ^ and a CPU list")
    dedicated = mask(text, key, cpus) if text is not None else realtime
    if not dedicated or dedicated == cpus:
        raise RequestError("MaskInvalid", key, text, "some CPU has to be dedicated, and some shared", "a part of the CPUs")
    return dedicated
