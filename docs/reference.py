"""A Sphinx extension that writes the pages of docs/reference from the code: commands, API,
documents, metrics and error codes. Nothing in that folder but its index is written by hand.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agent
import drivers
from agent.api.metrics import PREFIX, Metrics, NodeFigures
from agent.api.openapi import METHODS, document_names, document_schema, read
from agent.api.problem import KINDS, OTHER, REFUSALS
from agent.cli.command import COMMON_FLAGS, Argument, Command, Flag
from agent.cli.command_table import AUDIT, COMMANDS, DAEMON
from agent.cli.parser import PARTICULAR
from agent.errors import AgentError

REMEDY = re.compile(r"^Remedy: (.+)", re.MULTILINE | re.DOTALL)
UNITS = {
    "seconds": "seconds",
    "bytes": "bytes",
    "info": "",
    "fds": "files",
    "host": "as its label says",
    "node_used": "CPUs, MiB",
    "node_total": "CPUs, MiB",
}
"""The unit of a metric by its name, or by the last word of its name; all others are counts."""

OF_EXTRAS = ("libvirt", "placement", "psycopg", "pytest")
"""Packages that need not be installed to build the documentation."""

Schema = Mapping[str, Any]


def setup(app: Any) -> dict[str, bool]:
    """Have Sphinx write the pages before it reads the documentation."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "reference"))
    return {"parallel_read_safe": True}


def write_pages(folder: Path) -> None:
    """Write all pages. A page that is already as it has to be keeps its time."""
    pages = {
        "commands": commands_page(),
        "api": api_page(),
        "documents": documents_page(),
        "metrics": metrics_page(),
        "errors": errors_page(),
    }
    for name, lines in pages.items():
        file, text = folder / f"{name}.md", "\n".join(lines) + "\n"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


# --- commands -------------------------------------------------------------------------------------


def commands_page() -> Iterator[str]:
    """Yield the page of the commands and their options."""
    yield from ("# Commands", "", "[Command line](../command-line.md) explains them.", "")
    yield from ("## Options of every command", "")
    yield from _table(("option", "meaning"), map(_flag_row, _flags(())))
    yield from (
        "| `--GROUP-OPTION VALUE` | any option of the [configuration](../configuration.md) |",
        "",
    )
    yield from _command(DAEMON, "agent")
    yield from _command(AUDIT, "agent --once")
    for command in sorted(COMMANDS, key=lambda command: command.words):
        yield from _command(command, f"agent {' '.join(command.words)}")


def _command(command: Command, name: str) -> Iterator[str]:
    positional = [_positional(argument) for argument in command.arguments if _is_value(argument)]
    yield from (f"## {name}", "", f"{command.help[0].upper()}{command.help[1:]}.", "")
    rows = [(f"`{_option(argument)}`", argument.help) for argument in command.arguments]
    rows += map(_flag_row, _flags(sorted(command.flags)))
    if positional:
        yield from ("```text", f"{name} {' '.join(positional)}", "```", "")
    if rows:
        yield from (*_table(("option", "meaning"), rows), "")
    if command.examples:
        yield from ("```text", *command.examples, "```", "")
    if command.no_document:
        yield from (f"No document: {command.no_document}.", "")
    elif command is not DAEMON:
        yield from (
            f"With `--format json`: the document [{command.document_name}]"
            f"(documents.md#{command.document_name}).",
            "",
        )


def _flags(keys: Sequence[str]) -> list[Flag]:
    """Return the flags of these keys; those of every command if there are none."""
    return [
        flag for flag in COMMON_FLAGS if (flag.key in keys if keys else flag.key not in PARTICULAR)
    ]


def _flag_row(flag: Flag) -> tuple[str, str]:
    value = flag.metavar or ("|".join(flag.choices) if flag.choices else "")
    return f"`{flag.name} {value}".rstrip() + "`", flag.help


def _is_value(argument: Argument) -> bool:
    return not argument.name.startswith("-")


def _positional(argument: Argument) -> str:
    word = f"{argument.metavar}..." if argument.many else argument.metavar
    return f"[{word}]" if argument.optional else word


def _option(argument: Argument) -> str:
    if _is_value(argument):
        return argument.metavar
    return argument.name if argument.switch else f"{argument.name} {argument.metavar}"


# --- API and documents ----------------------------------------------------------------------------


def api_page() -> Iterator[str]:
    """Yield the page of the local API."""
    document = _api()
    yield from ("# Local API", "", document["info"]["description"].strip(), "")
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield from _request(f"{method.upper()} {path}", item, item[method], document)
    yield from ("## Schemas", "")
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema, 3)


@cache
def _api() -> Schema:
    return read()


def _request(title: str, item: Schema, described: Schema, document: Schema) -> Iterator[str]:
    yield from (f"## {title}", "", f"{described['summary']}.", "")
    if text := described.get("description"):
        yield from (text.strip(), "")
    rows = []
    for given in (*item.get("parameters", ()), *described.get("parameters", ())):
        parameter = _resolve(given, document)
        name = f"`{parameter['name']}`, {parameter['in']}"
        rows.append((name, _meaning(parameter), _type(parameter["schema"])))
    if rows:
        yield from (*_table(("parameter", "meaning", "type"), rows), "")
    answers = []
    if body := described.get("requestBody"):
        answers.append(("request", "", _type(_content(body))))
    for status, answer in described["responses"].items():
        found = _resolve(answer, document)
        what = "an error" if status == "default" else f"{status}"
        answers.append((what, found["description"], _type(_content(found))))
    yield from (*_table(("", "meaning", "document"), answers), "")


def _content(part: Schema) -> Schema:
    contents: Iterable[Schema] = part.get("content", {}).values()
    return next((content["schema"] for content in contents), {})


def _resolve(value: Schema, document: Schema) -> Schema:
    found: Any = document
    if "$ref" not in value:
        return value
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return {**found, **{key: item for key, item in value.items() if key != "$ref"}}


def documents_page() -> Iterator[str]:
    """Yield the page of the documents that commands write."""
    yield from (
        "# Documents",
        "",
        "What `--format json` and `--format yaml` write. `agent schema NAME` prints the JSON "
        "schema (2020-12) of a document; the field `schema` names it as "
        "`compute-node-agent/NAME/1`.",
        "",
    )
    shared: dict[str, Schema] = {}
    for name in document_names():
        schema = document_schema(name)
        shared |= schema["$defs"]
        yield from _schema(name, schema, 2)
    yield from ("## Parts", "")
    of_api = _api()["components"]["schemas"]
    for name, schema in sorted(shared.items()):
        if name not in of_api:
            yield from _schema(name, schema, 3)


def _schema(name: str, schema: Schema, depth: int) -> Iterator[str]:
    yield from (f"{'#' * depth} {name}", "")
    if text := _meaning(schema):
        yield from (f"{text}.", "")
    if reference := schema.get("$ref"):
        yield from (f"All of {_link(reference)}.", "")
    rows = [
        (f"`{key}`", _type(field), _meaning(field))
        for key, field in schema.get("properties", {}).items()
    ]
    if rows:
        yield from (*_table(("field", "type", "meaning"), rows), "")
    elif "enum" in schema or "pattern" in schema:
        yield from (_type(schema), "")


def _link(reference: str) -> str:
    name = reference.rpartition("/")[2]
    page = "api.md" if name in _api()["components"]["schemas"] else "documents.md"
    return f"[{name}]({page}#{name.lower()})"


def _type(schema: Schema) -> str:
    """Return the type of a value in a few words."""
    if "$ref" in schema:
        return _link(schema["$ref"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(_type(part) for part in schema[several] if _type(part))
    if "enum" in schema:
        return ", ".join("null" if value is None else f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kinds = schema.get("type", "")
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    if "array" in names and "items" in schema:
        names[names.index("array")] = f"list of {_type(schema['items']) or 'anything'}"
    of_values = schema.get("additionalProperties")
    if "object" in names and (fields := schema.get("properties")):
        inner = ", ".join(
            f"`{key}` ({_type(field)})".replace(" ()", "") for key, field in fields.items()
        )
        names[names.index("object")] = f"object with {inner}"
    if "object" in names and isinstance(of_values, Mapping):
        names[names.index("object")] = f"object of {_type(of_values) or 'anything'}"
    return " or ".join(names)


def _meaning(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split()).rstrip(".")


# --- metrics --------------------------------------------------------------------------------------


def metrics_page() -> Iterator[str]:
    """Yield the page of the metrics."""
    yield from (
        "# Metrics",
        "",
        f"All names begin with `{PREFIX}_`. "
        "[Monitoring](../monitoring.md) tells how Prometheus reads them.",
        "",
    )
    rows = [
        (
            f"`{name}`",
            kind,
            _unit(name, meaning),
            ", ".join(f"`{label}`" for label in labels),
            meaning,
        )
        for name, kind, labels, meaning in sorted(metrics())
    ]
    yield from _table(("metric", "type", "unit", "labels", "meaning"), rows)


def metrics() -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Yield name, type, labels and meaning of every metric; names without the prefix."""
    found = Metrics()
    # In place of the service of an agent without nodes, so that all metrics can be listed.
    tracker = SimpleNamespace(states_in_memory=tuple)
    service: Any = SimpleNamespace(last_audits=tuple, readings=(), tracker=lambda: tracker)
    found.add(NodeFigures(service))
    registry = found._registry
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", ())
            name = family.name.removeprefix(f"{PREFIX}_")
            ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
            yield name + ending, family.type, tuple(labels), family.documentation.rstrip(".")


def _unit(name: str, meaning: str) -> str:
    if "timestamp" in name:
        return "seconds since the epoch"
    if meaning.startswith("1:"):
        return "0 or 1"
    plain = name if name in UNITS else name.removesuffix("_total").rpartition("_")[2]
    return UNITS.get(plain, "count")


# --- errors ---------------------------------------------------------------------------------------


def errors_page() -> Iterator[str]:
    """Yield the page of the error codes."""
    yield from (
        "# Error codes",
        "",
        "Every error has a `code`, a `message` and a `remedy`: on stderr, in the documents of "
        "`--format json`, and in the problem documents of the local API. Programs branch on the "
        "code. The message of an error is more exact than this table, and so is its remedy. "
        f"A code without a status is not an answer of the API's own; if it is one, the status is "
        f"{OTHER[0]}.",
        "",
    )
    rows = [
        (f"`{code}`", str(status or ""), meaning, remedy)
        for code, status, meaning, remedy in sorted(error_codes())
    ]
    yield from _table(("code", "HTTP status", "meaning", "remedy"), rows)


def error_codes() -> Iterator[tuple[str, int | None, str, str]]:
    """Yield each error code with its HTTP status, if it has any, its meaning and its remedy. Both
    are in the docstring of the class that has the code.
    """
    seen = set()
    for error in sorted(_errors(), key=lambda error: (len(error.__mro__), error.__name__)):
        code = error.__dict__.get("code")
        if code is None or code in seen:
            continue
        seen.add(code)
        text = inspect.cleandoc(error.__doc__ or "")
        remedy = REMEDY.search(text)
        meaning = text[: remedy.start()] if remedy else text
        # Of several paragraphs the first one is the meaning; others describe fields.
        status = KINDS[code][0] if code in KINDS else None
        yield code, status, _line(meaning.split("\n\n")[0]), _line(remedy[1]) if remedy else ""
    for code, remedy_text in REFUSALS.values():
        if code not in seen:
            seen.add(code)
            yield code, KINDS[code][0], f"{KINDS[code][1]}.", f"{remedy_text.capitalize()}."


def _errors() -> set[type[AgentError]]:
    """Return all classes of errors in the packages."""
    for package in (agent, drivers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # nova is imported by agent.nova, libvirt may not be installed.
            if not re.search(r"^agent\.nova|__main__", module.name):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    # No module that needs one of these has errors of its own.
                    if error.name not in OF_EXTRAS:
                        raise
    return {
        error
        for error in (AgentError, *_subclasses(AgentError))
        if error.__module__.split(".")[0] in ("agent", "drivers")
    }


def _subclasses(error: type[AgentError]) -> Iterator[type[AgentError]]:
    for subclass in error.__subclasses__():
        yield from (subclass, *_subclasses(subclass))


def _line(text: str) -> str:
    """Return a text of a docstring as one line of markdown."""
    return re.sub(r"``", "`", " ".join(text.split()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
