"""Topology request of a guest, from its flavor and image."""

from collections.abc import Mapping

from agent.model.guest import Guest, PageRequest, PageWord, PciPolicy
from agent.numa import cell_request
from agent.numa.cpu_request import cpu_request, unreadable_amounts
from agent.numa.flavor_and_image import FlavorAndImage, GuestRequestError, boolean, page_size, word

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
        _has_nodes(settings)
        or pages
        or (settings.flavor("pmem") or "").strip(", ")
        or cpus.policy != "shared"
    ):
        return None
    cells = cell_request.guest_cells(settings, vcpus, memory_mib, cpus.dedicated)
    return Guest(cells, cpus.policy, cpus.threads, cpus.emulator, pages, pci, cpus.realtime)


def overlooked(specs: Mapping[str, str], properties: Mapping[str, str]) -> list[str]:
    """Return the keys that name cells which the guest does not have, or amounts that are no number:
    they have no effect, which is hardly intended.

    :raises GuestRequestError: the number of cells cannot be read, or flavor and image contradict
        each other.
    """
    return [
        *cell_request.overlooked(FlavorAndImage(specs, properties)),
        *sorted(unreadable_amounts(specs)),
    ]


def _has_nodes(settings: FlavorAndImage) -> bool:
    return settings.flavor("numa_nodes") is not None or settings.image("numa_nodes") is not None


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
