"""Checks of the list of nodes, of nodes that are gone, and of marks."""

import time
from collections.abc import Iterator, Mapping

from agent.driver.answers import Nodes, faults_of
from agent.driver.conformance.check import ConformanceCheck
from agent.driver.conformance.io_watch import watch_io
from agent.driver.conformance.trial import DriverTrial, Unanswered, examining
from agent.driver.interface import MarksNodes
from agent.model.names import MAX_PROVIDER_NAME, is_uuid, name_first, normal_uuid, printable

QUICK = 1.0
"""Seconds in which a mark must come. One that takes so long is not in memory."""
_MARK_TRIES = 3


def list_nodes(trial: DriverTrial) -> None:
    """List the nodes for all later checks: those whose uuid and name can be used.

    :raises Unanswered: the driver does not list them.
    """
    trial.listed = usable_nodes(trial)


def usable_nodes(trial: DriverTrial, *, refresh: bool = True) -> Nodes:
    """Return the nodes that the driver lists, uuid to name, without what is no uuid or no name."""
    found: object = trial.call("nodes", trial.driver.nodes, refresh)
    if not isinstance(found, Mapping):
        raise Unanswered("see the check nodes-mapping: the answer is no mapping")
    with examining():
        return {
            normal_uuid(uuid): name
            for uuid, name in found.items()
            if isinstance(uuid, str) and is_uuid(uuid) and isinstance(name, str)
        }


def _maps_uuids_to_names(trial: DriverTrial) -> Iterator[str]:
    found: object = trial.call("nodes", trial.driver.nodes, True)
    if isinstance(found, Mapping):
        # A copy, so that the memory bounds an answer without end.
        found = dict(found.items())
    yield from (text for _path, text in faults_of(found, Mapping[str, str]))
    if isinstance(found, Mapping):
        for uuid in found:
            if isinstance(uuid, str) and not is_uuid(uuid):
                yield f"{printable(repr(uuid))[:100]} is no uuid"


def _gives_each_a_name(trial: DriverTrial) -> Iterator[str]:
    _require_nodes(trial)
    names = list(trial.listed.values())
    for name in sorted(set(names)):
        shown = printable(name[:60])
        if names.count(name) > 1:
            yield f"{shown!r} is the name of {names.count(name)} nodes"
        if not 1 <= len(name) <= MAX_PROVIDER_NAME:
            yield f"{shown!r} has {len(name)} characters; Placement takes 1 to {MAX_PROVIDER_NAME}"
        if printable(name) != name:
            yield f"{shown!r} has control characters"


def _lists_the_same(trial: DriverTrial) -> Iterator[str]:
    first = usable_nodes(trial)
    for refresh in (False, True):
        again = usable_nodes(trial, refresh=refresh)
        if again != first:
            changed = sorted(str(name) for _uuid, name in again.items() ^ first.items())
            yield (
                f"nodes(refresh={refresh}) right after nodes(refresh=True) has other nodes or "
                f"uuids: {printable(name_first(changed, 3))}"
            )


def _says_present(trial: DriverTrial, node: str) -> Iterator[str]:
    answer = trial.call("is_node_deleted", trial.driver.is_node_deleted, node, node=node)
    if not isinstance(answer, bool):
        yield f"the answer is {printable(repr(answer))[:100]}, neither True nor False"
    elif answer:
        yield "is_node_deleted() is True for a node that nodes() lists: its providers would go"


def _marks_alike(trial: DriverTrial) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, MarksNodes)
    _require_nodes(trial)
    before = {node: trial.call("mark", driver.mark, node, node=node) for node in trial.sample}
    trial.call("nodes", driver.nodes, True)
    for node, mark in before.items():
        try:
            hash(mark)
        except TypeError:
            yield f"the mark of {printable(node)} cannot be hashed: {printable(repr(mark))[:100]}"
            continue
        if trial.call("mark", driver.mark, node, node=node) != mark:
            yield (
                f"the mark of {printable(node)} differs after nodes(refresh=True): "
                f"{printable(repr(mark))[:100]}"
            )


def _marks_without_io(trial: DriverTrial, node: str) -> Iterator[str]:
    driver = trial.driver
    assert isinstance(driver, MarksNodes)
    _mark, events = trial.call("mark", watch_io, driver.mark, node, node=node)
    yield from (f"mark() does I/O: {printable(event)}" for _name, event, _writes in events[:1])
    seconds = []
    for _ in range(_MARK_TRIES):
        begun = time.monotonic()
        trial.call("mark", driver.mark, node, node=node)
        seconds.append(time.monotonic() - begun)
    if min(seconds) > QUICK:
        yield f"mark() took {min(seconds):.2f} s, more than {QUICK:g} s"


def _require_nodes(trial: DriverTrial) -> None:
    if not trial.listed:
        raise Unanswered("there are no nodes")


LISTED = (
    ConformanceCheck(
        "nodes-mapping",
        "nodes() is a mapping of uuids to names",
        "return a dict whose keys are uuids as text, and whose values are names as text",
        whole=_maps_uuids_to_names,
    ),
    ConformanceCheck(
        "nodes-names",
        "each node has a name of its own that Placement can take",
        f"give each node a name of 1 to {MAX_PROVIDER_NAME} printable characters that no other has",
        whole=_gives_each_a_name,
    ),
    ConformanceCheck(
        "nodes-stable",
        "nodes() answers the same nodes with the same uuids while the backend does not change",
        "derive the uuids from the backend, and list all nodes also with refresh=False",
        whole=_lists_the_same,
    ),
    ConformanceCheck(
        "deleted-listed",
        "is_node_deleted() is False for every node that nodes() lists",
        "return True only if the backend itself says that the node is gone for good",
        node=_says_present,
    ),
    ConformanceCheck(
        "mark-stable",
        "mark() can be hashed, and stays equal while the node does not change",
        "build the mark from what decides the node's tree, and from nothing else",
        whole=_marks_alike,
        ability=MarksNodes,
    ),
    ConformanceCheck(
        "mark-io",
        "mark() answers from memory, without I/O",
        "answer from what the last nodes() has read",
        node=_marks_without_io,
        ability=MarksNodes,
    ),
)
