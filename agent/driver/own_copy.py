"""Copies of what a driver reported, without anything that the driver can change later.

An audit compares new facts with those that it remembers. A driver that keeps a mapping or a set,
changes it, and reports it again would change what is remembered too.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import is_not
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from agent.model.facts import HostFacts, Origin

Copy = Callable[[Any], Any]


def own_copy(facts: HostFacts) -> HostFacts:
    """Return the facts, whose fields have their types, with copies of all mappings and of all sets
    that can be changed. What has none of these, as thousands of devices, is not copied.
    """
    copy = _copy_of(HostFacts)
    assert copy is not None
    copied: HostFacts = copy(facts)
    return copied


@cache
def own_fields(kind: type) -> Sequence[tuple[str, Any]]:
    """Return the fields of a dataclass that the driver fills in itself, with their types: all but a
    guest's origin, which its creator wrote and the driver only passes on.
    """
    hints = get_type_hints(kind)
    return [
        (field.name, hints[field.name])
        for field in fields(kind)
        if hints[field.name] != Origin | None
    ]


@cache
def _copy_of(kind: Any) -> Copy | None:
    """Return a function that copies a value of type ``kind``, and returns the value itself if
    nothing in it can be changed; None if that is so for every value of the type.
    """
    kind = getattr(kind, "__supertype__", kind)
    outer: Any = get_origin(kind) or kind
    inner = get_args(kind)
    if outer in (Union, UnionType):
        return _optional([copy for member in inner if (copy := _copy_of(member)) is not None])
    if is_dataclass(outer):
        return _record(outer)
    if outer is tuple:
        return _tuple(_copy_of(inner[0]))
    if outer in (frozenset, AbstractSet):
        # A frozenset is its own copy.
        return frozenset
    return dict if outer is _MAPPING else None


_MAPPING = get_origin(Mapping[str, str])


def _optional(copies: list[Copy]) -> Copy | None:
    if not copies:
        return None
    (copy,) = copies
    return lambda value: None if value is None else copy(value)


def _record(kind: Any) -> Copy | None:
    parts = [
        (name, copy) for name, hint in own_fields(kind) if (copy := _copy_of(hint)) is not None
    ]
    if not parts:
        return None

    def copied(value: Any) -> Any:
        changed = {}
        for name, copy in parts:
            old = getattr(value, name)
            if (new := copy(old)) is not old:
                changed[name] = new
        return replace(value, **changed) if changed else value

    return copied


def _tuple(copy: Copy | None) -> Copy | None:
    if copy is None:
        return None

    def copied(value: tuple[Any, ...]) -> tuple[Any, ...]:
        new = tuple(map(copy, value))
        return new if any(map(is_not, new, value)) else value

    return copied
