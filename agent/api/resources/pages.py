"""Long lists, a page at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

LONGEST = 1000


def page(name: str, items: Sequence[Mapping[str, Any]], query: Mapping[str, Any], key: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
    """The items after ``marker``, ``limit`` at most. They come in the order of their keys, so that none is left out when others go."""
    limit, marker = query.get("limit", LONGEST), query.get("marker")
    rest = [item for item in items if marker is None or key(item) > marker]
    shown = rest[:limit]
    return {name: shown, "next": key(shown[-1]) if len(rest) > limit else None}
