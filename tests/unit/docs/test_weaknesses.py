"""docs/weaknesses.md: every class is there, every weakness has an answer, every named test exists."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.support.child import CHECKOUT

PAGE = (CHECKOUT / "docs" / "weaknesses.md").read_text(encoding="utf-8")
CLASSES = ("284", "435", "664", "682", "691", "693", "697", "703", "707", "710")
PARTS = ("In nova-compute", "In the first release")
ENTRY = re.compile(
    r"\*\*(?P<title>[^*]+[.!])\*\* [^*]+[.!] \*Here:\* (?P<here>no|in part): [^*]+\. "
    r"\*(?P<shown>Test|No test):\* [^*]+\."
)
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@dataclass(frozen=True, slots=True)
class Weakness:
    """One entry of the page, on one line."""

    cwe: str
    part: str
    text: str

    def told(self, what: str) -> str:
        """The title, whether the weakness is possible here, or what shows the answer."""
        found = ENTRY.fullmatch(self.text)
        assert found, f"CWE-{self.cwe}: {self.text}"
        return found[what]

    @property
    def tests(self) -> list[tuple[str, str]]:
        """The named tests: file below tests/, function."""
        return TEST.findall(self.text)


def weaknesses() -> Iterator[Weakness]:
    """Yield the entries in the order of the page."""
    for section in re.split(r"^## CWE-", PAGE, flags=re.MULTILINE)[1:]:
        cwe = section.partition(":")[0]
        for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
            heading, _, entries = part.partition(f", CWE-{cwe}\n")
            for entry in re.split(r"^- ", entries, flags=re.MULTILINE)[1:]:
                yield Weakness(cwe, heading, " ".join(entry.split()))


ALL = tuple(weaknesses())


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
    assert tuple(dict.fromkeys(weakness.cwe for weakness in ALL)) == CLASSES
    found = {(weakness.cwe, weakness.part) for weakness in ALL}
    assert found == {(cwe, part) for cwe in CLASSES for part in PARTS}
    assert len(ALL) > 200


def test_each_weakness_says_whether_it_is_possible_here_and_what_shows_the_answer() -> None:
    for weakness in ALL:
        assert bool(weakness.tests) == (weakness.told("shown") == "Test"), weakness.text


def test_no_weakness_is_there_twice() -> None:
    counts = Counter(weakness.told("title") for weakness in ALL)
    assert [title for title, count in counts.items() if count > 1] == []


def test_every_test_that_the_page_names_exists() -> None:
    named = {test for weakness in ALL for test in weakness.tests}
    assert len(named) == len(set(TEST.findall(PAGE))) > 250
    assert [f"{file}::{name}" for file, name in named if name not in functions_of(file)] == []


def test_the_table_counts_what_is_on_the_page() -> None:
    def counted(cwe: str | None) -> list[str]:
        found = [weakness for weakness in ALL if cwe in (None, weakness.cwe)]
        counts = [
            *(sum(weakness.part == part for weakness in found) for part in PARTS),
            sum(weakness.told("here") == "in part" for weakness in found),
            sum(weakness.told("shown") == "No test" for weakness in found),
        ]
        return [str(count) for count in counts]

    rows = re.findall(r"^\| (?:\[(\d+)\]\S+)? *\| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE)
    assert {cwe or None: counts.split(" | ") for cwe, counts in rows} == {
        cwe: counted(cwe) for cwe in (*CLASSES, None)
    }
