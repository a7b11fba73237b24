"""Checks the answers of a driver before they are used: which nodes it has, and the facts and
capabilities of a node; and copies what is kept.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import islice
from operator import attrgetter, is_not
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agent.driver.interface import Driver, ReportsCapabilities
from agent.driver.worker import DriverWorker
from agent.errors import DRIVER_FAULT, ConfigError, DriverError
from agent.model.facts import HostFacts, Origin
from agent.model.names import choose_nodes, is_uuid, name_first, normal_uuid, printable

# How many faults of one answer a message names.
FAULTS = 3

Nodes = Mapping[str, str]
"""The names of nodes, by uuid."""


def managed_nodes(
    driver: Driver, worker: DriverWorker, called: str, deadline: float, *, refresh: bool = True
) -> Nodes:
    """Return the nodes that the driver called ``called`` manages now.

    :raises DriverError: the backend does not answer, or the answer is invalid.
    """
    found = worker.call(driver.nodes, refresh, deadline=deadline)
    if not isinstance(found, Mapping) or not all(
        is_uuid(uuid) and isinstance(name, str) for uuid, name in found.items()
    ):
        raise DriverError(
            f"driver {called}: its nodes are not names by uuid, but {printable(str(found))[:200]}",
            DRIVER_FAULT,
        )
    return {normal_uuid(uuid): name for uuid, name in found.items()}


def chosen_nodes(
    found: Nodes, wanted: Sequence[str], called: str
) -> tuple[Nodes, list[ConfigError]]:
    """Return the nodes of ``found`` that ``--node`` selects by name, pattern or uuid, all without
    ``--node``; and an error for each value that selects none.
    """
    chosen, unmatched = choose_nodes(found.items(), wanted, lambda node: node)
    errors = [
        ConfigError(
            f"--node {name}: the driver {called} has no such node",
            f"it has {name_first(sorted(found.values())) or 'none'}",
        )
        for name in unmatched
    ]
    return dict(chosen), errors


def node_facts(
    driver: Driver, worker: DriverWorker, called: str, node: str, deadline: float
) -> HostFacts:
    """Return the facts of the node from the driver called ``called``.

    :raises DriverError: the backend does not answer, or the answer is invalid.
    """
    facts = worker.call(driver.facts, node, deadline=deadline, node=node)
    if not isinstance(facts, HostFacts):
        raise DriverError(
            (
                f"driver {called}: its facts of {printable(node)} are no HostFacts but "
                f"{type(facts).__name__}"
            ),
            DRIVER_FAULT,
        )
    about = f"driver {called}: its facts of {printable(node)}"
    if faults := _first_faults(facts, HostFacts):
        raise DriverError(f"{about}: {'; '.join(faults)}", DRIVER_FAULT)
    if facts.name != node:
        raise DriverError(
            f"{about}: name = {printable(repr(facts.name))[:100]}: that is another node",
            DRIVER_FAULT,
        )
    if forgotten := facts.forgotten:
        # Taken for a node without these resources, the inventory would be removed; with an error
        # the last good one stays.
        raise DriverError(f"{about} have CPUs but no {' and no '.join(forgotten)}", DRIVER_FAULT)
    return own_copy(facts).with_disjoint_cells()


def node_capabilities(
    driver: ReportsCapabilities, worker: DriverWorker, called: str, node: str, deadline: float
) -> Mapping[str, bool]:
    """Return the capabilities that the driver called ``called`` reports, by trait.

    :raises DriverError: it fails, or the answer is invalid.
    """
    found = worker.call(driver.capabilities_as_traits, deadline=deadline, node=node)
    if faults := _first_faults(found, Mapping[str, bool]):
        raise DriverError(
            f"driver {called}: its capabilities as traits: {'; '.join(faults)}", DRIVER_FAULT
        )
    # A copy, because the driver may go on changing its own.
    return dict(found)


# --- the types of an answer -----------------------------------------------------------------------


def faults_of(answer: object, kind: Any) -> Iterator[tuple[str, str]]:
    """Yield what in ``answer`` is not of type ``kind``: the path of the value in the answer, empty
    for the answer itself, and a text that shows the value and says what is wrong with it.
    """
    for path, value, what in _faults(answer, kind, ""):
        yield path, f"{path or 'they'} = {printable(repr(value))[:100]}: {what}"


def _first_faults(answer: object, kind: Any) -> list[str]:
    return [text for _path, text in islice(faults_of(answer, kind), FAULTS)]


_WORDS = {
    int: "no whole number of at least 0",
    float: "no finite number of at least 0",
    str: "no text",
    bool: "neither True nor False",
    tuple: "no tuple",
    AbstractSet: "no set",
    Mapping: "no mapping",
}


def _faults(value: object, kind: Any, path: str) -> Iterator[tuple[str, object, str]]:
    """Yield what in ``value`` is not of type ``kind``: where, which value, and what is wrong with
    it.
    """
    if _check(kind)(value):
        return
    kind = _plain(kind, value)
    outer: Any = get_origin(kind) or kind
    inner = get_args(kind)
    if _is_record(outer) and isinstance(value, outer):
        for name, hint in own_fields(outer):
            yield from _faults(getattr(value, name), hint, f"{path}.{name}" if path else name)
    elif outer is tuple and isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _faults(item, inner[0], f"{path}[{number}]")
    elif _is_set(outer) and isinstance(value, AbstractSet):
        for item in value:
            yield from _faults(item, inner[0], path)
    elif outer is _MAPPING and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _faults(key, inner[0], path)
            yield from _faults(item, inner[1], f"{path}[{key!r}]" if path else str(key))
    else:
        yield path, value, _wrong_type(outer, inner)


def _wrong_type(outer: Any, inner: tuple[Any, ...]) -> str:
    """Return what a value is not that should be of type ``outer`` with the parameters ``inner``."""
    if outer is Literal:
        return f"none of {', '.join(map(str, inner))}"
    kind = AbstractSet if _is_set(outer) else Mapping if outer is _MAPPING else outer
    return _WORDS.get(kind, f"no {getattr(outer, '__name__', outer)}")


def _plain(kind: Any, value: object) -> Any:
    """Return ``kind`` without aliases; for a union the member that ``value`` most likely was meant
    as.
    """
    kind = getattr(kind, "__supertype__", kind)
    if get_origin(kind) not in (Union, UnionType):
        return kind
    meant = [
        getattr(member, "__supertype__", member)
        for member in get_args(kind)
        if member is not NoneType
    ]
    return next(
        (
            member
            for member in meant
            if isinstance(get_origin(member) or member, type)
            and isinstance(value, get_origin(member) or member)
        ),
        meant[0],
    )


@cache
def _check(kind: Any) -> Callable[[Any], bool]:
    """Return a function that checks whether a value, with all that it contains, is of ``kind``.
    Built once a type, because hosts have thousands of devices.
    """
    kind = getattr(kind, "__supertype__", kind)
    outer: Any = get_origin(kind) or kind
    inner = get_args(kind)
    if outer in (Union, UnionType):
        return _any_of([_check(member) for member in inner])
    if outer is Literal:
        return lambda value: isinstance(value, str) and value in inner
    if _is_record(outer):
        return _dataclass(outer)
    if outer is tuple or _is_set(outer) or outer is _MAPPING:
        return _container(outer, inner)
    return _SIMPLE.get(outer, lambda value: isinstance(value, outer))


def _any_of(checks: Sequence[Callable[[Any], bool]]) -> Callable[[Any], bool]:
    # None first, because most optional values are None.
    checks = sorted(checks, key=lambda check: check is not _SIMPLE[NoneType])
    return lambda value: any(check(value) for check in checks)


def _dataclass(kind: type) -> Callable[[Any], bool]:
    """Return the check of a dataclass with all its fields."""
    found = own_fields(kind)
    # A value that is None, a str or a bool needs only a check of its type, and nearly all are.
    rules = [
        (
            frozenset(
                alternative
                for alternative in _alternatives(hint)
                if alternative in (NoneType, str, bool)
            ),
            _check(hint),
        )
        for _name, hint in found
    ]
    # With a second name, so that attrgetter always returns a tuple.
    values = attrgetter(*(name for name, _hint in found), "__class__")
    rules.append((frozenset(), lambda _kind: True))

    def checked(value: Any) -> bool:
        if not isinstance(value, kind):
            return False
        return all(
            type(attribute) in types or check(attribute)
            for attribute, (types, check) in zip(values(value), rules, strict=True)
        )

    return checked


def _alternatives(kind: Any) -> Sequence[Any]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _container(outer: Any, inner: Sequence[Any]) -> Callable[[Any], bool]:
    """Return the check of a tuple, set or mapping with all its items."""
    if outer is _MAPPING:
        key_is, value_is = _check(inner[0]), _check(inner[1])
        return lambda value: (
            isinstance(value, Mapping)
            and all(key_is(key) and value_is(item) for key, item in value.items())
        )
    is_one, kind = _check(inner[0]), tuple if outer is tuple else AbstractSet
    return lambda value: isinstance(value, kind) and all(map(is_one, value))


def _is_record(kind: Any) -> bool:
    return is_dataclass(kind)


def _is_set(kind: Any) -> bool:
    return kind in (frozenset, AbstractSet)


_MAPPING = get_origin(Mapping[str, str])
_SIMPLE: dict[Any, Callable[[Any], bool]] = {
    NoneType: lambda value: value is None,
    bool: lambda value: isinstance(value, bool),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    float: lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    ),
    str: lambda value: isinstance(value, str),
}


# --- copies ---------------------------------------------------------------------------------------

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
