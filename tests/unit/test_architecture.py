"""docs/architecture.md is short and has the layers that are checked; what it and docs/a-pass.md name
is in the code.
"""

# ---
# The names of modules, classes and functions that a page of docs has in backticks.
import ast
import configparser
import importlib
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT

NAME = re.compile(r"`((?:agent|drivers)(?:\.\w+)+)`")
PATH = re.compile(r"`((?:agent|drivers|tests|bench)/[\w/]*(?:\.\w+)?)`")


def code_names(page: Path) -> list[str]:
    """Dotted names such as `agent.x.y.Name`, each once, in the order of their first appearance."""
    return list(dict.fromkeys(NAME.findall(page.read_text(encoding="utf-8"))))


def code_paths(page: Path) -> list[str]:
    """Paths such as `agent/x/y.py`, each once."""
    return list(dict.fromkeys(PATH.findall(page.read_text(encoding="utf-8"))))


def imported(name: str) -> object:
    """The module, class, function or method called ``name``.

    :raises ModuleNotFoundError, AttributeError: there is none.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            if length == 1:
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


PAGE = CHECKOUT / "docs" / "architecture.md"
A_PASS = CHECKOUT / "docs" / "a-pass.md"


@pytest.mark.parametrize("name", sorted({*code_names(PAGE), *code_names(A_PASS)}))
def test_the_code_has_what_the_page_names(name):
    assert imported(name) is not None


@pytest.mark.parametrize(
    "page",
    [*sorted((CHECKOUT / "docs").glob("*.md")), CHECKOUT / "CONTRIBUTING.md"],
    ids=lambda it: it.stem,
)
def test_the_files_that_a_page_names_are_there(page):
    assert [path for path in code_paths(page) if not (CHECKOUT / path).exists()] == []


def test_the_page_has_at_most_200_lines():
    assert len(PAGE.read_text().splitlines()) <= 200


def test_every_package_has_its_line():
    table = re.findall(r"^\| [\d–]+ \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    named = set(re.findall(r"`([\w.]+)`", " ".join(table)))
    packages = {f"agent.{file.parent.name}" for file in (CHECKOUT / "agent").glob("*/__init__.py")}
    assert packages | {"drivers"} <= named


def test_the_layers_are_in_the_order_that_import_linter_checks():
    config = configparser.ConfigParser()
    config.read(CHECKOUT / ".importlinter")
    checked = [
        {name.strip() for name in line.split("|")}
        for line in config["importlinter:contract:layers"]["layers"].split("\n")
        if line.strip()
    ]
    height = {name: -depth for depth, names in enumerate(checked) for name in names}
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    layers = [
        (int(layer), name) for layer, names in rows for name in re.findall(r"`([\w.]+)`", names)
    ]
    assert {name for _, name in layers} | {"agent.__main__"} == height.keys()
    for layer, name in layers:
        for other_layer, other in layers:
            # The lowest layers share one line of the page.
            if layer > other_layer:
                assert height[name] > height[other], (name, other)
            elif layer == other_layer > 1:
                assert height[name] == height[other], (name, other)


# --- names of classes, each of which means one thing ---


ROOT = Path(__file__).resolve().parents[2]


def test_no_class_has_the_name_of_another_one() -> None:
    places = defaultdict[str, list[str]](list)
    for package in ("agent", "drivers"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


# --- what bandit passes over in the product has a reason ---


EXCEPTION = re.compile(r"# (?:noqa: S\d+ -+ )?\w[^#]+ # nosec B\d+(?:, B\d+)*$")


def test_every_line_that_is_excepted_says_why_and_from_which_check():
    lines = {
        f"{file.relative_to(CHECKOUT)}:{number}": line
        for package in ("agent", "drivers")
        for file in sorted((CHECKOUT / package).rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "# nosec" in line
    }
    assert lines
    assert [place for place, line in lines.items() if not EXCEPTION.search(line)] == []


def test_every_check_that_is_off_has_a_reason_above_it():
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    off = tomllib.loads(text)["tool"]["bandit"]
    assert off.keys() == {"skips"}
    (section,) = re.findall(r"^\[tool\.bandit\]\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    groups = re.findall(r"^    # (\S+).+\n((?:    \"B\d+\",\n)+)", section + "\n", re.MULTILINE)
    explained = [check for _, checks in groups for check in re.findall(r"B\d+", checks)]
    assert explained == off["skips"]


# --- what the threat model says is shown by a test is ---


def test_every_test_that_the_threat_model_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", (CHECKOUT / "docs" / "threat-model.md").read_text()))
    there = {
        name
        for file in (CHECKOUT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 50
    assert named <= there, named - there


# --- no modules import each other in a circle: each can be imported before all others ---


MODULES = {
    ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("agent", "drivers")
    for path in (CHECKOUT / package).rglob("*.py")
}


def imported_modules(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that are imported where a module begins, not those within its functions."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0 and statement.module is not None
            for alias in statement.names:
                submodule = f"{statement.module}.{alias.name}"
                yield submodule if submodule in MODULES else statement.module
        elif isinstance(statement, ast.Try | ast.With | ast.For | ast.ClassDef):
            yield from imported_modules(statement.body)


def test_no_import_leads_back_to_where_it_began():
    graph = {
        name: {
            other
            for other in imported_modules(ast.parse(path.read_text()).body)
            if other in MODULES
        }
        for name, path in MODULES.items()
    }
    assert len(graph) > 250
    assert sum(map(len, graph.values())) > 2 * len(graph)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(reversed(error.args[1]))) from None


# --- docs/glossary.md has each term once, with a meaning; docs/index.md has every page ---


GLOSSARY = CHECKOUT / "docs" / "glossary.md"
ROWS = re.findall(r"^- \*\*([^*]+)\*\*: (.+)$", GLOSSARY.read_text(), re.M)


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
