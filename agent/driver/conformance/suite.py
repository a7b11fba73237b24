"""Runs the conformance suite on one driver."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import getattr_static
from typing import Any

from agent.driver.conformance import abilities, facts, life, nodes, trees
from agent.driver.conformance.abilities import NoInstances, give_instances
from agent.driver.conformance.check import (
    Breach,
    CheckedPromise,
    Conformance,
    ConformanceCheck,
)
from agent.driver.conformance.nodes import list_nodes
from agent.driver.conformance.trial import (
    DriverTrial,
    NothingToCheck,
    Unanswered,
    describe_exception,
    examining,
)
from agent.driver.conformance.trial_settings import Call, TrialSettings
from agent.driver.interface import (
    ChecksConfiguration,
    CountsHangingCalls,
    Driver,
    LooksAtInstances,
    MarksNodes,
    NeedsLease,
    ReportsCapabilities,
    ShapesTree,
    TellsOfChanges,
    UpdatesProviderTree,
    WarnsOfOptions,
)
from agent.errors import AgentError
from agent.model.names import printable

_ENDS = "ends within its deadline, and raises nothing but errors of the agent"
_ABILITIES: dict[Call, object] = {
    "start": None,
    "stop": None,
    "nodes": None,
    "facts": None,
    "is_node_deleted": None,
    "check": ChecksConfiguration,
    "option_warnings": WarnsOfOptions,
    "shape": ShapesTree,
    "update_provider_tree": UpdatesProviderTree,
    "capabilities_as_traits": ReportsCapabilities,
    "subscribe": TellsOfChanges,
    "hanging": CountsHangingCalls,
    "mark": MarksNodes,
    "lease": NeedsLease,
    "with_instances": LooksAtInstances,
}


def _calls_of(name: Call) -> Callable[[DriverTrial], Iterator[str]]:
    def ended(trial: DriverTrial) -> Iterator[str]:
        record = trial.record(name)
        yield from dict.fromkeys(text for _node, text in record.faults)
        if not (record.faults or record.answered):
            raise Unanswered("it was not called, or every call raised an error of the agent")

    return ended


CALLS = tuple(
    ConformanceCheck(
        name,
        f"{name} {_ENDS}" if name == "hanging" else f"{name}() {_ENDS}",
        "bound every wait by a timeout, and raise NotReady, DriverError or ConfigError",
        whole=_calls_of(name),
        ability=ability,
    )
    for name, ability in _ABILITIES.items()
)
BEFORE_START = (*life.BEFORE_START, *abilities.BEFORE_START)
STARTED = (*nodes.LISTED, *facts.CHECKS, *trees.CHECKS, *abilities.STARTED, *life.STARTED)
STOPPED = life.STOPPED
RESTARTED = (*life.RESTARTED, *abilities.RESTARTED)
ALL_CHECKS: Sequence[ConformanceCheck] = (
    *CALLS,
    *life.ALWAYS,
    *BEFORE_START,
    *STARTED,
    *STOPPED,
    *RESTARTED,
)
"""All checks, in the order in which they are shown."""


def check_conformance(settings: TrialSettings) -> Conformance:
    """Check whether a driver keeps the promises of the driver interface.

    The first instance is started with ``read_only`` true and checked while it runs and after its
    stop; a second one is started with ``read_only`` false, to compare its nodes.

    :raises AgentError: the driver says that it cannot be started.
    :raises ConfigError: a chosen node does not exist.
    """
    trial = DriverTrial(settings)
    with trial.output:
        trial.begin()
        done = _judge_all(trial)
    return Conformance(
        settings.called,
        [done[check.name] for check in ALL_CHECKS],
        len(trial.listed),
        trial.sample,
        [*_notes(trial)],
    )


def _judge_all(trial: DriverTrial) -> dict[str, CheckedPromise]:
    """Run all checks, on two instances. Return what came of each, by its name."""
    done = {check.name: _judge(trial, check) for check in BEFORE_START}
    try:
        _set_up(trial)
        done |= {check.name: _judge(trial, check) for check in STARTED}
    finally:
        trial.stop()
    done |= {check.name: _judge(trial, check) for check in STOPPED}
    try:
        _start_again(trial)
        done |= {check.name: _judge(trial, check) for check in RESTARTED}
    finally:
        trial.stop()
    return done | {check.name: _judge(trial, check) for check in (*CALLS, *life.ALWAYS)}


def _set_up(trial: DriverTrial) -> None:
    """Start the first instance as the agent does, and list its nodes."""
    try:
        trial.start(replace(trial.settings.host, read_only=True))
        give_instances(trial, NoInstances())
        list_nodes(trial)
    except Unanswered as error:
        trial.why_no_sample = str(error)
        return
    trial.choose_sample()
    try:
        trial.subscribe()
    except Unanswered:
        # Recorded, and the check of the call says so.
        return


def _start_again(trial: DriverTrial) -> None:
    """Start a second instance. A failure is recorded, and the checks of it say so."""
    try:
        trial.renew()
        trial.start(trial.settings.host)
        give_instances(trial, NoInstances())
    except Unanswered:
        return
    except AgentError as error:
        trial.record("start").errors.append(("", printable(str(error))))


def _judge(trial: DriverTrial, check: ConformanceCheck) -> CheckedPromise:
    """Run one check, and tell of it."""
    found = _judged(trial, check)
    trial.look_at_process(f"the check {check.name}")
    breaches = [(breach.node, breach.detail) for breach in found.breaches]
    trial.settings.progress.judged(check.name, found.state, breaches, found.note)
    return found


def _judged(trial: DriverTrial, check: ConformanceCheck) -> CheckedPromise:
    if not _implements(trial.driver, check.ability):
        return CheckedPromise(check, "not-applicable", note="the driver does not have this method")
    breaches: list[Breach] = []
    missing: dict[str, None] = {}
    for node in trial.sample if check.node is not None else ("",):
        try:
            breaches += (Breach(node, text) for text in _texts(trial, check, node))
        except Unanswered as error:
            missing[str(error)] = None
        except NothingToCheck as error:
            return CheckedPromise(check, "not-applicable", note=str(error))
        except Exception as error:  # noqa: BLE001 - an answer of somebody else's driver may raise
            breaches.append(
                Breach(node, f"the answer cannot be examined: {describe_exception(error)}")
            )
    if breaches:
        return CheckedPromise(check, "broken", breaches)
    if check.node is not None and not trial.sample:
        missing[trial.why_no_sample] = None
    if missing:
        return CheckedPromise(check, "unchecked", note="; ".join(missing))
    return CheckedPromise(check, "held")


def _implements(driver: Driver, ability: Any) -> bool:
    """Return whether the agent would use this ability of the driver."""
    if ability is CountsHangingCalls:
        # Not by isinstance(), which reads the property, and that may hang or raise.
        return getattr_static(driver, "hanging", None) is not None
    if ability is ShapesTree and isinstance(driver, UpdatesProviderTree):
        return False
    return ability is None or isinstance(driver, ability)


def _texts(trial: DriverTrial, check: ConformanceCheck, node: str) -> Iterator[str]:
    if check.node is not None:
        yield from check.node(trial, node)
    elif check.whole is not None:
        yield from check.whole(trial)


def _notes(trial: DriverTrial) -> Iterator[str]:
    """Yield what is no breach and yet worth a look."""
    for name, record in trial.records.items():
        for node, text in dict.fromkeys(record.errors):
            about = f"{printable(node)}: " if node else ""
            yield f"{about}{name}: {text}"
    with suppress(Unanswered), examining():
        yield from trial.incomplete()
