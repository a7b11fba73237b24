"""The promises about what only some drivers can do: marks, capabilities, warnings of options,
leases, changes and instances.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.conformance.check import NothingToCheck, check
from agent.conformance.promises import require_nodes, shown, unknown_trait
from agent.conformance.trial import LOCK_WAIT, DriverTrial
from agent.driver.answers import faults_of
from agent.driver.interface import (
    CountsHangingCalls,
    LooksAtInstances,
    MarksNodes,
    NeedsLease,
    ReportsCapabilities,
    TellsOfChanges,
    WarnsOfOptions,
)
from agent.model.names import (
    MAX_PROVIDER_NAME,
    name_first,
    printable,
)


@check(
    "mark-stable",
    "started",
    "build the mark from what decides the node's tree, and from nothing else",
    ability=MarksNodes,
)
def _marks_alike(trial: DriverTrial) -> Iterator[str]:
    """mark() can be hashed, and stays equal while the node does not change"""
    require_nodes(trial)
    before = {node: trial.call("mark", node, node=node) for node in trial.sample}
    trial.call("nodes", True)
    for node, mark in before.items():
        try:
            hash(mark)
        except TypeError:
            yield f"the mark of {printable(node)} cannot be hashed: {shown(mark)}"
            continue
        if trial.call("mark", node, node=node) != mark:
            yield f"the mark of {printable(node)} differs after nodes(refresh=True): {shown(mark)}"


class NoInstances:
    """Records without an instance; see :class:`agent.driver.interface.Instances`."""

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - there are none
        """Return no instance."""
        return frozenset()

    def nodes(self) -> frozenset[str]:
        """Return no node."""
        return frozenset()


class _InstancesElsewhere(NoInstances):
    """Records by which every instance is on another host."""

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Return all ``instances``."""
        return frozenset(instances)


@check(
    "capabilities-names",
    "started",
    "use the names of os-traits; a capability that the driver does not know is left out",
    ability=ReportsCapabilities,
)
def _names_known_capabilities(trial: DriverTrial) -> Iterator[str]:
    """capabilities_as_traits() maps standard traits, or CUSTOM_ ones, to True or False"""
    found = trial.call("capabilities_as_traits")
    yield from (text for _path, text in faults_of(found, Mapping[str, bool]))
    if isinstance(found, Mapping):
        names = sorted(name for name in found if isinstance(name, str))
        yield from filter(None, map(unknown_trait, names))


@check(
    "option-warnings-lines",
    "before-start",
    "return a list of texts, each one line, from the options alone",
    ability=WarnsOfOptions,
)
def _warns_in_lines(trial: DriverTrial) -> Iterator[str]:
    """option_warnings() is a sequence of lines, before the start too"""
    found = trial.call("option_warnings", early=True)
    if isinstance(found, str) or not isinstance(found, Sequence):
        yield f"the answer is no sequence of texts but {type(found).__name__}"
        return
    for warning in found:
        if not isinstance(warning, str) or not warning.strip() or "\n" in warning:
            yield f"{shown(warning)} is not one line of text"


@check(
    "hanging-count", "started", "return a whole number of at least 0", ability=CountsHangingCalls
)
def _counts(trial: DriverTrial) -> Iterator[str]:
    """hanging is the number of calls that the driver has abandoned"""
    yield from (text for _path, text in faults_of(trial.call("hanging"), int))


@check(
    "lease-name", "started", "return the same name for the same nodes each time", ability=NeedsLease
)
def _names_a_lease(trial: DriverTrial) -> Iterator[str]:
    """lease() is a text that stays the same"""
    found = trial.call("lease")
    if not isinstance(found, str) or not found.strip():
        yield f"the lease is {shown(found)}, no text"
    elif trial.call("lease") != found:
        yield "a second call names another lease"


@check(
    "lease-shared",
    "started",
    "build the name from what chooses the nodes, not from the host",
    ability=NeedsLease,
)
def _shares_the_lease(trial: DriverTrial) -> Iterator[str]:
    """lease() is the same for all agents that would manage the same nodes"""
    other = trial.make_another()
    own = trial.call("lease")
    name = f"{trial.host.name}-2"[-MAX_PROVIDER_NAME:]
    host = replace(trial.host, name=name, identity=str(uuid.uuid4()), read_only=True)
    trial.call("start", host, on=other)
    try:
        found = trial.call("lease", on=other)
    finally:
        trial.call("stop", on=other)
    if found != own:
        yield f"started for another host, the lease is {shown(found)} instead of {shown(own)}"


@check(
    "subscribe-names",
    "started",
    "call changed() with a name as nodes() lists it",
    ability=TellsOfChanges,
)
def _names_the_changed(trial: DriverTrial) -> Iterator[str]:
    """changed() is called with the name of a node"""
    _require_changes(trial)
    names = dict.fromkeys(map(shown, trial.listener.names))
    known = set(map(shown, trial.listed.values()))
    for name in sorted(names.keys() - known):
        yield f"changed() was called with {name}, which no node is called"


@check(
    "subscribe-lock",
    "started",
    "release the driver's locks before calling changed()",
    ability=TellsOfChanges,
)
def _tells_without_lock(trial: DriverTrial) -> Iterator[str]:
    """changed() is called without holding a lock"""
    _require_changes(trial)
    trial.listener.settle()
    if trial.listener.waits:
        yield (
            f"while changed() ran, nodes() did not return within {LOCK_WAIT:g} s in another thread"
        )


def _require_changes(trial: DriverTrial) -> None:
    if not trial.listener.names:
        raise NothingToCheck("no change came while the suite ran")


@check(
    "instances-nodes",
    "restarted",
    "manage a node only if the records do not have its instance on another host",
    ability=LooksAtInstances,
)
def _leaves_out_others_nodes(trial: DriverTrial) -> Iterator[str]:
    """with_instances() leaves out nodes with instances of other hosts; no others appear"""
    before = trial.usable_nodes()
    trial.call("with_instances", _InstancesElsewhere())
    found = trial.usable_nodes()
    if more := sorted(found[uuid] for uuid in found.keys() - before.keys()):
        yield (
            "with every instance on another host, nodes appear that were not managed before: "
            f"{printable(name_first(more, 3))}"
        )
