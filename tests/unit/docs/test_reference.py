"""The reference that is made from the code: everything has its text there."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from agent.api.openapi import document_names, document_schema, read
from agent.api.problem import KINDS
from agent.cli.command_table import AUDIT, COMMANDS
from tests.support.child import CHECKOUT
from tests.support.pages import PAGES as LINKING_PAGES
from tests.support.pages import blocks
from tests.support.reference import reference_pages

REFERENCE = reference_pages()
CODES = {
    code: (status, meaning, remedy) for code, status, meaning, remedy in REFERENCE.error_codes()
}


def test_every_error_code_has_a_meaning_and_a_remedy_where_it_is_defined():
    lacking = [code for code, (_, meaning, remedy) in CODES.items() if not meaning or not remedy]
    assert lacking == []


def test_every_code_with_a_status_is_defined():
    assert KINDS.keys() <= CODES.keys()
    assert {code: status for code, (status, *_) in CODES.items() if status} == {
        code: status for code, (status, _) in KINDS.items()
    }


def test_no_error_is_reported_with_a_code_that_is_defined_nowhere():
    """``Problem("...")`` with a code of its own would be missing in the reference."""
    written = set()
    for folder in ("agent", "drivers"):
        for file in (CHECKOUT / folder).rglob("*.py"):
            for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    isinstance(call, ast.Call)
                    and getattr(call.func, "id", "") in ("Problem", "plain")
                    and call.args
                    and isinstance(call.args[0], ast.Constant)
                ):
                    written.add(call.args[0].value)
    assert written <= CODES.keys()


def test_every_metric_has_a_meaning_a_unit_and_a_type():
    names = [name for name, *_ in REFERENCE.metrics()]
    assert len(names) == len(set(names)) > 30
    for name, kind, labels, meaning in REFERENCE.metrics():
        assert meaning, name
        assert kind in ("counter", "gauge", "histogram", "summary", "info"), name
        assert REFERENCE._unit(name, meaning) or name == "build_info", name
        assert len(labels) == len(set(labels)), name


def test_every_command_is_in_the_reference_with_its_options():
    page = "\n".join(REFERENCE.commands_page())
    for command in COMMANDS:
        assert f"## agent {' '.join(command.words)}\n" in page
        assert command.examples, command.words
        for argument in command.arguments:
            assert argument.help in page


def test_every_document_of_a_command_has_a_schema_and_every_schema_a_command():
    names = {command.document_name for command in (*COMMANDS, AUDIT)}
    assert names - {""} == document_names().keys()


def test_no_part_of_a_schema_is_defined_twice():
    parts = {
        name: schema
        for document in document_names()
        for name, schema in document_schema(document)["$defs"].items()
    }
    of_api = read()["components"]["schemas"]
    text = (CHECKOUT / "agent" / "api" / "documents.yaml").read_text(encoding="utf-8")
    own = set(re.findall(r"^  (\w+):", text.partition("\n$defs:\n")[2], re.MULTILINE))
    assert own & of_api.keys() == set()
    assert own <= parts.keys()


def test_every_request_of_the_api_is_in_the_reference():
    page = "\n".join(REFERENCE.api_page())
    for path, item in read()["paths"].items():
        for method in item:
            if method != "parameters":
                assert f"## {method.upper()} {path}\n" in page


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    REFERENCE.write_pages(folder)
    return folder


def test_all_pages_of_the_index_are_written(written):
    index = (CHECKOUT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    listed = {line for line in index.split("```")[1].split() if re.fullmatch(r"[a-z]+", line)}
    assert {file.stem for file in written.iterdir()} == listed - {"toctree", "maxdepth"}


def test_a_page_that_is_right_is_not_written_again(written):
    before = {file.name: file.stat().st_mtime_ns for file in written.iterdir()}
    REFERENCE.write_pages(written)
    assert {file.name: file.stat().st_mtime_ns for file in written.iterdir()} == before


def test_no_page_has_a_heading_twice(written):
    for file in written.iterdir():
        headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        anchors = [heading.lower() for heading in headings]
        assert len(anchors) == len(set(anchors)), file.name


def test_the_reference_and_the_command_line_need_no_extra() -> None:
    """psycopg, libvirt and placement are extras: an agent without them starts, and the pages are
    built.
    """
    extras = ", ".join(f"{name!r}: None" for name in REFERENCE.OF_EXTRAS)
    code = (
        f"import sys; sys.modules.update({{{extras}}}); sys.path.insert(0, 'docs')\n"
        "import reference, agent.cli.main, agent.bootstrap.components, agent.service.daemon\n"
        "reference.errors_page()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# --- examples that stand in a page are the files that are shipped ---


def test_the_example_of_provider_files_is_the_shipped_one() -> None:
    (shown,) = (
        block
        for block in blocks(CHECKOUT / "docs" / "provider-configuration.md")
        if block.language == "yaml"
    )
    shipped = CHECKOUT / "etc" / "provider_config" / "example.yaml"
    assert shown.text + "\n" == shipped.read_text(encoding="utf-8")


def test_the_containerfile_of_the_page_is_the_shipped_one() -> None:
    (shown,) = (
        block
        for block in blocks(CHECKOUT / "docs" / "containers.md")
        if block.language == "dockerfile"
    )
    shipped = CHECKOUT / "etc" / "container" / "Containerfile"
    assert shown.text + "\n" == shipped.read_text(encoding="utf-8")


# --- each task of an operator is one page ---


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


# --- the messages of docs/troubleshooting.md are in the code ---


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


# --- docs/weaknesses.md and docs/mended-faults.md ---


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
    assert len(counts) > 264
    assert [what for what, count in counts.items() if count > 1] == []


def test_every_test_that_a_page_names_exists() -> None:
    missing = [
        f"{row['file']}::{row['test']}"
        for page in PAGES.values()
        for row in ROW.finditer(page)
        if row["test"] not in functions_of(row["file"])
    ]
    assert missing == []


# --- rEADME and CONTRIBUTING, which Sphinx does not read ---


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
    pages = [*LINKING_PAGES, CHECKOUT / "bench" / "README.md", *tmp_path.glob("*.md")]
    empty = {
        str(page): found
        for page in pages
        if (found := re.findall(links, page.read_text(encoding="utf-8")))
    }
    assert len(LINKING_PAGES) > 40
    assert len(pages) > len(LINKING_PAGES) + 1
    assert empty == {}
