"""Keys that nobody here knows: taken out of a document, and told, because what stands below them has no effect.

The schema says which are tolerated. Where it has ``properties`` and not a word on additional ones, an unknown key is ignored
with a warning; where it allows them, without one; where it forbids them, only a newer minor version may have one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.yaml_files.document import Document, Where

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key that was taken out, and those that are known in its place."""

    where: Where
    known: Collection[str]


def pruned(document: Document, schema: Part, *, newer: bool) -> tuple[Document, list[UnknownKey]]:
    """``document`` with known keys only, and what is gone. ``newer``: it is written for a newer schema."""
    work = _Pruning(schema, newer)
    return replace(document, data=work.part(schema, document.data, ())), work.unknown


class _Pruning:
    def __init__(self, schema: Part, newer: bool) -> None:
        self.definitions: Part = schema["$defs"]
        self.newer = newer
        self.unknown: list[UnknownKey] = []

    def part(self, schema: Part, data: Any, where: Where) -> Any:
        if "$ref" in schema:
            return self.part(self.definitions[schema["$ref"].rpartition("/")[2]], data, where)
        if isinstance(data, list):
            return [self.part(schema.get("items", {}), item, (*where, index)) for index, item in enumerate(data)]
        if not isinstance(data, dict):
            return data
        parts = {key: self.below(schema, (*where, key)) for key in data}
        return {key: self.part(part, data[key], (*where, key)) for key, part in parts.items() if part is not None}

    def below(self, schema: Part, where: Where) -> Part | None:
        """What the schema says of a key; None: nothing, and it goes."""
        key, known, others = where[-1], schema.get("properties", {}), schema.get("additionalProperties")
        if key in known:
            found: Part = known[key]
            return found
        if isinstance(others, dict):
            return others
        if not known or others is True or (others is False and not self.newer):
            return {}
        self.unknown.append(UnknownKey(where, known))
        return None
