"""The API's description, openapi.yaml, compiled: the schemas of each operation's requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any

import yaml

from agent.model.names import printable
from agent.yaml_files.json_schema import JsonSchema, find_reference

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

LONGEST = 200
MOST_FAULTS = 20


class RequestSchema(JsonSchema):
    """The schema of a part of a request."""

    def faults(self, instance: Any) -> Iterator[tuple[str, str]]:
        """Yield the first :data:`MOST_FAULTS` faults of ``instance``, each as a JSON pointer and a
        text.
        """
        # The search ends there, because a body may have hundreds of thousands of faults.
        first = islice(self.errors(instance), MOST_FAULTS)
        found = sorted(first, key=lambda error: [str(part) for part in error.absolute_path])
        for error in found:
            yield pointer(error.absolute_path), _text(error)


def pointer(path: Iterable[str | int]) -> str:
    """Return a JSON pointer (RFC 6901), cut off at :data:`LONGEST` characters."""
    found = "".join(
        "/" + str(part)[:LONGEST].replace("~", "~0").replace("/", "~1") for part in path
    )
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 3]}..."


def _text(error: "ValidationError") -> str:
    """Return the fault in words, without repeating a long value."""
    if error.validator == "not":
        return "is not allowed here"
    if error.validator == "enum":
        return f"is none of {', '.join(str(value) for value in error.validator_value)}"
    text = printable(error.message)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


FILE = "openapi.yaml"
METHODS = ("get", "post", "put", "patch", "delete")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one place of a request: path, query or header."""

    schema: RequestSchema
    types: Mapping[str, frozenset[str]]
    """The JSON types of each parameter, by its name as openapi.yaml writes it."""


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One operation of the API."""

    id: str
    path: Parameters
    query: Parameters
    header: Parameters
    body: RequestSchema | None
    """The schema of the body; None: the operation takes no body."""
    body_required: bool


class Description:
    """All operations of the API."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._operations = {
            (template, method.upper()): self._operation(item, item[method])
            for template, item in document["paths"].items()
            for method in METHODS
            if method in item
        }

    @property
    def operations(self) -> Mapping[tuple[str, str], ApiOperation]:
        """The operations by path template and method."""
        return self._operations

    def _operation(self, item: Mapping[str, Any], described: Mapping[str, Any]) -> ApiOperation:
        listed = [
            self._resolve(parameter)
            for parameter in (*item.get("parameters", ()), *described.get("parameters", ()))
        ]
        body = described.get("requestBody")
        return ApiOperation(
            id=described["operationId"],
            path=self._parameters(listed, "path"),
            query=self._parameters(listed, "query"),
            header=self._parameters(listed, "header"),
            body=RequestSchema(body["content"][JSON]["schema"], self._document) if body else None,
            body_required=bool(body and body.get("required")),
        )

    def _parameters(self, listed: Sequence[Mapping[str, Any]], place: str) -> Parameters:
        here = [parameter for parameter in listed if parameter["in"] == place]
        schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {parameter["name"]: parameter["schema"] for parameter in here},
            "required": [parameter["name"] for parameter in here if parameter.get("required")],
        }
        return Parameters(
            RequestSchema(schema, self._document),
            {parameter["name"]: frozenset(self._types(parameter["schema"])) for parameter in here},
        )

    def _types(self, schema: Mapping[str, Any]) -> Iterator[str]:
        kinds = self._resolve(schema).get("type", "string")
        yield from [kinds] if isinstance(kinds, str) else kinds

    def _resolve(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object that a reference leads to; any other object as it is."""
        if "$ref" not in value:
            return value
        return self._resolve(find_reference(self._document, value["$ref"]))


def load(document: Mapping[str, Any] | None = None) -> Description:
    """Return the compiled description of ``document``, by default of openapi.yaml."""
    return Description(document or read())


@cache
def read() -> Mapping[str, Any]:
    """Return openapi.yaml as a document, not compiled."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    # The parser in C, if it is installed, is ten times as fast.
    found: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe # nosec B506
    return found
