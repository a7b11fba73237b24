"""The API's description, openapi.yaml, compiled: the schemas of each operation's requests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import islice
from typing import Any

import fastjsonschema
import yaml
from fastjsonschema import JsonSchemaException
from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from agent.model.names import printable
from agent.yaml_files.schema import Validator

BASE = "urn:compute-node-agent:openapi"
LONGEST = 200
MOST_FAULTS = 20

Registered = Registry[Any]


def build_registry(document: Mapping[str, Any]) -> Registered:
    """Return a registry with ``document``, for references into it."""
    resource: Resource[Any] = DRAFT202012.create_resource(document)
    found: Registered = Registry().with_resource(BASE, resource)
    return found


class RequestSchema:
    """One compiled JSON schema. Its references lead into the registered document."""

    def __init__(self, schema: Mapping[str, Any], registry: Registered) -> None:
        self._schema, self._registry = schema, registry
        self._validator = Validator(_absolute(schema), registry=registry)

    def faults(self, instance: Any) -> Iterator[tuple[str, str]]:
        """Yield the first :data:`MOST_FAULTS` faults of ``instance``, each as a JSON pointer and a
        text.
        """
        if self.accepts(instance):
            return
        # The search ends there, because a body may have hundreds of thousands of faults.
        first = islice(self._validator.iter_errors(instance), MOST_FAULTS)
        found = sorted(first, key=lambda error: [str(part) for part in error.absolute_path])
        for error in found:
            yield pointer(error.absolute_path), _text(error)

    def accepts(self, instance: Any) -> bool:
        """Return whether ``instance`` is valid by the generated code. If it is not, or there is no
        code, only the validator can tell, and name the faults: it takes twenty times as long.
        """
        if self._check is None:
            return False
        try:
            self._check(instance)
        except JsonSchemaException:
            return False
        return True

    @cached_property
    def _check(self) -> Callable[[Any], object] | None:
        """The schema as code that raises an exception for an invalid instance; None where that
        code would know less than the validator. Generated at the first use, because most
        operations are not used.
        """
        lookup = self._registry.resolver(BASE).lookup
        try:
            plain = _without_references(self._schema, lambda name: lookup(name).contents)
        except NotGenerated:
            return None
        code: Callable[[Any], object] = fastjsonschema.compile(
            {**plain, "$schema": DRAFT}, use_default=False, detailed_exceptions=False
        )
        return code


DRAFT = "http://json-schema.org/draft-07/schema#"
"""What the generated code understands."""
# Keywords that mean the same in that draft as in openapi.yaml, by what their values are.
VALUES = frozenset(
    {"type", "enum", "required", "pattern", "minLength", "maxLength", "multipleOf", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)
SCHEMAS = frozenset(("items", "additionalProperties", "propertyNames", "not", "if", "then", "else"))
LISTS = frozenset(("allOf", "anyOf", "oneOf"))
# Keywords that the validator does not check either.
NOTES = frozenset(("title", "description", "format", "default", "example", "examples"))


class NotGenerated(Exception):
    """No code can be generated for a schema: a keyword has another meaning there."""


def _without_references(schema: Any, resolve: Callable[[str], Any]) -> Any:
    """Return ``schema`` with every reference replaced by what it leads to.

    :raises NotGenerated: the schema has a keyword that the generated code does not understand.
    """
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in VALUES:
            found[keyword] = value
        elif keyword == "const":
            # For const no code is generated without detailed exceptions.
            found["enum"] = [value]
        elif keyword in SCHEMAS:
            found[keyword] = _without_references(value, resolve)
        elif keyword in LISTS:
            found[keyword] = [_without_references(part, resolve) for part in value]
        elif keyword == "properties":
            found[keyword] = {
                name: _without_references(part, resolve) for name, part in value.items()
            }
        elif keyword not in NOTES and keyword != "$ref":
            raise NotGenerated(keyword)
    if "$ref" not in schema:
        return found
    referred = _without_references(resolve(schema["$ref"]), resolve)
    return {"allOf": [referred, found]} if found else referred


def pointer(path: Iterable[str | int]) -> str:
    """Return a JSON pointer (RFC 6901), cut off at :data:`LONGEST` characters."""
    found = "".join(
        "/" + str(part)[:LONGEST].replace("~", "~0").replace("/", "~1") for part in path
    )
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 3]}..."


def _absolute(schema: Any) -> Any:
    """Return ``schema`` with every reference into the document made absolute."""
    if isinstance(schema, Mapping):
        return {
            key: f"{BASE}{value}" if key == "$ref" and isinstance(value, str) else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(item) for item in schema] if isinstance(schema, list) else schema


def _text(error: ValidationError) -> str:
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
        self._document, self._registry = document, build_registry(document)
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
            body=RequestSchema(body["content"][JSON]["schema"], self._registry) if body else None,
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
            RequestSchema(schema, self._registry),
            {parameter["name"]: frozenset(self._types(parameter["schema"])) for parameter in here},
        )

    def _types(self, schema: Mapping[str, Any]) -> Iterator[str]:
        kinds = self._resolve(schema).get("type", "string")
        yield from [kinds] if isinstance(kinds, str) else kinds

    def _resolve(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object that a reference leads to; any other object as it is."""
        if "$ref" not in value:
            return value
        found: Any = self._document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return self._resolve(found)


def load(document: Mapping[str, Any] | None = None) -> Description:
    """Return the compiled description of ``document``, by default of openapi.yaml."""
    return Description(document or read())


def read() -> Mapping[str, Any]:
    """Return openapi.yaml as a document, not compiled."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    # The parser in C, if it is installed, is ten times as fast.
    found: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe # nosec B506
    return found
