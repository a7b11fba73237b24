"""docs/glossary.md has each term once, with a meaning; docs/index.md has every page."""

import re
from collections import Counter

from tests.support.child import CHECKOUT

PAGE = CHECKOUT / "docs" / "glossary.md"
ROWS = re.findall(r"^- \*\*([^*]+)\*\*: (.+)$", PAGE.read_text(), re.M)


def test_every_term_has_a_meaning():
    assert len(ROWS) > 30
    for term, meaning in ROWS:
        assert meaning.endswith("."), term


def test_no_term_is_there_twice():
    counts = Counter(name for term, _ in ROWS for name in term.split(", "))
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_page_of_docs_is_in_the_index():
    index = " ".join((CHECKOUT / "docs" / "index.md").read_text().split("```")[1::2]).split()
    pages = {page.stem for page in (CHECKOUT / "docs").glob("*.md")} - {"index"}
    assert pages - set(index) == {"configuration"}, "configuration is in the index of the reference"
