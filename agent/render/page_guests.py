"""The guests on the page: what each of them holds, on the host and in Placement. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.model.names import format_cpu_list
from agent.render.document import Document, remedy_ways
from agent.render.records import OUTCOMES


@dataclass(frozen=True, slots=True)
class PageGuest:
    """One guest that the hypervisor shows, or that has a claim."""

    number: int
    name: str
    uuid: str
    state: str
    vcpus: int | None
    memory_mb: int | None
    flavor: str
    cells: tuple[str, ...]
    devices: tuple[str, ...]
    """Its devices and mediated devices, as the machine calls them."""
    allocation: tuple[str, ...]
    """What Placement is known to have allocated to it of the node, one text for each provider."""
    record: str
    """Whether it is on record, in words."""
    refusals: tuple[Document, ...]
    misplaced: bool
    """Whether the drift says that its host would not grant it any more."""


def page_guests(node: Document) -> tuple[PageGuest, ...]:
    """Return the guests of a node: those that the hypervisor shows, then the claims' instances that
    it does not show.
    """
    claims: dict[str, list[Document]] = {}
    for claim in node["claims"]:
        claims.setdefault(claim["instance"], []).append(claim)
    shown = {guest["uuid"]: guest for guest in node["guests"]}
    names = {row["uuid"]: row["name"] for row in node["tree"]}
    known = {device["address"]: device_words(device) for device in node["devices"]}
    misplaced = {one.get("consumer") for one in node["drift"] if one["kind"] == "misplaced-guest"}
    return tuple(
        _guest(
            number,
            uuid,
            shown.get(uuid),
            claims.get(uuid, ()),
            known,
            allocation_words(node, uuid, names),
            misplaced=uuid in misplaced,
        )
        for uuid, number in guest_numbers(node).items()
    )


def guest_numbers(node: Document) -> dict[str, int]:
    """Return the place of each guest in the list of guests, by its uuid."""
    uuids = [
        *(guest["uuid"] for guest in node["guests"]),
        *(claim["instance"] for claim in node["claims"]),
    ]
    return {uuid: number for number, uuid in enumerate(dict.fromkeys(uuids))}


def guest_label(node: Document, numbers: Mapping[str, int], uuid: str) -> str:
    """Return the name of a guest; its uuid if it has none. ``numbers``: as
    :func:`guest_numbers` returns.
    """
    place, guests = numbers.get(uuid), node["guests"]
    named = place is not None and place < len(guests) and guests[place]["uuid"] == uuid
    return (guests[place]["name"] if named else "") or uuid


def provider_holders(node: Document) -> Mapping[str, Sequence[int]]:
    """Return the places of the guests with an allocation, by the provider's uuid."""
    found: dict[str, list[int]] = {}
    for uuid, number in guest_numbers(node).items():
        for provider in node["allocations"].get(uuid, ()):
            found.setdefault(provider, []).append(number)
    return found


def allocation_words(node: Document, consumer: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a consumer has of each provider in Placement, in words. ``names``: those of the
    providers by their uuids.
    """
    return tuple(
        f"{', '.join(f'{name} {amount}' for name, amount in sorted(resources.items()))} "
        f"of {names.get(provider, provider)}"
        for provider, resources in node["allocations"].get(consumer, {}).items()
    )


def _guest(
    number: int,
    uuid: str,
    shown: Document | None,
    claims: Sequence[Document],
    known: Mapping[str, str],
    allocation: tuple[str, ...],
    *,
    misplaced: bool,
) -> PageGuest:
    held = [cell for claim in claims for cell in claim["cells"]]
    cells = held or (shown["cells"] if shown else [])
    addresses = {device["address"] for claim in claims for device in claim["devices"]}
    addresses |= set(shown["devices"]) if shown else set()
    amounts = next((claim["amounts"] for claim in claims if claim["amounts"]["vcpus"]), None)
    return PageGuest(
        number=number,
        name=shown["name"] if shown else "",
        uuid=uuid,
        state=shown["state"] if shown else "not shown by the hypervisor",
        vcpus=shown["vcpus"] if shown else (amounts["vcpus"] if amounts else None),
        memory_mb=shown["memory_mb"] if shown else (amounts["memory_mb"] if amounts else None),
        flavor=(shown["flavor"] or "") if shown else "",
        cells=tuple(map(_cell_words, cells)),
        devices=(
            *(f"{address} {known.get(address, '')}".rstrip() for address in sorted(addresses)),
            *(mdev_words(share) for claim in claims for share in claim.get("mdevs", ())),
        ),
        allocation=allocation,
        record=OUTCOMES[shown["outcome"] if shown else "known"][0],
        refusals=tuple(map(with_ways, shown["refusals"])) if shown else (),
        misplaced=misplaced,
    )


def with_ways(problem: Document) -> Document:
    """Return a problem with the ways of its remedy, each as words and command."""
    return {**problem, "ways": remedy_ways(problem["remedy"])}


def device_words(device: Document) -> str:
    """Return what a device is: its kind, vendor and product."""
    return f"{device['type'].removeprefix('type-')} {device['vendor_id']}:{device['product_id']}"


def mdev_words(share: Document) -> str:
    """Return what a claim has of a parent of mediated devices."""
    what = f"mediated {share['type'] or share['resource_class']}"
    count = "" if share["count"] == 1 else f", {share['count']} of them"
    return f"{share['parent'] or share['provider']} {what}{count}"


def pages_of(size_kib: int) -> str:
    """Return what pages of a size are called: ``2 MiB pages``."""
    for unit, kib in (("GiB", 1024 * 1024), ("MiB", 1024)):
        if size_kib % kib == 0:
            return f"{size_kib // kib} {unit} pages"
    return f"{size_kib} KiB pages"


def _cell_words(cell: Document) -> str:
    """Return a guest's cell in words: where it is, its memory, and its host CPUs."""
    parts = [f"cell {cell['host_cell']}: {cell['memory_mb']} MiB"]
    if cell["page_size_kib"]:
        parts.append(pages_of(cell["page_size_kib"]))
    if cell["pins"]:
        pins = ", ".join(f"{guest}→{host}" for guest, host in cell["pins"].items())
        parts.append(f"CPUs pinned (guest→host) {pins}")
    if cell["shared"]:
        parts.append(f"CPUs {format_cpu_list(set(cell['shared']))} on shared host CPUs")
    if cell["emulator"]:
        parts.append(f"emulator on {format_cpu_list(set(cell['emulator']))}")
    return ", ".join(parts)
