"""No modules import each other in a circle: each can be imported before all others."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tests.support.child import CHECKOUT

MODULES = {
    ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("agent", "drivers")
    for path in (CHECKOUT / package).rglob("*.py")
}


def imported(body: list[ast.stmt]) -> Iterator[str]:
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
            yield from imported(statement.body)


def test_no_import_leads_back_to_where_it_began():
    graph = {
        name: {other for other in imported(ast.parse(path.read_text()).body) if other in MODULES}
        for name, path in MODULES.items()
    }
    assert len(graph) > 300
    assert sum(map(len, graph.values())) > 2 * len(graph)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(reversed(error.args[1]))) from None
