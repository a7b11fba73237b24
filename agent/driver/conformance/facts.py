"""Checks of the facts of a node."""

import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass

from agent.driver.answers import faults_of
from agent.driver.conformance.check import ConformanceCheck
from agent.driver.conformance.known_names import unknown_trait
from agent.driver.conformance.trial import DriverTrial
from agent.driver.interface import ReportsCapabilities
from agent.model.facts import HostFacts
from agent.model.names import printable

CLOCK_TOLERANCE = 60.0
"""Seconds that a snapshot may seem to come from the future."""
OLDEST = 86400.0
"""Seconds that a snapshot may be old."""


def _has_the_nodes_name(trial: DriverTrial, node: str) -> Iterator[str]:
    name = trial.answered_facts(node).name
    if name != node:
        yield f"name = {printable(repr(name))[:100]}: that is another node"


def _has_types(trial: DriverTrial, node: str) -> Iterator[str]:
    answer: object = trial.call("facts", trial.driver.facts, node, node=node)
    if not isinstance(answer, HostFacts):
        yield f"the answer is no HostFacts but {type(answer).__name__}"
        return
    for path, text in faults_of(answer, HostFacts):
        if not path.startswith("incomplete"):
            yield text


def _names_sections(trial: DriverTrial, node: str) -> Iterator[str]:
    facts = trial.answered_facts(node)
    yield from (text for path, text in faults_of(facts, HostFacts) if path.startswith("incomplete"))
    if isinstance(facts.incomplete, Mapping):
        for section, reason in facts.incomplete.items():
            if isinstance(reason, str) and not reason.strip():
                yield f"incomplete[{printable(repr(section))}] has no reason"


def _forgets_nothing(trial: DriverTrial, node: str) -> Iterator[str]:
    for section in trial.sound_facts(node).forgotten:
        yield f"the node has CPUs but no {section}, and incomplete does not name it"


def _has_a_time(trial: DriverTrial, node: str) -> Iterator[str]:
    facts = trial.sound_facts(node)
    age = time.time() - facts.taken_at
    if age < -CLOCK_TOLERANCE:
        yield f"taken_at is {-age:.0f} s in the future"
    elif age > OLDEST:
        yield f"taken_at = {facts.taken_at:.0f} is {age / 86400:.0f} days ago"


def _names_known_traits(trial: DriverTrial, node: str) -> Iterator[str]:
    for name in sorted(trial.sound_facts(node).traits or ()):
        if text := unknown_trait(name):
            yield f"traits: {text}"


def _cannot_change(trial: DriverTrial, node: str) -> Iterator[str]:
    facts = trial.answered_facts(node)
    yield from sorted(set(_mutable(facts, "")))
    before = _spelled(facts)
    trial.call("facts", trial.driver.facts, node, node=node)
    if node == trial.sample[0]:
        # For one node only, because a list of many nodes takes long.
        trial.call("nodes", trial.driver.nodes, True)
    if _spelled(facts) != before:
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


def _spelled(value: object) -> object:
    """Return the value as nested tuples in a fixed order, for a comparison later."""
    if is_dataclass(value):
        return tuple(_spelled(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple(sorted((repr(key), repr(_spelled(part))) for key, part in value.items()))
    if isinstance(value, AbstractSet):
        return tuple(sorted(map(repr, value)))
    if isinstance(value, tuple | list):
        return tuple(map(_spelled, value))
    return repr(value)


def _names_known_capabilities(trial: DriverTrial) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, ReportsCapabilities)
    found: object = trial.call("capabilities_as_traits", driver.capabilities_as_traits)
    yield from (text for _path, text in faults_of(found, Mapping[str, bool]))
    if isinstance(found, Mapping):
        names = sorted(name for name in found if isinstance(name, str))
        yield from filter(None, map(unknown_trait, names))


CHECKS = (
    ConformanceCheck(
        "facts-node",
        "facts(name) are the facts of the node of that name",
        "give HostFacts the name that facts() was called with",
        node=_has_the_nodes_name,
    ),
    ConformanceCheck(
        "facts-types",
        "facts() is a HostFacts whose fields have their types, with amounts of at least 0",
        "see the types in agent.model.facts: a tuple is no list, a whole number no float",
        node=_has_types,
    ),
    ConformanceCheck(
        "facts-incomplete",
        "incomplete names sections of the facts, each with its reason",
        "use the names of agent.model.facts.Section, and say what could not be read",
        node=_names_sections,
    ),
    ConformanceCheck(
        "facts-sections",
        "a node with CPUs also has memory and disk, or incomplete names them",
        "give 0 for what the node does not have, and name in incomplete what could not be read",
        node=_forgets_nothing,
    ),
    ConformanceCheck(
        "facts-time",
        "taken_at is the time of the snapshot, in seconds since the epoch",
        "take it from time.time()",
        node=_has_a_time,
    ),
    ConformanceCheck(
        "facts-traits",
        "the traits of the facts are standard traits or begin with CUSTOM_",
        "use the names of os-traits, or CUSTOM_ and A-Z, 0-9, _",
        node=_names_known_traits,
    ),
    ConformanceCheck(
        "facts-immutable",
        "facts are immutable: no later call changes them",
        "build a new HostFacts for each call, of tuples and frozensets that nothing else has",
        node=_cannot_change,
    ),
    ConformanceCheck(
        "capabilities-names",
        "capabilities_as_traits() maps standard traits, or CUSTOM_ ones, to True or False",
        "use the names of os-traits; a capability that the driver does not know is left out",
        whole=_names_known_capabilities,
        ability=ReportsCapabilities,
    ),
)
