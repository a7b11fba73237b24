"""Everything that a request may hold has a largest size in openapi.yaml."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.api.openapi import METHODS, read

DOCUMENT = read()
BOUNDED = ("enum", "const", "maxLength")


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = DOCUMENT
    if "$ref" not in schema:
        return schema
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return resolved(found)


def unbounded(schema: Mapping[str, Any], where: str, seen: tuple[int, ...] = ()) -> Iterator[str]:
    """What of a schema may be of any size."""
    schema = resolved(schema)
    if id(schema) in seen:
        return
    seen = (*seen, id(schema))
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if "string" in kinds and not any(bound in schema for bound in BOUNDED):
        yield f"{where}: no maxLength"
    if "array" in kinds and "maxItems" not in schema:
        yield f"{where}: no maxItems"
    if (
        "object" in kinds
        and schema.get("additionalProperties", True) is not False
        and "maxProperties" not in schema
    ):
        yield f"{where}: no maxProperties"
    if (
        "object" in kinds
        and schema.get("additionalProperties", True) is not False
        and "maxLength" not in resolved(schema.get("propertyNames", {}))
    ):
        yield f"{where}: no propertyNames with maxLength"
    for key, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, f"{where}/{key}", seen)
    for key in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(key), Mapping) and not (
            key == "propertyNames" and "type" not in resolved(schema[key])
        ):
            yield from unbounded(schema[key], f"{where}/{key}", seen)
    for key in ("oneOf", "anyOf", "allOf", "prefixItems"):
        for place, inner in enumerate(schema.get(key, ())):
            yield from unbounded(inner, f"{where}/{key}/{place}", seen)


def test_everything_that_a_request_may_hold_has_a_largest_size() -> None:
    found = []
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method not in item:
                continue
            for one in (*item.get("parameters", ()), *item[method].get("parameters", ())):
                parameter = resolved(one)
                found += unbounded(
                    parameter["schema"], f"{method} {path} {parameter['in']} {parameter['name']}"
                )
            if "requestBody" in item[method]:
                found += unbounded(
                    item[method]["requestBody"]["content"]["application/json"]["schema"],
                    f"{method} {path} body",
                )
    assert not found, "\n".join(sorted(set(found)))
