"""Rendering of ``agent pci check`` (a node's devices and the aliases), ``agent provider-config
check`` (what valid files would change) and ``agent takeover check`` (verdicts, and the next
commands).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.model.devices import DeviceRecord, PciDevice
from agent.model.facts import HostFacts
from agent.model.finding import Problem
from agent.model.names import ProviderUuid, number_of, printable
from agent.model.report import NodeReport
from agent.pci.device_request import EXTRA_SPEC, Alias, device_groups, device_requests, matches
from agent.pci.settings import Matched, PciSettings, PresentDevices, device_rows, match_devices
from agent.provider_config.applying import ProviderConfig
from agent.render.document import Document, error_lines, problems_in, remedy_lines
from agent.render.look import Look, Text, escape_text, to_string, wrap_line
from agent.render.operation_lines import operation_lines

Offered = tuple[DeviceRecord, Matched]
"""A device that guests may have, and the object of ``device_spec`` that offers it."""


def render_pci_check(found: Document, look: Look) -> str:
    """Return the text: the nodes, with what each object of ``device_spec`` offers there, and the
    aliases.
    """
    lines = (
        [*wrap_line(escape_text(found["notice"], "italic"), look), Text()]
        if found["notice"]
        else []
    )
    for node in found["nodes"]:
        lines += [
            escape_text(node["name"], "bold"),
            *(
                line
                for text in _node(node, found["report_in_placement"])
                for line in wrap_line(text, look)
            ),
        ]
        lines += [*error_lines(problems_in(node["errors"]), look), Text()]
    if found["aliases"]:
        lines += [
            Text("aliases", "bold"),
            *(
                line
                for alias in found["aliases"]
                for text in _alias(alias)
                for line in wrap_line(text, look)
            ),
            Text(),
        ]
    return to_string(lines[:-1], look)


def _node(node: Document, report: bool) -> Iterator[Text]:
    by_address = {device["address"]: device for device in node["devices"]}
    for spec in node["specs"]:
        count = len(spec["devices"])
        what = f"{count or 'no'} device{'' if count == 1 else 's'}"
        yield Text.assemble(
            "  ", (spec["spec"], "bold"), "  ", (what, "green" if count else "yellow")
        )
        yield from (_device(by_address[address], report) for address in spec["devices"])
    others = [device for device in node["devices"] if device["serves"] in ("host", "nobody")]
    if others:
        yield Text("  not offered, on the same cards", "dim")
        yield from (_device(device, report=False) for device in others)
    if not node["specs"] and not node["errors"]:
        yield Text(
            f"  [pci] device_spec is not set; the host has {number_of(len(by_address), 'device')}"
        )


def _device(device: Document, report: bool) -> Text:
    words = [
        f"{device['vendor_id']}:{device['product_id']}",
        device["type"],
        *([f"NUMA node {device['numa_node']}"] if device["numa_node"] is not None else []),
    ]
    words += [
        f"{name}={value}"
        for name, value in sorted(device["tags"].items())
        if (name, value) != ("remote_managed", "false")
    ]
    if report and device["tags"].get("physical_network"):
        words.append("not counted in Placement")
    elif report:
        words += [device["resource_class"], *device["traits"]]
    if device["serves"] == "host":
        words.append(device["host_use"])
    elif device["serves"] == "guests" and device["mediated"]:
        words.append("no guest can have it while it has mediated devices")
    return Text.assemble("    ", (device["address"], "bold"), escape_text("  " + "  ".join(words)))


def _alias(alias: Document) -> Iterator[Text]:
    yield Text.assemble("  ", escape_text(alias["name"], "bold"), f"  {alias['numa_policy']}")
    for alternative in alias["alternatives"]:
        yield escape_text(
            "    " + (", ".join(f"{name}={value}" for name, value in alternative.items()) or "any")
        )
    for group in alias["groups"]:
        yield escape_text("    asks for " + "  ".join(_asked(group)))
    if not alias["offered"]:
        yield Text("    no device that is offered here is one", "yellow")


def _asked(group: Document) -> Sequence[str]:
    traits = [*group["required"], *(f"!{name}" for name in group["forbidden"])]
    return [*(f"{name}:{amount}" for name, amount in group["resources"].items()), *traits]


def devices_document(
    node: ProviderUuid, facts: HostFacts, settings: PciSettings, for_guests: list[Offered]
) -> Document:
    """Return the document of a node's devices, and of those that each object of ``device_spec``
    offers. Those that guests may have are added to ``for_guests``.
    """
    present = PresentDevices.of(facts.pci or ())
    offered = {match.device.address: match for match in match_devices(present, settings.specs)}
    rows = {row.address: row for row in device_rows(node, present, settings.specs)}
    for_guests.extend(
        (rows[str(address)], match)
        for address, match in offered.items()
        if rows[str(address)].serves == "guests"
    )
    mediated = {parent.name for parent in facts.mdev or () if parent.mdevs}
    return {
        "specs": [
            {
                "spec": spec.place,
                "devices": [
                    str(address)
                    for address, match in offered.items()
                    if match.spec.place == spec.place
                ],
            }
            for spec in settings.specs
        ],
        "devices": [
            {
                **_device_document(
                    device, present, offered.get(device.address), rows.get(str(device.address))
                ),
                "mediated": not mediated.isdisjoint(
                    {str(device.address), str(device.physical_function)}
                ),
            }
            for device in present
        ],
    }


def aliases_document(settings: PciSettings, offered: Sequence[Offered]) -> list[Document]:
    """Return the documents of the aliases, each with its request groups for one device, and how
    many of the devices ``offered`` to guests it means.
    """
    return [
        {
            "name": alias.name,
            "numa_policy": alias.policy,
            "alternatives": [alternative.spec for alternative in alias.alternatives],
            "groups": list(_groups(alias)),
            "offered": sum(_means(alias, *one, settings.report) for one in offered),
        }
        for alias in settings.aliases.values()
    ]


def _means(alias: Alias, device: DeviceRecord, match: Matched, report: bool) -> bool:
    """Return whether the device is of a kind that the alias names. ``report``: Placement, which
    counts it, has to have the class and the traits that the alias asks for.
    """
    for alternative in alias.alternatives:
        only = {alias.name: replace(alias, alternatives=(alternative,))}
        (request,) = device_requests({EXTRA_SPEC: f"{alias.name}:1"}, only, None, "")
        counted = alternative.counted_by in (None, match.resource_class)
        if matches(device, request) and (
            not report or (counted and alternative.traits <= match.traits)
        ):
            return True
    return False


def _groups(alias: Alias) -> Iterator[Document]:
    for alternative in alias.alternatives:
        for group in device_groups("", 1, alternative):
            yield {
                "resources": dict(group.resources),
                "required": sorted(group.required),
                "forbidden": sorted(group.forbidden),
            }


def _device_document(
    device: PciDevice, present: PresentDevices, match: Matched | None, row: DeviceRecord | None
) -> Document:
    parent = present.parent(device)
    return {
        "address": str(device.address),
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "type": device.type,
        "label": device.label,
        "numa_node": device.numa_node,
        "kernel_driver": device.kernel_driver,
        "parent": str(device.physical_function) if device.physical_function is not None else None,
        "netdev": device.netdev,
        "parent_ifname": present.parent_ifname(device),
        "mac_address": device.mac_address,
        "network_capabilities": list(device.network_capabilities),
        "serial_number": present.serial_number(device),
        "pf_mac_address": parent.mac_address if parent is not None else None,
        "vf_num": present.number(device),
        "host_use": device.host_use,
        "serves": row.serves if row is not None else None,
        "tags": dict(row.tags) if row is not None else None,
        "spec": match.spec.place if match is not None else None,
        "resource_class": match.resource_class if match is not None else None,
        "traits": sorted(match.traits) if match is not None else None,
    }


def render_check(config: ProviderConfig, warnings: Sequence[Problem], look: Look) -> list[Text]:
    """Return the lines of valid provider files, with what is to be told of them."""
    count, files = len(config.entries), len(config.files)
    what = (
        f"{count} {'entry' if count == 1 else 'entries'} in {files} "
        f"{'file' if files == 1 else 'files'} of {printable(str(config.folder or ''))}"
    )
    lines = [
        *wrap_line(Text.assemble((f"{look.signs.good} ", "bold green"), escape_text(what)), look)
    ]
    for warning in warnings:
        remedy = f" ({warning.remedy})" if warning.remedy else ""
        lines += wrap_line(
            Text.assemble(("! ", "bold yellow"), escape_text(f"{warning.message}{remedy}")), look
        )
    return lines


def render_changes(nodes: Sequence[NodeReport], look: Look) -> list[Text]:
    """Return the lines of what valid files would change on each node."""
    lines: list[Text] = []
    for node in nodes:
        changes = operation_lines(node, look) or (
            [] if node.errors else [Text("nothing would change", "dim")]
        )
        lines += [
            Text(),
            Text.assemble(escape_text(node.name, "bold"), (f"  {node.uuid}", "dim")),
            *changes,
            *error_lines(node.errors, look),
        ]
    return lines


Verdict = Literal["unknown", "ok", "warning", "blocks"]
VERDICTS: tuple[Verdict, ...] = ("unknown", "ok", "warning", "blocks")
"""From the least to the worst: what is not known yet keeps nobody from a takeover."""
SCHEMA = "compute-node-agent/takeover-check/1"
_STYLES: dict[Verdict, str] = {
    "unknown": "dim",
    "ok": "green",
    "warning": "yellow",
    "blocks": "red",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check before the agent takes a host over."""

    check: str
    """What is checked, as a name for scripts."""
    verdict: Verdict
    detail: str
    next: str = ""
    """The next command, or what to do; empty if there is nothing to do."""


def worst_verdict(checks: Sequence[Check]) -> Verdict:
    """Return the worst verdict of ``checks``, at the least ok."""
    return max(("ok", *(check.verdict for check in checks)), key=VERDICTS.index)


def render_checks(host: str, checks: Sequence[Check], look: Look) -> str:
    """Return the text of the command."""
    signs = {"unknown": "?", "ok": look.signs.good, "warning": "!", "blocks": look.signs.bad}
    lines: list[Text] = []
    for check in checks:
        style = _STYLES[check.verdict]
        head = Text.assemble((f"{signs[check.verdict]} ", style), (check.check, "bold"), "  ")
        lines += wrap_line(Text.assemble(head, escape_text(check.detail)), look)
        lines += remedy_lines(check.next, look)
    end: dict[Verdict, str] = {
        "ok": "nothing speaks against a takeover",
        "warning": "see the warnings before the takeover",
        "blocks": "not yet: see what blocks the takeover",
    }
    verdict = worst_verdict(checks)
    closing = Text.assemble(escape_text(f"{host}: "), (end[verdict], _STYLES[verdict]))
    return to_string([*lines, Text(), closing], look)
