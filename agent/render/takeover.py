"""Rendering of ``agent takeover check``: each check with its verdict and the next command."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.render.look import Look, Text, escape_text, to_string, wrap_line

Verdict = Literal["ok", "warning", "blocks"]
VERDICTS: tuple[Verdict, ...] = ("ok", "warning", "blocks")
"""From the best to the worst."""
SCHEMA = "compute-node-agent/takeover-check/1"
_STYLES: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "blocks": "red"}


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
    """Return the worst verdict of ``checks``."""
    return max((check.verdict for check in checks), key=VERDICTS.index, default="ok")


def render_checks(host: str, checks: Sequence[Check], look: Look) -> str:
    """Return the text of the command."""
    signs = {"ok": look.signs.good, "warning": "!", "blocks": look.signs.bad}
    lines: list[Text] = []
    for check in checks:
        style = _STYLES[check.verdict]
        head = Text.assemble((f"{signs[check.verdict]} ", style), (check.check, "bold"), "  ")
        lines += wrap_line(Text.assemble(head, escape_text(check.detail)), look)
        if check.next:
            lines += wrap_line(escape_text(f"  {look.signs.change} {check.next}", style), look)
    end: dict[Verdict, str] = {
        "ok": "nothing speaks against a takeover",
        "warning": "see the warnings before the takeover",
        "blocks": "not yet: see what blocks the takeover",
    }
    verdict = worst_verdict(checks)
    closing = Text.assemble(escape_text(f"{host}: "), (end[verdict], _STYLES[verdict]))
    return to_string([*lines, Text(), closing], look)
