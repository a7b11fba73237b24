"""The page as HTML: one file that requests nothing from anywhere. Every name is text, because the
template engine escapes it; control characters and direction marks are shown escaped too.
"""

import base64
import dataclasses
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from agent.model.names import printable
from agent.render.page import NODES_IN_FULL, Page, PageNode

FOLDER = "templates"
SCRIPTS = ("guests.js", "node.js", "table.js")
"""The parts of the page's one script, in their order."""
NODES_IN_A_BATCH = 50
"""The details of so many nodes are compressed together: what their documents have in common then
weighs little, and a click on a node decompresses no more than these.
"""
COMPRESSION = 6


def render_page(page: Page) -> str:
    """Return the page. Many nodes are a table, with the nodes' details as compressed JSON from
    which the page's script shows one node at a time.
    """
    style, script = _style(), _script()
    in_full = len(page.nodes) <= NODES_IN_FULL
    template = _environment().get_template("page.html")
    return template.render(
        page=page,
        in_full=in_full,
        style=Markup(style),  # noqa: S704 - a file of this package # nosec B704
        script=Markup(script),  # noqa: S704 - files of this package # nosec B704
        policy=content_policy(style, script),
        batch=NODES_IN_A_BATCH,
        details=() if in_full else _batches(page.nodes),
    )


def served_policy() -> str:
    """Return the Content-Security-Policy that a server sends with the page."""
    # A page cannot set the last part by itself.
    return f"{content_policy(_style(), _script())}; frame-ancestors 'none'"


def content_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: nothing is loaded, and only this style and script run."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _style() -> str:
    return _part("page.css")


def _script() -> str:
    return "\n".join(map(_part, SCRIPTS))


def _part(name: str) -> str:
    return resources.files("agent.render").joinpath(FOLDER, name).read_text(encoding="utf-8")


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("agent.render", FOLDER),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _batches(nodes: Sequence[PageNode]) -> Iterator[str]:
    """Yield the details of each :data:`NODES_IN_A_BATCH` nodes: a JSON array, compressed by gzip,
    in base64, so that no name can be markup.
    """
    for first in range(0, len(nodes), NODES_IN_A_BATCH):
        some = nodes[first : first + NODES_IN_A_BATCH]
        # Node by node, because the interpreter is not given up while one value is encoded.
        text = ",".join(json.dumps(_jsonable(node), separators=(",", ":")) for node in some)
        content = gzip.compress(f"[{text}]".encode(), COMPRESSION, mtime=0)
        yield base64.b64encode(content).decode()


def _jsonable(value: Any) -> Any:
    """Return a value of the page in JSON's types, with every text as it is shown."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, Mapping):
        return {printable(key): _jsonable(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return value
