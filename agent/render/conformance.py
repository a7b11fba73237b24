"""Rendering of ``agent driver check``: each promise with its state and what breaks it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from agent.conformance.check import CheckedPromise, PromiseState
from agent.conformance.suite import Conformance
from agent.model.names import number_of
from agent.render.look import Look, escape_text, to_string, wrap_line

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


def render_conformance(conformance: Conformance, look: Look) -> str:
    """Return the text of the command."""
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
        yield from wrap_line(escape_text(f"    {breach}", style), look)
    if len(promise.breaches) > SHOWN:
        yield Text(f"    and {len(promise.breaches) - SHOWN} more", style)
    if promise.state == "broken":
        remedy = f"  {look.signs.change} {promise.check.remedy}"
        yield from wrap_line(escape_text(remedy, style), look)


def _closing(conformance: Conformance) -> Sequence[Text]:
    parts = [Text(f"{number_of(len(conformance.having('held')), 'promise')} held", "green")]
    states: tuple[PromiseState, ...] = ("broken", "unchecked")
    for state in states:
        if found := conformance.having(state):
            parts.append(Text(f", {len(found)} {state}", _STYLES[state]))
    parts.append(Text(f", {len(conformance.having('not-applicable'))} not applicable"))
    checked = len(conformance.checked)
    nodes = number_of(conformance.listed, "node")
    sample = nodes if checked == conformance.listed else f"{checked} of {nodes}; --all for all"
    return [*parts, Text(f" ({sample})")]
