"""From a flavor and an image to the topology that the guest asks for."""

from collections.abc import Mapping

from agent.numa.asked import Asked, boolean, page_size, word
from agent.numa.cell_request import guest_cells
from agent.numa.cpu_request import cpu_request
from agent.numa.guest import Guest, PageRequest, PciPolicy
from agent.numa.request_error import RequestError

PAGE_WORDS: tuple[str, ...] = ("small", "large", "any")
PCI_POLICIES: tuple[PciPolicy, ...] = ("required", "preferred", "legacy", "socket")


def guest_of(vcpus: int, memory_mib: int, specs: Mapping[str, str], properties: Mapping[str, str]) -> Guest | None:
    """The topology that a flavor of ``vcpus`` and ``memory_mib`` (MiB) asks for; None if the guest floats.

    :raises RequestError: flavor and image contradict each other, or ask for something impossible.
    """
    asked = Asked(specs, properties)
    cpus = cpu_request(asked, vcpus)
    pages = _pages(asked)
    pci = word(asked.agreed("pci_numa_affinity_policy", "PciPolicyForbidden"), "hw:pci_numa_affinity_policy", PCI_POLICIES, "InvalidPciPolicy")
    locked = boolean(asked.agreed("locked_memory", "LockedNeedsPages"))
    if locked and pages is None:
        raise RequestError("LockedNeedsPages", "hw:locked_memory", "true", "hw:mem_page_size is not set", "with hw:mem_page_size")
    if not (asked.flavor("numa_nodes") or asked.image("numa_nodes") or pages or asked.flavor("pmem") or cpus.policy != "shared"):
        return None
    cells = guest_cells(asked, vcpus, memory_mib, cpus.dedicated)
    return Guest(cells, cpus.policy, cpus.threads, cpus.emulator, pages, pci, locked, cpus.realtime)


def _pages(asked: Asked) -> PageRequest | None:
    """The flavor's request; the image may only narrow ``large`` or ``any``."""
    flavor, image = asked.flavor("mem_page_size"), asked.image("mem_page_size")
    if image is not None and flavor not in ("large", "any"):
        raise RequestError("PageSizeForbidden", "hw_mem_page_size", image, f"the flavor says {flavor or 'nothing'}", "only where the flavor says large or any")
    text, key = (image, "hw_mem_page_size") if image is not None else (flavor, "hw:mem_page_size")
    if text is None:
        return None
    return text if text in PAGE_WORDS else page_size(text, key)  # type: ignore[return-value]
