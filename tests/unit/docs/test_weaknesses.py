"""docs/weaknesses.md: every class is there, no weakness is there twice, every named test exists."""

import ast
import re
from collections import Counter
from functools import cache

from tests.support.child import CHECKOUT

PAGE = (CHECKOUT / "docs" / "weaknesses.md").read_text(encoding="utf-8")
CLASSES = ["284", "435", "664", "682", "691", "693", "697", "703", "707", "710"]
ROW = re.compile(
    r"\| (?P<what>[^|]+) \| (?P<of>nova|release 1) \| (?:no|in part: [^|]+) "
    r"\| `(?P<file>[\w/]+\.py)::(?P<test>test_\w+)` \|"
)
HEAD = ["| weakness | of | here | test |", "|---|---|---|---|"]


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


def test_every_class_has_weaknesses_of_both_programs() -> None:
    sections = re.split(r"^## CWE-", PAGE, flags=re.MULTILINE)[1:]
    assert [section.partition(":")[0] for section in sections] == CLASSES
    for section in sections:
        assert {row["of"] for row in ROW.finditer(section)} == {"nova", "release 1"}


def test_each_row_has_a_weakness_an_answer_and_a_test() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and line not in HEAD]
    assert [line for line in lines if not ROW.fullmatch(line)] == []


def test_no_weakness_is_there_twice() -> None:
    counts = Counter(row["what"] for row in ROW.finditer(PAGE))
    assert [what for what, count in counts.items() if count > 1] == []


def test_every_test_that_the_page_names_exists() -> None:
    missing = [
        f"{row['file']}::{row['test']}"
        for row in ROW.finditer(PAGE)
        if row["test"] not in functions_of(row["file"])
    ]
    assert missing == []
