"""The names of modules, classes and functions that a page of docs has in backticks."""

import importlib
import re
from pathlib import Path

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
