"""Documents with one wrong value, in every place."""

from collections.abc import Iterator
from typing import Any

from tests.support.tracking import uuid_of

ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    2**40,
    "",
    "x",
    "x" * 5000,
    "a\n",
    uuid_of("node"),
    [],
    {},
    ["x", "x"],
)


def altered(value: Any) -> Iterator[Any]:
    """The document with one of its values replaced, removed or added, in every way and place."""
    yield from ODD
    if isinstance(value, dict):
        yield {**value, "unknown": 1}
        for name, inner in value.items():
            yield {key: part for key, part in value.items() if key != name}
            for one in altered(inner):
                yield {**value, name: one}
    if isinstance(value, list):
        yield [*value, *value]
        for one in altered(value[0]):
            yield [one, *value[1:]]
