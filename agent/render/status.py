"""How the daemon and its nodes are, as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from agent.model.report import Problem
from agent.render.look import Look, hanging, shown, to_string
from agent.render.node_lines import STATE_STYLES
from agent.render.text import error_lines

Document = Mapping[str, Any]


def render_status(daemon: Document | None, nodes: Sequence[Document], now: float, look: Look) -> str:
    """The daemon, None if there is none, and its nodes as summaries of the local API. ``now``: seconds since the epoch."""
    lines = [line for text in _daemon(daemon) for line in hanging(text, look)]
    for node in nodes:
        problems = [Problem(one["code"], one["message"], one["remedy"]) for one in node["errors"]]
        lines += [Text(), _node(node), *hanging(shown("  " + f" {look.signs.dot} ".join(_facts(node, now)), "dim"), look), *error_lines(problems, look)]
    return to_string(lines, look)


def _daemon(daemon: Document | None) -> Iterator[Text]:
    if daemon is None:
        yield Text("the daemon was not asked; this is what the store knows", "yellow")
        return
    yield shown(daemon["status"], "bold green" if daemon["ready"] else "bold yellow")
    if len(daemon["reasons"]) > 1:
        yield from (shown(f"  {reason}") for reason in daemon["reasons"])


def _node(node: Document) -> Text:
    state = node["state"]
    shown_state = Text(f"  {state}", f"bold {STATE_STYLES[state]}") if state else Text()
    return Text.assemble(shown(node["name"], "bold"), shown_state)


def _facts(node: Document, now: float) -> Iterator[str]:
    if node["driver"]:
        yield f"driver {node['driver']}"
    yield node["uuid"]
    yield f"{node['providers']} provider{'' if node['providers'] == 1 else 's'}"
    if node["drift"]:
        yield f"drift {node['drift']}"
    if usage := node["usage"]:
        yield f"used: {usage['vcpus_used']} CPUs, {usage['memory_mb_used']} MiB memory, {usage['disk_mb_used']} MiB disk"
        yield f"{usage['instances']} instances, {usage['claims']} claims, {usage['migrations']} migrations"
    if node["audited_at"]:
        yield f"audited {max(0, now - node['audited_at']):.0f} s ago"
