"""Rendering of ``agent driver check``: each promise with its state and what breaks it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from agent.driver.conformance.check import Breach, CheckedPromise, Conformance, PromiseState
from agent.model.names import name_first, number_of, printable
from agent.render.look import Look, escape_text, table_lines, to_string, wrap_line

SCHEMA = "compute-node-agent/driver-check/1"
SHOWN = 10
"""How many breaches of one promise the text shows."""
_STYLES: dict[PromiseState, str] = {
    "held": "green",
    "broken": "red",
    "unchecked": "yellow",
    "not-applicable": "dim",
}


def conformance_document(conformance: Conformance, exit_code: int) -> dict[str, Any]:
    """Return the document of the command."""
    return {
        "schema": SCHEMA,
        "driver": conformance.driver,
        "nodes": {"listed": conformance.listed, "checked": list(conformance.checked)},
        "checks": [
            {
                "check": promise.check.name,
                "promise": promise.check.promise,
                "state": promise.state,
                "breaches": [asdict(breach) for breach in promise.breaches],
                "note": promise.note,
                "remedy": promise.check.remedy if promise.state == "broken" else "",
            }
            for promise in conformance.promises
        ],
        "notes": list(conformance.notes),
        "errors": [],
        "exit_code": exit_code,
    }


def render_conformance(conformance: Conformance, look: Look, *, as_table: bool) -> str:
    """Return the text of the command; ``as_table``: one line for each check."""
    if as_table:
        rows = [
            (promise.state, promise.check.name, _summary(promise))
            for promise in conformance.promises
        ]
        return to_string(table_lines(("state", "check", "detail"), rows, 3), look)
    lines: list[Text] = []
    for promise in conformance.promises:
        if promise.state != "not-applicable" or look.wide:
            lines += _promise_lines(promise, look)
    for note in conformance.notes:
        lines += wrap_line(escape_text(f"{look.signs.dot} {note}", "yellow"), look)
    closing = Text.assemble(escape_text(f"{conformance.driver}: "), *_closing(conformance))
    return to_string([*lines, Text(), *wrap_line(closing, look)], look)


def _promise_lines(promise: CheckedPromise, look: Look) -> Iterator[Text]:
    signs = {"held": look.signs.good, "broken": look.signs.bad, "unchecked": "?"}
    style = _STYLES[promise.state]
    head = Text.assemble(
        (f"{signs.get(promise.state, look.signs.dot)} ", style), (promise.check.name, "bold"), "  "
    )
    yield from wrap_line(head + escape_text(promise.check.promise), look)
    if promise.note:
        yield from wrap_line(escape_text(f"    {promise.state}: {promise.note}", style), look)
    for breach in promise.breaches[:SHOWN]:
        yield from wrap_line(escape_text(f"    {_breach_text(breach)}", style), look)
    if len(promise.breaches) > SHOWN:
        yield Text(f"    and {len(promise.breaches) - SHOWN} more", style)
    if promise.state == "broken":
        remedy = f"  {look.signs.change} {promise.check.remedy}"
        yield from wrap_line(escape_text(remedy, style), look)


def _summary(promise: CheckedPromise) -> str:
    texts = [_breach_text(breach) for breach in promise.breaches]
    return name_first(texts, 1, "; ") or promise.note or promise.check.promise


def _breach_text(breach: Breach) -> str:
    return f"{printable(breach.node)}: {breach.detail}" if breach.node else breach.detail


def _closing(conformance: Conformance) -> Sequence[Text]:
    broken, unchecked = conformance.count("broken"), conformance.count("unchecked")
    parts = [Text(f"{number_of(conformance.count('held'), 'promise')} held", _STYLES["held"])]
    if broken:
        parts.append(Text(f", {broken} broken", _STYLES["broken"]))
    if unchecked:
        parts.append(Text(f", {unchecked} unchecked", _STYLES["unchecked"]))
    parts.append(Text(f", {conformance.count('not-applicable')} not applicable"))
    checked = len(conformance.checked)
    nodes = number_of(conformance.listed, "node")
    sample = nodes if checked == conformance.listed else f"{checked} of {nodes}; --all for all"
    return [*parts, Text(f" ({sample})")]
