"""Checks all promises of one driver."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from oslo_config import cfg

import agent.conformance.tree_promises  # noqa: F401 - lists its checks
from agent.conf.default import host_name
from agent.conformance.ability_promises import NoInstances
from agent.conformance.check import (
    CHECKS,
    Breach,
    CheckedPromise,
    NothingToCheck,
    Phase,
    PromiseCheck,
    PromiseState,
    Unanswered,
)
from agent.conformance.trial import DriverTrial, describe_exception
from agent.driver.answers import chosen_nodes
from agent.driver.interface import (
    ChecksConfiguration,
    Driver,
    HostContext,
    LooksAtInstances,
    TellsOfChanges,
)
from agent.errors import AgentError, ConfigErrors
from agent.model.names import printable

SAMPLE = 20
"""How many nodes are checked one by one, unless all are to be."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """What came of all checks of one driver."""

    driver: str
    promises: Sequence[CheckedPromise]
    listed: int
    """How many nodes the driver listed."""
    checked: Sequence[str]
    """The names of the nodes that were checked one by one."""
    notes: Sequence[str] = ()
    """What is no breach, and yet worth a look: incomplete facts, errors of single nodes."""

    def having(self, state: PromiseState) -> Sequence[CheckedPromise]:
        """Return the promises that have this state."""
        return [promise for promise in self.promises if promise.state == state]


def check_conformance(
    called: str,
    make: Callable[[], Driver],
    conf: cfg.ConfigOpts,
    *,
    nodes: Sequence[str] = (),
    every_node: bool = False,
) -> Conformance:
    """Check whether a driver keeps the promises of the driver interface.

    A first instance is started with ``read_only`` true and checked while it runs and after its
    stop; a second one is started with ``read_only`` false, to compare its nodes.

    :param called: the driver's name.
    :param make: makes an instance.
    :param conf: the options of the agent, which have the deadlines of the calls.
    :param nodes: names, patterns or uuids of the nodes to check; empty for all.
    :param every_node: check each of these nodes, not a sample of ``SAMPLE``.
    :raises AgentError: the driver says that it cannot be made or started.
    :raises ConfigErrors: a chosen node does not exist.
    """
    with TemporaryDirectory(prefix="agent-driver-check-") as folder:
        host = HostContext(host_name(conf), str(uuid.uuid4()), Path(folder))
        trial = DriverTrial(called, make, conf, host)
        trial.begin()
        done = _judge_all(trial, "before-start")
        try:
            _set_up(trial)
            _choose_sample(trial, called, nodes, every_node=every_node)
            done |= _judge_all(trial, "started")
        finally:
            trial.stop()
        done |= _judge_all(trial, "stopped")
        try:
            _start_again(trial)
            done |= _judge_all(trial, "restarted")
        finally:
            trial.stop()
        done |= _judge_all(trial, "end")
    return Conformance(
        called,
        [done[check.name] for check in CHECKS],
        len(trial.listed),
        trial.sample,
        [*trial.notes()],
    )


def _set_up(trial: DriverTrial) -> None:
    """Start the first instance as the agent does, and list its nodes."""
    try:
        if trial.implements(ChecksConfiguration):
            trial.call("check", trial.host.name, early=True)
    except Unanswered:
        # Recorded, and the check of the call says so.
        pass
    try:
        trial.start(replace(trial.host, read_only=True))
        if trial.implements(LooksAtInstances):
            trial.call("with_instances", NoInstances())
        trial.listed = trial.usable_nodes()
        if trial.implements(TellsOfChanges):
            trial.call("subscribe", trial.listener.changed)
    except Unanswered as error:
        trial.why_no_sample = str(error)


def _choose_sample(
    trial: DriverTrial, called: str, wanted: Sequence[str], *, every_node: bool
) -> None:
    """Choose the nodes that are checked one by one: all, or so many from all parts of the list.

    :raises ConfigErrors: a chosen node does not exist.
    """
    if not trial.listed:
        return
    chosen, errors = chosen_nodes(trial.listed, wanted, called)
    ConfigErrors.raise_if_any(errors)
    names = sorted(set(chosen.values()))
    step = 1 if every_node else -(-len(names) // SAMPLE)
    trial.sample = names[::step]


def _start_again(trial: DriverTrial) -> None:
    """Start a second instance. A failure is recorded, and the checks of it say so."""
    try:
        trial.driver = trial.make_another()
        trial.start(trial.host)
        if trial.implements(LooksAtInstances):
            trial.call("with_instances", NoInstances())
    except Unanswered:
        return
    except AgentError as error:
        trial.records["start"].errors.append(f"start: {printable(str(error))}")


def _judge_all(trial: DriverTrial, phase: Phase) -> dict[str, CheckedPromise]:
    """Run the checks of a phase. Return what came of each, by its name."""
    return {check.name: _judge(trial, check) for check in CHECKS if check.phase == phase}


def _judge(trial: DriverTrial, check: PromiseCheck) -> CheckedPromise:
    """Run one check."""
    if not trial.implements(check.ability):
        return CheckedPromise(check, "not-applicable", note="the driver does not have this method")
    breaches: list[Breach] = []
    missing: dict[str, None] = {}
    for node in trial.sample if check.each_node else ("",):
        try:
            found = check.examine(trial, node) if check.each_node else check.examine(trial)
            breaches += (Breach(node, text) for text in found)
        except Unanswered as error:
            missing[str(error)] = None
        except NothingToCheck as error:
            return CheckedPromise(check, "not-applicable", note=str(error))
        except Exception as error:  # noqa: BLE001 - an answer of somebody else's driver may raise
            text = f"the answer cannot be examined: {describe_exception(error)}"
            breaches.append(Breach(node, text))
    if breaches:
        return CheckedPromise(check, "broken", breaches)
    if check.each_node and not trial.sample:
        missing[trial.why_no_sample] = None
    if missing:
        return CheckedPromise(check, "unchecked", note="; ".join(missing))
    return CheckedPromise(check, "held")
