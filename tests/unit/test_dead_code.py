"""The names that vulture ignores (pyproject.toml) are still defined in the product."""

import ast
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from tests.support.child import CHECKOUT


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_every_name_that_vulture_ignores_is_defined():
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["vulture"]
    names = {
        name
        for package in settings["paths"]
        for path in (CHECKOUT / package).rglob("*.py")
        for name in defined(ast.parse(path.read_text()))
    }
    ignored = settings["ignore_names"]
    assert [
        pattern for pattern in ignored if not any(fnmatchcase(name, pattern) for name in names)
    ] == []
    assert len(ignored) == len(set(ignored))
