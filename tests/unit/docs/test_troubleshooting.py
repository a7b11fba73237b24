"""The messages of docs/troubleshooting.md are in the code."""

import ast
import re
from functools import cache

import pytest

from tests.support.child import CHECKOUT
from tests.support.reference import reference_pages

PAGE = (CHECKOUT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^- `([^`]+)`: .+ → ", PAGE, re.MULTILINE)


@cache
def texts() -> str:
    """All strings of the code, parts of f-strings joined with ``{}`` between them."""
    found = []
    for folder in ("agent", "drivers"):
        for file in (CHECKOUT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        part.value if isinstance(part, ast.Constant) else "{}"
                        for part in node.values
                    ]
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(re.sub(r"\{\w*\}", "{}", text) for text in found)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_agent_has_the_message(message):
    codes = {code for code, *_ in reference_pages().error_codes()}
    assert message in codes or re.sub(r"\{\w*\}", "{}", message) in texts()


def test_there_are_messages_of_each_kind():
    assert len(MESSAGES) >= 25
