"""The promises of a driver: its calls, starting and stopping, its nodes, its facts, and what only
some drivers can do.
"""

import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from functools import cache

import os_resource_classes as orc
import os_traits

from agent.conformance.check import Unanswered, check
from agent.conformance.trial import METHODS, DriverTrial
from agent.driver.answers import faults_of
from agent.model.facts import HostFacts
from agent.model.names import (
    MAX_PROVIDER_NAME,
    is_custom,
    is_uuid,
    name_first,
    number_of,
    printable,
)

THREADS = 4
"""How many threads call the driver at the same time."""
CLOCK_TOLERANCE = 60.0
"""Seconds that a snapshot may seem to come from the future."""
OLDEST = 86400.0
"""Seconds that a snapshot may be old."""


def shown(value: object) -> str:
    """Return a value for a message."""
    return printable(repr(value))[:100]


@cache
def _standard_traits() -> frozenset[str]:
    return frozenset(os_traits.get_traits())


def unknown_trait(name: str) -> str:
    """Return what is wrong with the name of a trait; empty if it is a standard one, or a custom one
    that Placement can take.
    """
    known = is_custom(name) or name in _standard_traits()
    return "" if known else f"{shown(name)} is neither a standard trait nor CUSTOM_*"


def unknown_class(name: str) -> str:
    """Return what is wrong with the name of a resource class, as :func:`unknown_trait`."""
    known = is_custom(name) or name in orc.STANDARDS
    return "" if known else f"{shown(name)} is neither a standard resource class nor CUSTOM_*"


# --- calls, starting and stopping -----------------------------------------------------------------


for _method, _ability in METHODS.items():

    @check(
        _method,
        "end",
        "bound every wait by a timeout, and raise NotReady, DriverError or ConfigError",
        promise=f"{_method}{'' if _method == 'hanging' else '()'} ends within its deadline, and "
        "raises nothing but errors of the agent",
        ability=_ability,
    )
    def _ends(trial: DriverTrial, method: str = _method) -> Iterator[str]:
        record = trial.records[method]
        yield from dict.fromkeys(record.faults)
        if not (record.faults or record.answered):
            raise Unanswered("it was not called, or every call raised an error of the agent")


@check(
    "constructor",
    "end",
    "only register and read options in __init__(); leave what can wait or fail to start()",
)
def _is_made_again(trial: DriverTrial) -> Iterator[str]:
    """an instance is made within the deadline of the start, and a second one too"""
    if trial.not_again:
        yield f"a second instance cannot be made: {trial.not_again}"


@check(
    "ready",
    "end",
    "repeat the check while the backend answers; if it did answer, try again within the call",
)
def _is_ready(trial: DriverTrial) -> Iterator[str]:
    """NotReady means that the backend does not answer; once started, every call is answered"""
    for method, record in trial.records.items():
        if record.not_ready and method != "start":
            calls = number_of(record.not_ready + record.answered, "call")
            yield f"{method}: {record.not_ready} of {calls} raised NotReady"


@check(
    "stop-unstarted", "before-start", "check in stop() what start() has opened, before closing it"
)
def _stops_before_start(trial: DriverTrial) -> Iterator[str]:
    """stop() does nothing on a driver that was not started"""
    if fault := trial.fault("stop"):
        yield f"before the start: {fault}"


@check("stop-again", "stopped", "set what stop() has closed to None, and check that")
def _stops_again(trial: DriverTrial) -> Iterator[str]:
    """a second stop() does nothing"""
    if fault := trial.fault("stop"):
        yield f"the second call: {fault}"


@check("after-stop", "stopped", "raise agent.errors.NotReady if the driver is not started")
def _answers_after_stop(trial: DriverTrial) -> Iterator[str]:
    """after stop() a call answers or raises an error of the agent; it does not hang"""
    faults = [trial.fault("nodes", True)]
    for node in trial.sample[:1]:
        faults += [trial.fault("facts", node), trial.fault("is_node_deleted", node)]
    yield from filter(None, faults)


@check("read-only", "stopped", "check host.read_only before writing into host.state_path")
def _writes_nothing(trial: DriverTrial) -> Iterator[str]:
    """with host.read_only true, nothing is written"""
    folder = trial.host.state_path
    for path in sorted(folder.rglob("*")):
        name = printable(str(path.relative_to(folder)))
        yield f"{name} was written in the folder host.state_path"


@check(
    "restart",
    "restarted",
    "take the uuid from the backend or from host.identity; do not generate it at each start",
)
def _has_the_same_nodes(trial: DriverTrial) -> Iterator[str]:
    """after a restart the nodes have the same uuids"""
    if not trial.listed:
        raise Unanswered("see the check nodes-mapping: there are no nodes to compare with")
    after = trial.usable_nodes()
    for node_uuid in sorted(trial.listed.keys() - after.keys()):
        name = printable(trial.listed[node_uuid])
        yield f"node {name}: no node has the uuid {node_uuid} after a restart"


@check(
    "threads",
    "started",
    "guard with a lock what the methods change, and share no connection that allows one caller",
)
def _answers_several_threads(trial: DriverTrial) -> Iterator[str]:
    """several threads can call the driver at the same time"""
    node = next(iter(trial.sample), None)
    # Alone first, because this check is not about what fails in one thread too.
    trial.call("nodes", False)
    if node is not None:
        trial.call("facts", node, node=node)

    def ask(number: int) -> str:
        if node is None or number % 2:
            return trial.fault("nodes", True)
        return trial.fault("facts", node)

    with ThreadPoolExecutor(THREADS) as threads:
        faults = {fault for fault in threads.map(ask, range(2 * THREADS)) if fault}
    yield from sorted(faults)


# --- nodes ----------------------------------------------------------------------------------------


def require_nodes(trial: DriverTrial) -> None:
    """Raise Unanswered if the driver lists no nodes."""
    if not trial.listed:
        raise Unanswered("there are no nodes")


@check(
    "nodes-mapping",
    "started",
    "return a dict whose keys are uuids as text, and whose values are names as text",
)
def _maps_uuids_to_names(trial: DriverTrial) -> Iterator[str]:
    """nodes() is a mapping of uuids to names"""
    found = trial.call("nodes", True)
    yield from (text for _path, text in faults_of(found, Mapping[str, str]))
    if isinstance(found, Mapping):
        for node_uuid in found:
            if isinstance(node_uuid, str) and not is_uuid(node_uuid):
                yield f"{shown(node_uuid)} is no uuid"


@check(
    "nodes-names",
    "started",
    f"give each node a name of 1 to {MAX_PROVIDER_NAME} printable characters that no other has",
)
def _gives_each_a_name(trial: DriverTrial) -> Iterator[str]:
    """each node has a name of its own that Placement can take"""
    require_nodes(trial)
    names = list(trial.listed.values())
    for name in sorted(set(names)):
        text = printable(name[:60])
        if names.count(name) > 1:
            yield f"{text!r} is the name of {names.count(name)} nodes"
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            yield f"{text!r} has {len(name)} characters; Placement takes 1 to {MAX_PROVIDER_NAME}"
        if printable(name) != name:
            yield f"{text!r} has control characters"


@check(
    "nodes-stable",
    "started",
    "derive the uuids from the backend, and list all nodes also with refresh=False",
)
def _lists_the_same(trial: DriverTrial) -> Iterator[str]:
    """nodes() answers the same nodes with the same uuids while the backend does not change"""
    first = trial.usable_nodes()
    for refresh in (False, True):
        again = trial.usable_nodes(refresh=refresh)
        if again != first:
            changed = sorted(str(name) for _uuid, name in again.items() ^ first.items())
            yield (
                f"nodes(refresh={refresh}) right after nodes(refresh=True) has other nodes or "
                f"uuids: {printable(name_first(changed, 3))}"
            )


@check(
    "deleted-listed",
    "started",
    "return True only if the backend itself says that the node is gone for good",
    each_node=True,
)
def _says_present(trial: DriverTrial, node: str) -> Iterator[str]:
    """is_node_deleted() is False for every node that nodes() lists"""
    answer = trial.call("is_node_deleted", node, node=node)
    if not isinstance(answer, bool):
        yield f"the answer is {shown(answer)}, neither True nor False"
    elif answer:
        yield "is_node_deleted() is True for a node that nodes() lists: its providers would go"


# --- facts ----------------------------------------------------------------------------------------


@check(
    "facts-node", "started", "give HostFacts the name that facts() was called with", each_node=True
)
def _has_the_nodes_name(trial: DriverTrial, node: str) -> Iterator[str]:
    """facts(name) are the facts of the node of that name"""
    name = trial.answered_facts(node).name
    if name != node:
        yield f"name = {shown(name)}: that is another node"


@check(
    "facts-types",
    "started",
    "see the types in agent.model.facts: a tuple is no list, a whole number no float",
    each_node=True,
)
def _has_types(trial: DriverTrial, node: str) -> Iterator[str]:
    """facts() is a HostFacts whose fields have their types, with amounts of at least 0"""
    answer = trial.call("facts", node, node=node)
    if not isinstance(answer, HostFacts):
        yield f"the answer is no HostFacts but {type(answer).__name__}"
        return
    for path, text in faults_of(answer, HostFacts):
        if not path.startswith("incomplete"):
            yield text


@check(
    "facts-incomplete",
    "started",
    "use the names of agent.model.facts.Section, and say what could not be read",
    each_node=True,
)
def _names_sections(trial: DriverTrial, node: str) -> Iterator[str]:
    """incomplete names sections of the facts, each with its reason"""
    facts = trial.answered_facts(node)
    yield from (text for path, text in faults_of(facts, HostFacts) if path.startswith("incomplete"))
    if isinstance(facts.incomplete, Mapping):
        for section, reason in facts.incomplete.items():
            if isinstance(reason, str) and not reason.strip():
                yield f"incomplete[{shown(section)}] has no reason"


@check(
    "facts-sections",
    "started",
    "give 0 for what the node does not have, and name in incomplete what could not be read",
    each_node=True,
)
def _forgets_nothing(trial: DriverTrial, node: str) -> Iterator[str]:
    """a node with CPUs also has memory and disk, or incomplete names them"""
    for section in trial.sound_facts(node).forgotten:
        yield f"the node has CPUs but no {section}, and incomplete does not name it"


@check("facts-time", "started", "take it from time.time()", each_node=True)
def _has_a_time(trial: DriverTrial, node: str) -> Iterator[str]:
    """taken_at is the time of the snapshot, in seconds since the epoch"""
    facts = trial.sound_facts(node)
    age = time.time() - facts.taken_at
    if age < -CLOCK_TOLERANCE:
        yield f"taken_at is {-age:.0f} s in the future"
    elif age > OLDEST:
        yield f"taken_at = {facts.taken_at:.0f} is {age / 86400:.0f} days ago"


@check(
    "facts-traits",
    "started",
    "use the names of os-traits, or CUSTOM_ and A-Z, 0-9, _",
    each_node=True,
)
def _names_known_traits(trial: DriverTrial, node: str) -> Iterator[str]:
    """the traits of the facts are standard traits or begin with CUSTOM_"""
    for name in sorted(trial.sound_facts(node).traits or ()):
        if text := unknown_trait(name):
            yield f"traits: {text}"


@check(
    "facts-immutable",
    "started",
    "build a new HostFacts for each call, of tuples and frozensets that nothing else has",
    each_node=True,
)
def _cannot_change(trial: DriverTrial, node: str) -> Iterator[str]:
    """facts are immutable: no later call changes them"""
    facts = trial.answered_facts(node)
    yield from sorted(set(_mutable(facts, "")))
    before = repr(facts)
    trial.call("facts", node, node=node)
    if node == trial.sample[0]:
        # For one node only, because a list of many nodes takes long.
        trial.call("nodes", True)
    if repr(facts) != before:
        yield "a later call of the driver has changed the facts that it gave before"


def _mutable(value: object, path: str) -> Iterator[str]:
    """Yield each value of the facts that can be changed in place, except mappings, whose type is
    the driver's choice.
    """
    if is_dataclass(value):
        for field in fields(value):
            yield from _mutable(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))
    elif isinstance(value, AbstractSet) and not isinstance(value, frozenset):
        yield f"{path} is a {type(value).__name__}, which can be changed: give a frozenset"
    elif isinstance(value, tuple):
        for part in value:
            yield from _mutable(part, f"{path}[]")
