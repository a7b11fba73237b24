"""Rendering of the state of the daemon and its nodes, as text."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from agent.model.finding import WELL, Drift
from agent.model.names import number_of, printable
from agent.render.document import Document, all_drift_lines, command_line, error_lines, problems_in
from agent.render.look import (
    Look,
    Text,
    escape_text,
    state_style,
    table_lines,
    to_string,
    wrap_line,
)

NODES = (
    "node",
    "state",
    "driver",
    "audited",
    "last well",
    "providers",
    "instances",
    "drift",
    "errors",
)
NODES_AT_MOST = 20
"""Beyond this number of nodes, each node has one line, and those that are well have no more."""


def status_lines(
    daemon: Document | None, nodes: Sequence[Document], now: float, look: Look
) -> list[Text]:
    """Return the lines of ``agent status``.

    ``daemon``: None if none runs. ``nodes``: summaries of the local API. ``now``: seconds since the
    epoch.
    """
    lines = [line for text in _daemon(daemon) for line in wrap_line(text, look)]
    if len(nodes) > NODES_AT_MOST:
        failing = [node for node in nodes if node["errors"]]
        lines += [Text(), *table_lines(NODES, [_row(node, now) for node in nodes], 5)]
        lines += [
            line
            for node in failing[:NODES_AT_MOST]
            for line in (Text(), _node(node), *_errors(node, look))
        ]
        if (more := len(failing) - NODES_AT_MOST) > 0:
            text = f"and {number_of(more, 'node')} more with errors: see all with --format json"
            lines += [Text(), Text(text, "dim")]
        return lines
    for node in nodes:
        facts = escape_text("  " + f" {look.signs.dot} ".join(_facts(node, now)), "dim")
        lines += [Text(), _node(node), *wrap_line(facts, look), *_errors(node, look)]
    return lines


def watch_lines(found: Document, failure: str, now: float, look: Look) -> list[Text]:
    """Return the status as ``agent status --watch`` shows it: when it was seen, and nodes that are
    not well first. ``failure``: why it could not be seen again; empty if it was.
    """
    nodes = sorted(
        found["nodes"],
        key=lambda node: (node["state"] in WELL, not node["drift_warnings"], node["name"]),
    )
    told = [escape_text(f"no answer: {failure}", "bold red")] if failure else []
    seen = Text(f"{_moment(now)}; ^C ends", "dim")
    return [seen, *told, *status_lines(found["daemon"], nodes, now, look)]


def plain_lines(found: Document, failure: str, now: float) -> Iterator[str]:
    """Yield one line for the daemon and one for each node, for output that is no terminal."""
    at = _moment(now)
    if failure:
        yield f"{at} no answer: {failure}"
        return
    yield f"{at} {'; '.join(text.plain for text in _daemon(found['daemon']))}"
    for node in found["nodes"]:
        facts = ", ".join([*_facts(node, now), number_of(len(node["errors"]), "error")])
        yield f"{at} {printable(node['name'])} {node['state'] or 'unknown'}: {printable(facts)}"


def _row(node: Document, now: float) -> tuple[str, ...]:
    ages = (
        _ago(node[name], now) if node[name] else "-"
        for name in ("audited_at", "last_good_audit_at")
    )
    instances = str(node["usage"]["instances"]) if node["usage"] else "-"
    return (
        node["name"],
        node["state"] or "-",
        node["driver"] or "-",
        *ages,
        str(node["providers"]),
        instances,
        str(node["drift"] or 0),
        str(len(node["errors"])),
    )


def _errors(node: Document, look: Look) -> list[Text]:
    return error_lines(problems_in(node["errors"]), look)


def render_drift(nodes: Sequence[Document], now: float, look: Look) -> str:
    """Return the text of ``agent drift``, from documents of the local API. Of many nodes, those
    without drift are only counted.
    """
    lines: list[Text] = []
    without = [node for node in nodes if node["drift"] == []] if len(nodes) > NODES_AT_MOST else []
    for node in (node for node in nodes if node["drift"] or not without):
        lines += [*([Text()] if lines else []), _node(node)]
        if (
            node["drift"] is not None
            and node["state"] not in WELL
            and node["last_good_audit_at"] != node["audited_at"]
        ):
            good = node["last_good_audit_at"]
            known = (
                f"the last audit was incomplete; the last good audit was {_ago(good, now)}"
                if good
                else "no audit was good yet"
            )
            lines += wrap_line(escape_text(f"  {known}", "dim"), look)
        if since := found_since(node):
            lines.append(Text(f"  {since}", "dim"))
        if node["drift"] is None:
            way = command_line("agent --once --dry-run")
            lines += [Text(f"  unknown: only an audit finds it: {way}", "yellow")]
            continue
        incomplete = since and node["state"] not in WELL
        none = "no drift is known: the last audit was incomplete" if incomplete else "no drift"
        found = [
            Drift(
                drift["kind"],
                drift["severity"],
                drift["detail"],
                drift["remedy"],
                drift.get("provider"),
                drift.get("consumer"),
            )
            for drift in node["drift"]
        ]
        names = {
            drift["provider"]: drift["provider_name"]
            for drift in node["drift"]
            if "provider_name" in drift
        }
        lines += all_drift_lines(found, look, names=names) or [Text(f"  {none}", "dim")]
    if without:
        lines += [
            *([Text()] if lines else []),
            Text(f"{number_of(len(without), 'node')} without drift", "dim"),
        ]
    return to_string(lines or [Text("no nodes", "dim")], look)


def _daemon(daemon: Document | None) -> Iterator[Text]:
    if daemon is None:
        yield Text("the daemon was not asked; this is what the store knows", "yellow")
        return
    yield escape_text(daemon["status"], "bold green" if daemon["ready"] else "bold yellow")
    if len(daemon["reasons"]) > 1:
        yield from (escape_text(f"  {reason}") for reason in daemon["reasons"])


def _node(node: Document) -> Text:
    state = node["state"]
    shown_state = escape_text(f"  {state}", f"bold {state_style(state)}") if state else Text()
    return Text.assemble(escape_text(node["name"], "bold"), shown_state)


def _facts(node: Document, now: float) -> Iterator[str]:
    if node["driver"]:
        yield f"driver {node['driver']}"
    yield node["uuid"]
    yield number_of(node["providers"], "provider")
    if node["drift"]:
        yield (
            f"drift: {', '.join(f'{count} {kind}' for kind, count in node['drift_kinds'].items())} "
            "(agent drift)"
        )
    if usage := node["usage"]:
        yield (
            f"used or reserved: {number_of(usage['vcpus_used'], 'CPU')}, "
            f"{usage['memory_mb_used']} MiB memory, {usage['disk_mb_used']} MiB disk"
        )
        yield ", ".join(
            number_of(usage[f"{noun}s"], noun) for noun in ("instance", "claim", "migration")
        )
    if since := found_since(node):
        yield since
    if node["audited_at"]:
        yield f"audited {_ago(node['audited_at'], now)}"
        if node["last_good_audit_at"] is None:
            yield "never well yet"
        elif node["last_good_audit_at"] < node["audited_at"]:
            yield f"last well {_ago(node['last_good_audit_at'], now)}"


def found_since(node: Document) -> str:
    """Return since when audits find what the store has of the node; empty if a daemon tells it."""
    found_at = node.get("found_at")
    if not found_at:
        return ""
    since = f"as audits have found it since {_moment(found_at)}"
    return f"{since}; only an audit finds whether it is so still"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(at: float, now: float) -> str:
    return f"{max(0, now - at):.0f} s ago"
