"""Every command and code block of README and docs runs, or says why it does not."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT
from tests.support.pages import (
    PAGES,
    Block,
    PageSite,
    blocks,
    check_commands,
    check_ini,
    check_note,
    check_python,
    check_words,
    masked,
    named_commands,
)
from tests.support.terminal import PICTURE, draw, picture_output, text_of

ALL = [block for page in PAGES for block in blocks(page)]
RUN = [
    block
    for block in ALL
    if block.note == "file" or (not block.note and block.language in ("console", "indented"))
]


@pytest.mark.parametrize("block", ALL, ids=str)
def test_a_block_is_right_or_says_why_nobody_looks(block: Block, tmp_path: Path) -> None:
    check_commands(block)
    if block.note in ("run", "not run"):
        check_note(block)
    elif block.language == "ini":
        check_ini(block, tmp_path)
    elif block.language == "python":
        check_python(block)
    else:
        assert block in RUN, f"{block}: say with a comment which test runs it, or why none does"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_the_commands_that_the_text_of_a_page_names_exist(page: Path) -> None:
    for arguments in named_commands(page):
        check_words(arguments)


@pytest.mark.parametrize(
    ("page", "found"),
    [(page, list(found)) for page, found in groupby(RUN, lambda block: block.page)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_commands_of_a_page_run_in_its_order(
    page: str, found: Sequence[Block], tmp_path: Path
) -> None:
    site = PageSite(tmp_path / "agent")
    for block in found:
        site.check(block)


def test_the_picture_is_what_the_first_command_of_the_quick_start_writes(tmp_path: Path) -> None:
    shown = text_of(PICTURE.read_text(encoding="utf-8"))
    now = text_of(draw(picture_output(tmp_path / "agent")))
    assert masked(shown) == masked(now)
    assert "compute-1_NUMA0" in shown
