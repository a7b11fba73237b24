"""README and CONTRIBUTING, which Sphinx does not read: what comes first, and where their links lead.
All pages as they are read in the repository.
"""

import re

import pytest

from tests.support.child import CHECKOUT
from tests.support.pages import PAGES, blocks
from tests.support.reference import reference_pages

README = CHECKOUT / "README.md"


def test_the_picture_comes_first_then_two_commands():
    text = README.read_text(encoding="utf-8")
    assert (
        text.index("![")
        < text.index("    make audit ")
        < text.index("    make test ")
        < text.index("## ")
    )
    commands = [command for block in blocks(README) for command in block.commands]
    assert [command.partition("#")[0].strip() for command in commands] == [
        "make audit",
        "make test",
    ]


def test_it_says_what_it_is_for_whom_and_what_it_is_not():
    headings = re.findall(r"^## (.+)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["What it is", "For whom", "What it is not", "More"]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_leads_to_a_file(page):
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    assert targets
    assert [name for name in targets if not (CHECKOUT / name).is_file()] == []


def test_every_link_has_a_text_of_its_own(tmp_path):
    # Sphinx puts the title of the page there; who reads the repository would see nothing.
    links = r"(?<!`)\[\]\([^)]+\)"
    reference_pages().write_pages(tmp_path)
    pages = [*PAGES, CHECKOUT / "bench" / "README.md", *tmp_path.glob("*.md")]
    empty = {
        str(page): found
        for page in pages
        if (found := re.findall(links, page.read_text(encoding="utf-8")))
    }
    assert len(PAGES) > 40
    assert len(pages) > len(PAGES) + 1
    assert empty == {}
