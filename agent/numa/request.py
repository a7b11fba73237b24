"""Topology request of a guest, from its flavor and image: how its CPUs and memory are spread over
its cells.
"""

from collections.abc import Iterator, Mapping, Sequence

from agent.model.instance import Guest, GuestCell, PageRequest, PageWord, PciPolicy
from agent.model.names import number_of
from agent.model.topology import format_cpu_list, parse_cpu_list
from agent.numa.cpu_request import cpu_request, sized
from agent.numa.flavor_and_image import (
    FlavorAndImage,
    GuestRequestError,
    boolean,
    number,
    page_size,
    word,
)

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
        key, cell = f"hw:numa_cpus.{index}", _one_cell(text, index)
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


def _one_cell(text: str, index: int) -> frozenset[int]:
    key = f"hw:numa_cpus.{index}"
    try:
        cpus = parse_cpu_list(text)
    except ValueError as error:
        raise GuestRequestError(
            "CpuOutOfRange", key, text, str(error), "a CPU list like 0-3,^2"
        ) from error
    return cpus


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
        "pci_numa_affinity_policy", _pci_policy, "PciPolicyForbidden"
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


def _pci_policy(text: str | None, key: str) -> PciPolicy | None:
    return word(text, key, PCI_POLICIES, "InvalidPciPolicy")


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
