"""The documents of commands as JSON and YAML, and what all of them have: errors, and uuids that are
not shown.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agent.errors import AgentError, ConfigErrors
from agent.model.finding import Problem


def replace_uuids(text: str, hidden: Mapping[str, str]) -> str:
    """Return ``text`` with every hidden uuid replaced."""
    for uuid, name in hidden.items():
        text = text.replace(uuid, name)
    return text


def problems_of(error: AgentError) -> tuple[Problem, ...]:
    """Return the problems of an error: several for an exception that carries several errors."""
    parts = error.errors if isinstance(error, ConfigErrors) else (error,)
    return tuple(Problem(part.code, part.message, part.remedy, part.fatal) for part in parts)


def dumps(document: Mapping[str, Any]) -> str:
    """Return a document as JSON. It is pure ASCII, so that every stream can carry every name."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def yaml_dumps(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, converted from its JSON, so that both have the same content. It is
    pure ASCII too.
    """
    import yaml  # Imported here, because YAML is rarely asked for.

    text: str = yaml.safe_dump(
        json.loads(dumps(document)),
        sort_keys=False,
        allow_unicode=False,
        width=120,
        explicit_start=True,
    )
    return text


def error_rows(errors: Iterable[Problem]) -> list[dict[str, str]]:
    """Return the rows of errors, as every document has them."""
    return [
        {"code": error.code, "message": error.message, "remedy": error.remedy} for error in errors
    ]


def problems_in(rows: Iterable[Mapping[str, str]]) -> list[Problem]:
    """Return the problems of the rows of errors in a document."""
    return [Problem(row["code"], row["message"], row["remedy"]) for row in rows]
