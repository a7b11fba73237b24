"""openapi.yaml, read and compiled: of every operation, what its requests have to be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from agent.api.schema import RequestSchema, registered

FILE = "openapi.yaml"
METHODS = ("get", "post", "put", "patch", "delete")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters that stand in one part of a request. ``types``: the JSON types each may have; ``names`` as they are written."""

    schema: RequestSchema
    types: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """``body`` None: it takes none."""

    id: str
    path: Parameters
    query: Parameters
    header: Parameters
    body: RequestSchema | None
    body_required: bool


class Description:
    """All operations by path template and method."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document, self._registry = document, registered(document)
        self._operations = {
            (template, method.upper()): self._operation(item, item[method])
            for template, item in document["paths"].items() for method in METHODS if method in item
        }  # fmt: skip

    @property
    def operations(self) -> Mapping[tuple[str, str], ApiOperation]:
        """The operations."""
        return self._operations

    def _operation(self, item: Mapping[str, Any], described: Mapping[str, Any]) -> ApiOperation:
        listed = [self._resolved(one) for one in (*item.get("parameters", ()), *described.get("parameters", ()))]
        body = described.get("requestBody")
        return ApiOperation(
            id=described["operationId"],
            path=self._parameters(listed, "path"),
            query=self._parameters(listed, "query"),
            header=self._parameters(listed, "header"),
            body=RequestSchema(body["content"][JSON]["schema"], self._registry) if body else None,
            body_required=bool(body and body.get("required")),
        )

    def _parameters(self, listed: Sequence[Mapping[str, Any]], place: str) -> Parameters:
        here = [one for one in listed if one["in"] == place]
        schema = {
            "type": "object", "additionalProperties": False, "properties": {one["name"]: one["schema"] for one in here},
            "required": [one["name"] for one in here if one.get("required")],
        }  # fmt: skip
        return Parameters(RequestSchema(schema, self._registry), {one["name"]: frozenset(self._types(one["schema"])) for one in here})

    def _types(self, schema: Mapping[str, Any]) -> Iterator[str]:
        kinds = self._resolved(schema).get("type", "string")
        yield from [kinds] if isinstance(kinds, str) else kinds

    def _resolved(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a reference into the document leads to."""
        if "$ref" not in value:
            return value
        found: Any = self._document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return self._resolved(found)


def load(document: Mapping[str, Any] | None = None) -> Description:
    """The description of this version's API."""
    return Description(document or read())


def read() -> Mapping[str, Any]:
    """openapi.yaml as it stands."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    # The parser in C, where there is one, is ten times as fast.
    found: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    return found
