"""docs/glossary.md names what is in the code, and each term once."""

import re
from collections import Counter

import pytest

from tests.support.child import CHECKOUT
from tests.support.page_names import code_names, imported

PAGE = CHECKOUT / "docs" / "glossary.md"
ROWS = re.findall(
    r"^\| (?!term \|)([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.M
)


@pytest.mark.parametrize("name", code_names(PAGE))
def test_the_code_has_what_the_glossary_names(name):
    assert imported(name) is not None


def test_every_term_has_a_meaning_and_a_name_in_the_code():
    assert len(ROWS) > 60
    for term, meaning, _, code in ROWS:
        assert meaning.endswith("."), term
        assert re.fullmatch(r"`[\w.]+`(, `[\w.]+`)*", code), term


def test_no_term_is_there_twice():
    counts = Counter(name for term, *_ in ROWS for name in term.split(", "))
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_page_of_docs_is_in_the_index():
    index = " ".join((CHECKOUT / "docs" / "index.md").read_text().split("```")[1::2]).split()
    pages = {page.stem for page in (CHECKOUT / "docs").glob("*.md")} - {"index"}
    assert pages - set(index) == {"configuration"}, "configuration is in the index of the reference"


def test_a_name_that_is_gone_is_noticed():
    with pytest.raises(AttributeError):
        imported("agent.model.provider_tree.NoSuchThing")
