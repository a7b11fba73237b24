"""The API's description, openapi.yaml. ``python -m agent.api.openapi`` writes what it says of
requests anew, from the types in :mod:`agent.api.operations`; answers and texts stay.
With it, the JSON schemas of the documents that commands write, documents.yaml.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from agent.api.body import END
from agent.api.operations import JSON, OPERATIONS, ApiOperation

FILE = "openapi.yaml"
METHODS = ("get", "post", "put", "patch", "delete")
REFERENCE = "#/components/schemas/{name}"
_REFERENCE = re.compile(r"#/components/schemas/(\w+)")
PLACES = ("path", "query", "header")

Schema = Mapping[str, Any]


@cache
def read() -> Schema:
    """Return openapi.yaml as a document."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    # The parser in C, if it is installed, is ten times as fast.
    found: Schema = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe # nosec B506
    return found


def with_requests(document: Schema) -> Schema:
    """Return a description with the requests as the API takes them."""
    kinds = {
        kind
        for operation in OPERATIONS.values()
        for kind in (operation.path, operation.query, operation.header, operation.body)
        if kind is not None
    }
    ordered = sorted(kinds, key=repr)
    found, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    bodies_of = dict(zip(ordered, found, strict=True))
    parts = {
        getattr(operation, place).__name__ for operation in OPERATIONS.values() for place in PLACES
    }
    paths: dict[str, dict[str, Any]] = {}
    for (path, method), operation in OPERATIONS.items():
        texts = document["paths"][path][method.lower()]
        texts = {
            key: text for key, text in texts.items() if key not in ("parameters", "requestBody")
        }
        if parameters := list(_parameters(operation, components)):
            texts["parameters"] = parameters
        if operation.body is not None:
            texts["requestBody"] = {
                "required": operation.body_required,
                "content": {JSON: {"schema": bodies_of[operation.body]}},
            }
        paths.setdefault(path, {})[method.lower()] = texts
    bodies = {name: schema for name, schema in components.items() if name not in parts}
    schemas = _used({**document["components"]["schemas"], **bodies}, paths, document["components"])
    components = {"responses": document["components"]["responses"], "schemas": schemas}
    # The end of a pattern has its short form, because in JSON Schema it has no other meaning.
    text = json.dumps({**document, "paths": paths, "components": components})
    described: Schema = json.loads(text.replace(json.dumps(END)[1:-1], "$"))
    return described


def _used(schemas: Schema, paths: Schema, components: Schema) -> Schema:
    """Return the schemas that something refers to."""
    names, texts = set[str](), [json.dumps([paths, components["responses"]])]
    while texts:
        new = set(_REFERENCE.findall(texts.pop())) - names
        names |= new
        texts += [json.dumps(schemas[name]) for name in new]
    return {name: schema for name, schema in schemas.items() if name in names}


def _parameters(operation: ApiOperation, components: Schema) -> Iterator[Schema]:
    for place in PLACES:
        schema = components[getattr(operation, place).__name__]
        for name, value in schema["properties"].items():
            described = {key: text for key, text in value.items() if key == "description"}
            yield {
                "name": name,
                "in": place,
                "required": name in schema.get("required", ()),
                **described,
                "schema": {
                    key: item
                    for key, item in value.items()
                    if key not in ("description", "default")
                },
            }


if __name__ == "__main__":
    file = Path(__file__).with_name(FILE)
    file.write_text(
        yaml.safe_dump(with_requests(read()), sort_keys=False, width=120, allow_unicode=True),
        encoding="utf-8",
    )


DOCUMENTS = "documents.yaml"
OWN = "#/$defs/"
PREFIX = "compute-node-agent/"
VERSION = "/1"


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
    text = resources.files(__package__).joinpath(DOCUMENTS).read_text(encoding="utf-8")
    found: Schema = yaml.safe_load(text)
    return found


@cache
def _shared() -> Schema:
    """Return the parts of schemas by name, of the local API and of documents.yaml."""
    return {**read()["components"]["schemas"], **_documents()["$defs"]}
