"""Checks the answers of a driver before they are used, and copies them: which nodes it has, and the
facts and capabilities of a node.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass, replace
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
    found = worker.call(driver.facts, node, deadline=deadline, node=node)
    about = f"driver {called}: its facts of {printable(node)}"
    if not isinstance(found, HostFacts):
        raise DriverError(f"{about} are no HostFacts but {type(found).__name__}", DRIVER_FAULT)
    facts: HostFacts = own_copy(found, HostFacts, about)
    if facts.name != node:
        raise DriverError(
            f"{about}: name = {printable(repr(facts.name))[:100]}: that is another node",
            DRIVER_FAULT,
        )
    if forgotten := facts.forgotten:
        # Taken for a node without these resources, the inventory would be removed; with an error
        # the last good one stays.
        raise DriverError(f"{about} have CPUs but no {' and no '.join(forgotten)}", DRIVER_FAULT)
    return facts.with_disjoint_cells()


def node_capabilities(
    driver: ReportsCapabilities, worker: DriverWorker, called: str, node: str, deadline: float
) -> Mapping[str, bool]:
    """Return the capabilities that the driver called ``called`` reports, by trait.

    :raises DriverError: it fails, or the answer is invalid.
    """
    found = worker.call(driver.capabilities_as_traits, deadline=deadline, node=node)
    capabilities: dict[str, bool] = own_copy(
        found, Mapping[str, bool], f"driver {called}: its capabilities as traits"
    )
    return capabilities


# --- reading an answer by its type ----------------------------------------------------------------

Step = str | tuple[object]
"""A step to a part of a value: the name of a field, or the index or key of an item in a tuple."""
Reader = Callable[[Any], Any]
"""Returns a copy of a value that it checked; what cannot be changed is not copied."""


def own_copy(answer: object, kind: Any, about: str) -> Any:
    """Return ``answer`` with copies of all mappings and of all sets that can be changed, because
    the driver may go on changing its own. What has none of these, as thousands of devices, is not
    copied.

    :raises DriverError: it is not of type ``kind``; the message begins with ``about``.
    """
    try:
        return _reader(kind)(answer)
    except _Misfit as misfit:
        faults = (text for _path, text in islice(misfit.texts(), FAULTS))
        raise DriverError(f"{about}: {'; '.join(faults)}", DRIVER_FAULT) from misfit


def faults_of(answer: object, kind: Any) -> Iterator[tuple[str, str]]:
    """Yield what in ``answer`` is not of type ``kind``: the path of the value in the answer, empty
    for the answer itself, and a text that shows the value and says what is wrong with it.
    """
    try:
        _reader(kind)(answer)
    except _Misfit as misfit:
        yield from misfit.texts()


@dataclass(frozen=True, slots=True)
class _Fault:
    """A value without its type, and what is wrong with it."""

    steps: tuple[Step, ...]
    value: object
    what: str

    @property
    def path(self) -> str:
        text = ""
        for step in self.steps:
            if isinstance(step, str):
                text += f".{step}" if text else step
            else:
                text += f"[{step[0]!r}]" if text else str(step[0])
        return text


class _Misfit(Exception):
    """An answer, or a part of it, is not of its type."""

    def __init__(self, *faults: _Fault) -> None:
        super().__init__()
        self.faults = faults

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each value without its type, and a text about it."""
        for fault in self.faults:
            shown = printable(repr(fault.value))[:100]
            yield fault.path, f"{fault.path or 'they'} = {shown}: {fault.what}"


Parts = Iterable[tuple[tuple[Step, ...], Reader, Any]]
"""The parts of a value, each with the steps to it and its reader."""


def _whole(check: Reader, copied: Callable[[Any], Any], parts: Callable[[Any], Parts]) -> Reader:
    """Return the reader of a value that has parts.

    ``check``: the reader that checks the value's own type; ``copied``: copies its parts with their
    readers, up to the first fault; ``parts``: lists them, to find all faults.
    """

    def read(value: Any) -> Any:
        check(value)
        try:
            return copied(value)
        except _Misfit:
            raise _Misfit(*_faults(parts(value))) from None

    return read


def _faults(parts: Parts) -> Iterator[_Fault]:
    for steps, read, value in parts:
        try:
            read(value)
        except _Misfit as misfit:
            for fault in misfit.faults:
                yield replace(fault, steps=steps + fault.steps)


@cache
def _reader(kind: Any) -> Reader:
    """Return the reader of the values of a type. Built once a type, because hosts have thousands of
    devices.
    """
    kind = getattr(kind, "__supertype__", kind)
    outer: Any = get_origin(kind) or kind
    inner = get_args(kind)
    if outer in (Union, UnionType):
        (member,) = (member for member in inner if member is not NoneType)
        read = _reader(member)
        return lambda value: None if value is None else read(value)
    if is_dataclass(outer):
        return _record(outer)
    if outer in _CONTAINERS:
        return _CONTAINERS[outer](*(_reader(one) for one in inner if one is not ...))
    if outer is Literal:
        words = f"none of {', '.join(map(str, inner))}"
        return _simple(lambda value: isinstance(value, str) and value in inner, words)
    return _SIMPLE[outer]


def _simple(right: Callable[[Any], bool], what: str) -> Reader:
    def read(value: Any) -> Any:
        if not right(value):
            raise _Misfit(_Fault((), value, what))
        return value

    return read


def _instance(kind: type, what: str) -> Reader:
    return _simple(lambda value: isinstance(value, kind), what)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _record(kind: Any) -> Reader:
    """Return the reader of a dataclass: of all its fields that the driver fills in itself, all but
    a guest's origin, which its creator wrote and the driver only passes on.
    """
    hints = get_type_hints(kind)
    hints = {one.name: hints[one.name] for one in fields(kind) if hints[one.name] != Origin | None}
    # A value that is None, a str or a bool needs only a check of its type, and nearly all are.
    rules = [
        (name, _UNCHANGEABLE.intersection(_alternatives(hint)), _reader(hint))
        for name, hint in hints.items()
    ]
    # With a second name, so that attrgetter always returns a tuple.
    values = attrgetter(*hints, "__class__")

    def copied(value: Any) -> Any:
        changed = {
            name: copy
            for (name, types, read), part in zip(rules, values(value), strict=False)
            if type(part) not in types and (copy := read(part)) is not part
        }
        return replace(value, **changed) if changed else value

    return _whole(
        _instance(kind, f"no {kind.__name__}"),
        copied,
        lambda value: [((name,), read, getattr(value, name)) for name, _types, read in rules],
    )


def _tuple(read: Reader) -> Reader:
    def copied(value: tuple[Any, ...]) -> tuple[Any, ...]:
        copies = tuple(map(read, value))
        return copies if any(map(is_not, copies, value)) else value

    return _whole(
        _instance(tuple, "no tuple"),
        copied,
        lambda value: [(((number,),), read, item) for number, item in enumerate(value)],
    )


def _set(read: Reader) -> Reader:
    def copied(value: AbstractSet[Any]) -> AbstractSet[Any]:
        members = frozenset(map(read, value))
        # A frozenset is its own copy.
        return value if isinstance(value, frozenset) else members

    return _whole(
        _instance(AbstractSet, "no set"),
        copied,
        lambda value: [((), read, member) for member in value],
    )


def _mapping(read_key: Reader, read_item: Reader) -> Reader:
    return _whole(
        _instance(Mapping, "no mapping"),
        lambda value: {read_key(key): read_item(item) for key, item in value.items()},
        lambda value: [
            *(((), read_key, key) for key in value),
            *((((key,),), read_item, item) for key, item in value.items()),
        ],
    )


_CONTAINERS: dict[Any, Callable[..., Reader]] = {
    tuple: _tuple,
    frozenset: _set,
    AbstractSet: _set,
    get_origin(Mapping[str, str]): _mapping,
}
_UNCHANGEABLE = frozenset({NoneType, str, bool})
_SIMPLE: dict[Any, Reader] = {
    bool: _instance(bool, "neither True nor False"),
    int: _simple(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "no whole number of at least 0",
    ),
    float: _simple(
        lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and value >= 0
        ),
        "no finite number of at least 0",
    ),
    str: _instance(str, "no text"),
}
