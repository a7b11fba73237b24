"""Topology request of a guest, from its flavor and image: policies for pinning, threads and
emulator, its dedicated and realtime CPUs, and how its CPUs and memory are spread over its cells.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.model.facts import parse_cpu_list
from agent.model.instance import (
    CpuPolicy,
    EmulatorPolicy,
    Guest,
    GuestCell,
    PageRequest,
    PageWord,
    PciPolicy,
    ThreadPolicy,
)
from agent.model.names import format_cpu_list, number_of
from agent.numa.flavor_and_image import (
    FlavorAndImage,
    GuestRequestError,
    boolean,
    mask,
    number,
    page_size,
    word,
)

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


Spread = list[tuple[frozenset[int], int]]
"""For each cell its guest CPUs, and its memory in MiB."""


def guest_cells(
    settings: FlavorAndImage, vcpus: int, memory_mib: int, dedicated: frozenset[int]
) -> tuple[GuestCell, ...]:
    """Return the cells, evenly spread or as flavor or image say.

    :raises GuestRequestError: the CPUs or the memory do not add up.
    """
    nodes = _nodes(settings)
    cpus, memory = _numbered(settings, "numa_cpus", nodes), _numbered(settings, "numa_mem", nodes)
    spread = (
        _as_given(cpus, memory, nodes, vcpus, memory_mib)
        if cpus or memory
        else _evenly(nodes, vcpus, memory_mib)
    )
    return tuple(
        GuestCell(shared=cpus - dedicated, dedicated=cpus & dedicated, memory_mib=size)
        for cpus, size in spread
    )


def _nodes(settings: FlavorAndImage) -> int:
    text = settings.only_one("numa_nodes", "TopologyForbidden")
    nodes = number(text, "hw:numa_nodes", "InvalidNodes")
    if nodes == 0:
        raise GuestRequestError(
            "InvalidNodes", "hw:numa_nodes", text, "no number of cells", "1 or more"
        )
    return nodes or 1


def _numbered(settings: FlavorAndImage, name: str, nodes: int) -> Sequence[str]:
    """Return the values of ``name.0``, ``name.1``, ... from either flavor or image, up to the first
    gap.
    """
    flavor, image = (
        list(_up_to_gap(given, f"{start}{name}", nodes))
        for start, given in (("hw:", settings.specs), ("hw_", settings.properties))
    )
    if flavor and image:
        raise GuestRequestError(
            "TopologyForbidden",
            f"hw_{name}.0",
            image[0],
            f"the flavor gives hw:{name} already",
            "only in one of flavor and image",
        )
    return flavor or image


def _up_to_gap(given: Mapping[str, str], name: str, nodes: int) -> Iterator[str]:
    for index in range(nodes):
        if (value := given.get(f"{name}.{index}")) is None:
            return
        yield value


def _evenly(nodes: int, vcpus: int, memory_mib: int) -> Spread:
    if vcpus % nodes or memory_mib % nodes:
        raise GuestRequestError(
            "Asymmetric",
            "hw:numa_nodes",
            nodes,
            f"{vcpus} CPUs and {memory_mib} MiB cannot be divided by it",
            "a divisor of both, or hw:numa_cpus.N and hw:numa_mem.N",
        )
    each = vcpus // nodes
    return [
        (frozenset(range(number * each, number * each + each)), memory_mib // nodes)
        for number in range(nodes)
    ]


def _as_given(
    cpus: Sequence[str], memory: Sequence[str], nodes: int, vcpus: int, memory_mib: int
) -> Spread:
    for name, values in (("numa_cpus", cpus), ("numa_mem", memory)):
        if len(values) != nodes:
            why, allowed = (
                f"the guest has {number_of(nodes, 'cell')}",
                "CPUs and memory for all cells, or for none",
            )
            raise GuestRequestError(
                "Incomplete", f"hw:{name}.{len(values)}", "not set", why, allowed
            )
    sizes = [
        number(text, f"hw:numa_mem.{index}", "MemoryMismatch") or 0
        for index, text in enumerate(memory)
    ]
    spread = list(zip(_cpus(cpus, vcpus), sizes, strict=True))
    if sum(sizes) != memory_mib:
        raise GuestRequestError(
            "MemoryMismatch",
            "hw:numa_mem",
            sum(sizes),
            f"the flavor has {memory_mib} MiB",
            str(memory_mib),
        )
    return spread


def _cpus(texts: Sequence[str], vcpus: int) -> list[frozenset[int]]:
    """Return the guest CPUs of each cell; each CPU is in one cell."""
    cells, seen = [], frozenset[int]()
    for index, text in enumerate(texts):
        key = f"hw:numa_cpus.{index}"
        try:
            cell = parse_cpu_list(text)
        except ValueError as error:
            raise GuestRequestError(
                "CpuOutOfRange", key, text, str(error), "a CPU list like 0-3,^2"
            ) from error
        if cell and max(cell) >= vcpus:
            raise GuestRequestError(
                "CpuOutOfRange", key, text, f"the guest has no CPU {max(cell)}", f"0 to {vcpus - 1}"
            )
        if seen & cell:
            raise GuestRequestError(
                "CpuDuplicate",
                key,
                text,
                f"CPU {min(seen & cell)} is in another cell already",
                "each CPU once",
            )
        seen |= cell
        cells.append(cell)
    if missing := frozenset(range(vcpus)) - seen:
        raise GuestRequestError(
            "CpuUnassigned",
            "hw:numa_cpus",
            "; ".join(texts),
            f"CPU {format_cpu_list(missing)} is in no cell",
            "each CPU once",
        )
    return cells


PAGE_WORDS: tuple[PageWord, ...] = ("small", "large", "any")
PCI_POLICIES: tuple[PciPolicy, ...] = ("required", "preferred", "legacy", "socket")


def guest_of(
    vcpus: int, memory_mib: int, specs: Mapping[str, str], properties: Mapping[str, str]
) -> Guest | None:
    """Return the topology that a flavor of ``vcpus`` and ``memory_mib`` (MiB) and its image ask
    for; None if the guest floats.

    :raises GuestRequestError: flavor and image contradict each other, or ask for something
        impossible.
    """
    settings = FlavorAndImage(specs, properties)
    cpus = cpu_request(settings, vcpus)
    pages = _pages(settings)
    pci: PciPolicy | None = settings.agreed(
        "pci_numa_affinity_policy",
        lambda text, key: word(text, key, PCI_POLICIES, "InvalidPciPolicy"),
        "PciPolicyForbidden",
    )
    locked = settings.agreed(
        "locked_memory",
        lambda text, _: None if text is None else boolean(text),
        "LockedNeedsPages",
    )
    if locked and pages is None:
        raise GuestRequestError(
            "LockedNeedsPages",
            "hw:locked_memory",
            "true",
            "hw:mem_page_size is not set",
            "with hw:mem_page_size",
        )
    if not (
        settings.flavor("numa_nodes")
        or settings.image("numa_nodes")
        or pages
        or (settings.flavor("pmem") or "").strip(", ")
        or cpus.policy != "shared"
    ):
        return None
    cells = guest_cells(settings, vcpus, memory_mib, cpus.dedicated)
    return Guest(cells, cpus.policy, cpus.threads, cpus.emulator, pages, pci, cpus.realtime)


def overlooked(specs: Mapping[str, str], properties: Mapping[str, str]) -> list[str]:
    """Return the keys that name cells which the guest does not have, or amounts that are no number:
    they have no effect, which is hardly intended.

    :raises GuestRequestError: the number of cells cannot be read, or flavor and image contradict
        each other.
    """
    settings, keys = FlavorAndImage(specs, properties), list[str]()
    nodes = _nodes(settings)
    for name in ("numa_cpus", "numa_mem"):
        # The keys after the first gap are not read either.
        read = {f"{name}.{index}" for index in range(len(_numbered(settings, name, nodes)))}
        for start, given in (("hw:", specs), ("hw_", properties)):
            keys += [
                key
                for key in given
                if key.startswith(f"{start}{name}.") and key.removeprefix(start) not in read
            ]
    return [*sorted(keys), *sorted(key for key, _, amount in sized(specs) if amount is None)]


def _pages(settings: FlavorAndImage) -> PageRequest | None:
    """Return the flavor's page request. The image may only narrow ``large`` or ``any``."""
    flavor, image = (
        _page_request(settings.flavor("mem_page_size"), "hw:mem_page_size"),
        settings.image("mem_page_size"),
    )
    if image is None:
        return flavor
    if flavor not in ("large", "any"):
        raise GuestRequestError(
            "PageSizeForbidden",
            "hw_mem_page_size",
            image,
            f"the flavor says {flavor or 'nothing'}",
            "only where the flavor says large or any",
        )
    return _page_request(image, "hw_mem_page_size")


def _page_request(text: str | None, key: str) -> PageRequest | None:
    if text is None:
        return None
    for page_word in PAGE_WORDS:
        if text.strip().lower() == page_word:
            return page_word
    return page_size(text, key)
