"""Rendering of ``agent pci check``: a node's devices and the aliases, as documents and as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from agent.model.devices import DeviceRecord, PciAddress, PciDevice
from agent.model.names import ProviderUuid, number_of
from agent.model.report import Problem
from agent.pci.alias import Alias, Aliases, device_groups
from agent.pci.device_spec import DeviceSpec
from agent.pci.matching import Matched, PresentDevices, matched
from agent.pci.settings import PciSettings, device_rows
from agent.render.look import Look, hanging, shown, to_string
from agent.render.text import error_lines

Document = Mapping[str, Any]


def render_pci_check(found: Document, look: Look) -> str:
    """Return the text: the nodes, with what each object of ``device_spec`` offers there, and the
    aliases.
    """
    lines = [*hanging(shown(found["notice"], "italic"), look), Text()] if found["notice"] else []
    for node in found["nodes"]:
        problems = [Problem(one["code"], one["message"], one["remedy"]) for one in node["errors"]]
        lines += [
            shown(node["name"], "bold"),
            *(
                line
                for text in _node(node, found["report_in_placement"])
                for line in hanging(text, look)
            ),
        ]
        lines += [*error_lines(problems, look), Text()]
    if found["aliases"]:
        lines += [
            Text("aliases", "bold"),
            *(
                line
                for one in found["aliases"]
                for text in _alias(one)
                for line in hanging(text, look)
            ),
            Text(),
        ]
    return to_string(lines[:-1], look)


def _node(node: Document, report: bool) -> Iterator[Text]:
    by_address = {one["address"]: one for one in node["devices"]}
    for spec in node["specs"]:
        count = len(spec["devices"])
        what = f"{count or 'no'} device{'' if count == 1 else 's'}"
        yield Text.assemble(
            "  ", (spec["spec"], "bold"), "  ", (what, "green" if count else "yellow")
        )
        yield from (_device(by_address[address], report) for address in spec["devices"])
    others = [one for one in node["devices"] if one["serves"] in ("host", "nobody")]
    if others:
        yield Text("  not offered, on the same cards", "dim")
        yield from (_device(one, report=False) for one in others)
    if not node["specs"] and not node["errors"]:
        yield Text(
            f"  [pci] device_spec is not set; the host has {number_of(len(by_address), 'device')}"
        )


def _device(one: Document, report: bool) -> Text:
    words = [
        f"{one['vendor_id']}:{one['product_id']}",
        one["type"],
        *([f"NUMA node {one['numa_node']}"] if one["numa_node"] is not None else []),
    ]
    words += [
        f"{name}={value}"
        for name, value in sorted(one["tags"].items())
        if (name, value) != ("remote_managed", "false")
    ]
    if report and one["tags"].get("physical_network"):
        words.append("not counted in Placement")
    elif report:
        words += [one["resource_class"], *one["traits"]]
    if one["serves"] == "host":
        words.append(one["host_use"])
    return Text.assemble("    ", (one["address"], "bold"), shown("  " + "  ".join(words)))


def _alias(one: Document) -> Iterator[Text]:
    yield Text.assemble("  ", shown(one["name"], "bold"), f"  {one['numa_policy']}")
    for alternative in one["alternatives"]:
        yield shown(
            "    " + (", ".join(f"{name}={value}" for name, value in alternative.items()) or "any")
        )
    for group in one["groups"]:
        yield shown("    asks for " + "  ".join(_asked(group)))


def _asked(group: Document) -> Sequence[str]:
    traits = [*group["required"], *(f"!{name}" for name in group["forbidden"])]
    return [*(f"{name}:{amount}" for name, amount in group["resources"].items()), *traits]


def devices_document(
    node: ProviderUuid, devices: Iterable[PciDevice], settings: PciSettings
) -> Document:
    """Return the document of a node's devices, and of those that each object of ``device_spec``
    offers.
    """
    present = PresentDevices.of(devices)
    offered = {one.device.address: one for one in matched(present, settings.specs)}
    rows = {row.address: row for row in device_rows(node, present, settings.specs)}
    return {
        "specs": [_spec_document(spec, offered) for spec in settings.specs],
        "devices": [
            _device_document(one, present, offered.get(one.address), rows.get(str(one.address)))
            for one in present
        ],
    }


def aliases_document(aliases: Aliases) -> list[Document]:
    """Return the documents of the aliases, each with its request groups for one device."""
    return [
        {
            "name": one.name,
            "numa_policy": one.policy,
            "alternatives": [alternative.spec for alternative in one.alternatives],
            "groups": list(_groups(one)),
        }
        for one in aliases.values()
    ]


def _groups(alias: Alias) -> Iterator[Document]:
    for alternative in alias.alternatives:
        for group in device_groups("", 1, alternative):
            yield {
                "resources": dict(group.resources),
                "required": sorted(group.required),
                "forbidden": sorted(group.forbidden),
            }


def _spec_document(spec: DeviceSpec, offered: Mapping[PciAddress, Matched]) -> Document:
    return {
        "spec": spec.place,
        "devices": [str(address) for address, one in offered.items() if one.spec is spec],
    }


def _device_document(
    device: PciDevice, present: PresentDevices, one: Matched | None, row: DeviceRecord | None
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
        "spec": one.spec.place if one is not None else None,
        "resource_class": one.resource_class if one is not None else None,
        "traits": sorted(one.traits) if one is not None else None,
    }
