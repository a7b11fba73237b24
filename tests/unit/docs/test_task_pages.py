"""Each task of an operator is one page: what it gives, then commands or options, then what can go
wrong.
"""

import re

import pytest

from tests.support.child import CHECKOUT

DOCS = CHECKOUT / "docs"
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
TASKS = (
    "quick-start",
    "install",
    "containers",
    "nova",
    "inside-nova-compute",
    "take-over",
    "import-guests",
    "libvirt",
    "ironic",
    "numa",
    "pci",
    "vgpu",
    "shared-storage",
    "provider-configuration",
    "shared-store",
    "monitoring",
    "backup",
    "decommission",
    "local-api",
)
SOON = 40
"""Lines within which a page shows the first thing to type."""


@pytest.mark.parametrize("name", TASKS)
def test_a_page_says_what_it_gives_then_shows_commands_then_what_can_go_wrong(name: str) -> None:
    lines = (DOCS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert re.match(r"[A-Z`]", lines[2]), "a paragraph follows the title"
    typed = next(
        number for number, line in enumerate(lines) if line.startswith(("    ", "```ini", "```{"))
    )
    assert typed < SOON
    assert typed < lines.index("## What can go wrong")


def test_every_task_is_in_the_map_of_the_index() -> None:
    mapped = re.findall(r"^- [^:]+: \[[^]]+\]\(([\w-]+)\.md\)$", INDEX, re.MULTILINE)
    assert {*TASKS} <= {*mapped}
    assert len(mapped) == len({*mapped})
