"""What ``agent pci check`` found, as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from agent.model.names import number_of
from agent.model.report import Problem
from agent.render.look import Look, hanging, shown, to_string
from agent.render.text import error_lines

Document = Mapping[str, Any]


def render_pci_check(found: Document, look: Look) -> str:
    """The nodes with what each object of ``device_spec`` offers there, then the aliases."""
    lines = [*hanging(shown(found["notice"], "italic"), look), Text()] if found["notice"] else []
    for node in found["nodes"]:
        problems = [Problem(one["code"], one["message"], one["remedy"]) for one in node["errors"]]
        lines += [shown(node["name"], "bold"), *(line for text in _node(node, found["report_in_placement"]) for line in hanging(text, look))]
        lines += [*error_lines(problems, look), Text()]
    if found["aliases"]:
        lines += [Text("aliases", "bold"), *(line for one in found["aliases"] for text in _alias(one) for line in hanging(text, look)), Text()]
    return to_string(lines[:-1], look)


def _node(node: Document, report: bool) -> Iterator[Text]:
    by_address = {one["address"]: one for one in node["devices"]}
    for spec in node["specs"]:
        count = len(spec["devices"])
        what = f"{count or 'no'} device{'' if count == 1 else 's'}"
        yield Text.assemble("  ", (spec["spec"], "bold"), "  ", (what, "green" if count else "yellow"))
        yield from (_device(by_address[address], report) for address in spec["devices"])
    others = [one for one in node["devices"] if one["serves"] in ("host", "nobody")]
    if others:
        yield Text("  not offered, on the same cards", "dim")
        yield from (_device(one, report=False) for one in others)
    if not node["specs"] and not node["errors"]:
        yield Text(f"  [pci] device_spec is not set; the host has {number_of(len(by_address), 'device')}")


def _device(one: Document, report: bool) -> Text:
    words = [f"{one['vendor_id']}:{one['product_id']}", one["type"], *([f"NUMA node {one['numa_node']}"] if one["numa_node"] is not None else [])]
    words += [f"{name}={value}" for name, value in sorted(one["tags"].items()) if (name, value) != ("remote_managed", "false")]
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
        yield shown("    " + (", ".join(f"{name}={value}" for name, value in alternative.items()) or "any"))
    for group in one["groups"]:
        yield shown("    asks for " + "  ".join(_asked(group)))


def _asked(group: Document) -> Sequence[str]:
    traits = [*group["required"], *(f"!{name}" for name in group["forbidden"])]
    return [*(f"{name}:{amount}" for name, amount in group["resources"].items()), *traits]
