"""docs/weaknesses.md and docs/mended-faults.md: each has the classes, no entry is there twice, every
named test exists.
"""

import ast
import re
from collections import Counter
from functools import cache

import pytest

from tests.support.child import CHECKOUT

PAGES = {
    name: (CHECKOUT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("weaknesses", "mended-faults")
}
CLASSES = ["284", "435", "664", "682", "691", "693", "697", "703", "707", "710"]
ROW = re.compile(r"- (?P<what>.+): `(?P<file>[\w/]+\.py)::(?P<test>test_\w+)`")


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the test functions in a file below tests/, none if there is no such file."""
    path = CHECKOUT / "tests" / file
    if not path.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_class_has_entries(page: str) -> None:
    sections = re.split(r"^## CWE-", PAGES[page], flags=re.MULTILINE)[1:]
    assert [section.partition(":")[0] for section in sections] == CLASSES
    assert [section for section in sections if not ROW.search(section)] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_entry_has_a_weakness_and_a_test(page: str) -> None:
    lines = [line for line in PAGES[page].splitlines() if line.startswith("- ")]
    assert [line for line in lines if not ROW.fullmatch(line)] == []


def test_no_weakness_is_there_twice() -> None:
    counts = Counter(row["what"] for page in PAGES.values() for row in ROW.finditer(page))
    assert len(counts) > 300
    assert [what for what, count in counts.items() if count > 1] == []


def test_every_test_that_a_page_names_exists() -> None:
    missing = [
        f"{row['file']}::{row['test']}"
        for page in PAGES.values()
        for row in ROW.finditer(page)
        if row["test"] not in functions_of(row["file"])
    ]
    assert missing == []
