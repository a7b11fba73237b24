"""The JSON schemas of the documents that commands write, documents.yaml. Parts that the local API
has too come from openapi.yaml.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from agent.api.openapi import read

FILE = "documents.yaml"
OWN = "#/$defs/"
PREFIX = "compute-node-agent/"
VERSION = "/1"

Schema = Mapping[str, Any]


def document_names() -> Mapping[str, str]:
    """Return what each document is, by its name in the field ``schema``: ``report`` for
    ``compute-node-agent/report/1``.
    """
    return {
        name: str(schema["description"])
        for name, schema in _documents().items()
        if not name.startswith("$")
    }


def document_schema(name: str) -> Schema:
    """Return the JSON schema (2020-12) of one document, complete in itself.

    :raises KeyError: there is no such document.
    """
    documents, shared = _documents(), _shared()
    found: dict[str, Any] = {}

    def local(value: Any) -> Any:
        """Return ``value`` with references into the schema itself, and collect what they name."""
        if isinstance(value, list):
            return [local(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        if isinstance(reference := value.get("$ref"), str):
            part = reference.rpartition("/")[2]
            if part not in found:
                # Entered before its own references are followed, which may lead back to it.
                found[part] = None
                found[part] = local(shared[part])
            value = {**value, "$ref": f"{OWN}{part}"}
        return {key: item if key == "$ref" else local(item) for key, item in value.items()}

    schema = local(documents[name])
    properties = {"schema": {"const": f"{PREFIX}{name}{VERSION}"}, **schema.get("properties", {})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{PREFIX}{name}{VERSION}".replace("/", ":"),
        "title": f"{PREFIX}{name}{VERSION}",
        **schema,
        "properties": properties,
        "$defs": dict(sorted(found.items())),
    }


@cache
def _documents() -> Schema:
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    found: Schema = yaml.safe_load(text)
    return found


@cache
def _shared() -> Schema:
    """Return the parts of schemas by name, of the local API and of documents.yaml."""
    return {**read()["components"]["schemas"], **_documents()["$defs"]}
