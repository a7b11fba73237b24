"""Checks of what only some drivers can do: subscriptions, leases, instances, warnings of options,
the check of a configuration, and the count of hanging calls.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import cast

from agent.driver.answers import faults_of
from agent.driver.conformance.check import ConformanceCheck
from agent.driver.conformance.io_watch import watch_io
from agent.driver.conformance.listener import LOCK_WAIT, ChangeListener
from agent.driver.conformance.nodes import usable_nodes
from agent.driver.conformance.trial import DriverTrial, NothingToCheck
from agent.driver.interface import (
    ChecksConfiguration,
    CountsHangingCalls,
    Instances,
    LooksAtInstances,
    NeedsLease,
    TellsOfChanges,
    WarnsOfOptions,
)
from agent.model.names import MAX_PROVIDER_NAME, name_first, printable


class NoInstances:
    """Records without an instance; see :class:`agent.driver.interface.Instances`."""

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - there are none
        """Return no instance."""
        return frozenset()

    def nodes(self) -> frozenset[str]:
        """Return no node."""
        return frozenset()


class InstancesElsewhere(NoInstances):
    """Records by which every instance is on another host."""

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Return all ``instances``."""
        return frozenset(instances)


def give_instances(trial: DriverTrial, instances: Instances) -> None:
    """Give the driver the records, if it looks at them.

    :raises Unanswered: the driver failed.
    """
    if isinstance(trial.driver, LooksAtInstances):
        trial.call("with_instances", trial.driver.with_instances, instances)


def _tells_names(trial: DriverTrial) -> Iterator[str]:
    listener = _listener(trial)
    for name in {
        printable(repr(name))[:100] for name in listener.names if not isinstance(name, str)
    }:
        yield f"changed() was called with {name}, which is no name"
    strange = {name for name in listener.names if isinstance(name, str)} - set(
        trial.listed.values()
    )
    for name in sorted(strange):
        yield f"changed() was called with {printable(name)[:100]!r}, which no node is called"


def _tells_without_lock(trial: DriverTrial) -> Iterator[str]:
    listener = _listener(trial)
    listener.settle()
    if listener.waits:
        yield (
            f"while changed() ran, nodes() did not return within {LOCK_WAIT:g} s in another thread"
        )


def _listener(trial: DriverTrial) -> ChangeListener:
    if not trial.listener.names:
        raise NothingToCheck("no change came while the suite ran")
    return trial.listener


def _warns_in_lines(trial: DriverTrial) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, WarnsOfOptions)
    found: object = trial.call("option_warnings", driver.option_warnings, early=True)
    if isinstance(found, str) or not isinstance(found, Sequence):
        yield f"the answer is no sequence of texts but {type(found).__name__}"
        return
    for warning in found:
        if not isinstance(warning, str) or not warning.strip() or "\n" in warning:
            yield f"{printable(repr(warning))[:100]} is not one line of text"


def _checks_without_traffic(trial: DriverTrial) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, ChecksConfiguration)
    _none, events = trial.call(
        "check", watch_io, driver.check, trial.settings.host.name, early=True
    )
    for _name, event, writes in events:
        if writes:
            yield f"check() does more than reading files: {printable(event)}"


def _counts(trial: DriverTrial) -> Iterator[str]:
    driver = cast(CountsHangingCalls, trial.driver)
    found: object = trial.call("hanging", lambda: driver.hanging)
    yield from (text for _path, text in faults_of(found, int))


def _names_a_lease(trial: DriverTrial) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, NeedsLease)
    found: object = trial.call("lease", driver.lease)
    if not isinstance(found, str) or not found.strip():
        yield f"the lease is {printable(repr(found))[:100]}, no text"
    elif trial.call("lease", driver.lease) != found:
        yield "a second call names another lease"


def _shares_the_lease(trial: DriverTrial) -> Iterator[str]:
    driver, other = trial.driver, trial.make_another()
    assert isinstance(driver, NeedsLease)
    assert isinstance(other, NeedsLease)
    own: object = trial.call("lease", driver.lease)
    name = f"{trial.settings.host.name}-2"[-MAX_PROVIDER_NAME:]
    identity = str(uuid.uuid4())
    host = replace(trial.settings.host, name=name, identity=identity, read_only=True)
    trial.call("start", other.start, host)
    try:
        found: object = trial.call("lease", other.lease)
    finally:
        trial.call("stop", other.stop)
    if found != own:
        yield (
            f"started for another host, the lease is {printable(repr(found))[:100]} instead of "
            f"{printable(repr(own))[:100]}"
        )


def _leaves_out_others_nodes(trial: DriverTrial) -> Iterator[str]:
    before = usable_nodes(trial)
    give_instances(trial, InstancesElsewhere())
    found = usable_nodes(trial)
    if more := sorted(found[uuid] for uuid in found.keys() - before.keys()):
        yield (
            "with every instance on another host, nodes appear that were not managed before: "
            f"{printable(name_first(more, 3))}"
        )


BEFORE_START = (
    ConformanceCheck(
        "option-warnings-lines",
        "option_warnings() is a sequence of lines, before the start too",
        "return a list of texts, each one line, from the options alone",
        whole=_warns_in_lines,
        ability=WarnsOfOptions,
    ),
    ConformanceCheck(
        "check-io",
        "check() connects to nothing and changes nothing",
        "read the options, and the files that they name; leave the rest to start()",
        whole=_checks_without_traffic,
        ability=ChecksConfiguration,
    ),
)
STARTED = (
    ConformanceCheck(
        "hanging-count",
        "hanging is the number of calls that the driver has abandoned",
        "return a whole number of at least 0",
        whole=_counts,
        ability=CountsHangingCalls,
    ),
    ConformanceCheck(
        "lease-name",
        "lease() is a text that stays the same",
        "return the same name for the same nodes each time",
        whole=_names_a_lease,
        ability=NeedsLease,
    ),
    ConformanceCheck(
        "lease-shared",
        "lease() is the same for all agents that would manage the same nodes",
        "build the name from what chooses the nodes, not from the host",
        whole=_shares_the_lease,
        ability=NeedsLease,
    ),
    ConformanceCheck(
        "subscribe-names",
        "changed() is called with the name of a node",
        "call changed() with a name as nodes() lists it",
        whole=_tells_names,
        ability=TellsOfChanges,
    ),
    ConformanceCheck(
        "subscribe-lock",
        "changed() is called without holding a lock",
        "release the driver's locks before calling changed()",
        whole=_tells_without_lock,
        ability=TellsOfChanges,
    ),
)
RESTARTED = (
    ConformanceCheck(
        "instances-nodes",
        "with_instances() leaves out nodes with instances of other hosts; no others appear",
        "manage a node only if the records do not have its instance on another host",
        whole=_leaves_out_others_nodes,
        ability=LooksAtInstances,
    ),
)
