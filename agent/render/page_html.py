"""The page as HTML: one file that requests nothing from anywhere. Every name is text, because the
template engine escapes it; control characters and direction marks are shown escaped too.
"""

import base64
import hashlib
import json
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from agent.model.names import printable
from agent.render.page import NODES_IN_FULL, Page, PageNode, PageProvider

FOLDER = "templates"


def render_page(page: Page) -> str:
    """Return the page. Many nodes are a table, with the nodes' details as JSON from which the
    page's script shows one node at a time.
    """
    style, script = _part("page.css"), _part("page.js")
    in_full = len(page.nodes) <= NODES_IN_FULL
    template = _environment().get_template("page.html")
    return template.render(
        page=page,
        in_full=in_full,
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        policy=content_policy(style, script),
        details=Markup("") if in_full else script_json(_details(page)),
    )


def content_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: nothing is loaded, and only this style and script run."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def script_json(value: Any) -> Markup:
    """Return JSON that can be the content of a script element: no name can end the element or
    begin a comment.
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped above


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


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


class _Texts:
    """Texts that occur often, each once, by their places."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return the place of a text."""
        return self._places.setdefault(printable(text), len(self._places))

    def all(self) -> list[str]:
        """Return all texts in the order of their places."""
        return list(self._places)


def _details(page: Page) -> dict[str, Any]:
    """Return the details of all nodes, as lists in the order that the script expects, because their
    keys would be most of the page.
    """
    texts = _Texts()
    nodes = [_node(node, texts) for node in page.nodes]
    return {"texts": texts.all(), "nodes": nodes}


def _node(node: PageNode, texts: _Texts) -> list[Any]:
    place = texts.place
    return [
        [_provider(root, texts) for root in node.roots],
        [
            [place(step.op), printable(step.provider), place(step.reason), place(step.status)]
            for step in node.steps
        ],
        [
            [
                place(one["kind"]),
                place(one["severity"]),
                printable(one["detail"]),
                place(one["remedy"]),
            ]
            for one in node.drift
        ],
        [
            [place(one["code"]), printable(one["message"]), place(one["remedy"])]
            for one in node.errors
        ],
        [
            [printable(guest.name or guest.uuid), place(guest.state), *guest.cells]
            for guest in node.guests
        ],
        node.uuid,
        place(node.audited),
        place(node.last_good_audit),
    ]


def _provider(provider: PageProvider, texts: _Texts) -> list[Any]:
    return [
        printable(provider.name),
        provider.generation,
        int(provider.owned),
        [
            [
                texts.place(bar.resource_class),
                bar.used,
                bar.reserved,
                bar.total,
                bar.capacity,
                bar.ratio,
            ]
            for bar in provider.bars
        ],
        [texts.place(trait) for trait in provider.traits],
        [texts.place(aggregate) for aggregate in provider.aggregates],
        [_provider(child, texts) for child in provider.children],
    ]
