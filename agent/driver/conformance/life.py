"""Checks of starting and stopping, of threads, and of what a driver writes."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.driver.conformance.check import ConformanceCheck
from agent.driver.conformance.nodes import usable_nodes
from agent.driver.conformance.trial import DriverTrial, Unanswered
from agent.model.names import number_of, printable

THREADS = 4
"""How many threads call the driver at the same time."""


def files_below(folder: Path) -> Mapping[str, tuple[int, int]]:
    """Return the files and folders below ``folder``: size in bytes and time of the last change in
    nanoseconds, by path.
    """
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            status = path.lstat()
            found[str(path.relative_to(folder))] = (
                0 if path.is_dir() else status.st_size,
                status.st_mtime_ns,
            )
    return found


def _writes_nothing(trial: DriverTrial) -> Iterator[str]:
    for path in sorted(files_below(trial.settings.host.state_path)):
        yield f"{printable(path)} was written in the folder host.state_path"


def _stops_before_start(trial: DriverTrial) -> Iterator[str]:
    if fault := trial.fault("stop", trial.driver.stop):
        yield f"before the start: {fault}"


def _stops_again(trial: DriverTrial) -> Iterator[str]:
    if fault := trial.fault("stop", trial.driver.stop):
        yield f"the second call: {fault}"


def _answers_after_stop(trial: DriverTrial) -> Iterator[str]:
    driver = trial.driver
    faults = [trial.fault("nodes", driver.nodes, True)]
    for node in trial.sample[:1]:
        faults += [
            trial.fault("facts", driver.facts, node),
            trial.fault("is_node_deleted", driver.is_node_deleted, node),
        ]
    yield from filter(None, faults)


def _has_the_same_nodes(trial: DriverTrial) -> Iterator[str]:
    if not trial.listed:
        raise Unanswered("see the check nodes-mapping: there are no nodes to compare with")
    after = usable_nodes(trial)
    for uuid in sorted(trial.listed.keys() - after.keys()):
        yield f"node {printable(trial.listed[uuid])}: no node has the uuid {uuid} after a restart"


def _answers_several_threads(trial: DriverTrial) -> Iterator[str]:
    driver, node = trial.driver, next(iter(trial.sample), None)
    # Alone first, because this check is not about what fails in one thread too.
    trial.call("nodes", driver.nodes, False)
    if node is not None:
        trial.call("facts", driver.facts, node, node=node)

    def ask(number: int) -> str:
        if node is None or number % 2:
            return trial.fault("nodes", driver.nodes, True)
        return trial.fault("facts", driver.facts, node)

    with ThreadPoolExecutor(THREADS) as threads:
        faults = {fault for fault in threads.map(ask, range(2 * THREADS)) if fault}
    yield from sorted(faults)


def _is_ready(trial: DriverTrial) -> Iterator[str]:
    for name, record in trial.records.items():
        if record.not_ready and name != "start":
            calls = number_of(record.not_ready + record.answered, "call")
            yield f"{name}: {record.not_ready} of {calls} raised NotReady"


def _prints_nothing(trial: DriverTrial) -> Iterator[str]:
    if written := trial.output.look():
        yield f"{printable(repr(written))[:200]} was written to standard output"


def _is_made_again(trial: DriverTrial) -> Iterator[str]:
    if trial.not_again:
        yield f"a second instance cannot be made: {trial.not_again}"


def _lets_the_process_go_on(_trial: DriverTrial) -> Iterator[str]:
    # Who comes here has seen no such thing; agent.driver.conformance.apart sees the rest.
    yield from ()


def _leaves_the_process_alone(trial: DriverTrial) -> Iterator[str]:
    yield from dict.fromkeys(trial.process_changes)
    yield from trial.threads_left()


def _check(
    name: str, promise: str, remedy: str, whole: Callable[[DriverTrial], Iterator[str]]
) -> ConformanceCheck:
    return ConformanceCheck(name, promise, remedy, whole=whole)


BEFORE_START = (
    _check(
        "stop-unstarted",
        "stop() does nothing on a driver that was not started",
        "check in stop() what start() has opened, before closing it",
        _stops_before_start,
    ),
)
STARTED = (
    _check(
        "threads",
        "several threads can call the driver at the same time",
        "guard with a lock what the methods change, and share no connection that allows one caller",
        _answers_several_threads,
    ),
)
STOPPED = (
    _check(
        "stop-again",
        "a second stop() does nothing",
        "set what stop() has closed to None, and check that",
        _stops_again,
    ),
    _check(
        "after-stop",
        "after stop() a call answers or raises an error of the agent; it does not hang",
        "raise agent.errors.NotReady if the driver is not started",
        _answers_after_stop,
    ),
    _check(
        "read-only",
        "with host.read_only true, nothing is written",
        "check host.read_only before writing into host.state_path",
        _writes_nothing,
    ),
)
RESTARTED = (
    _check(
        "restart",
        "after a restart the nodes have the same uuids",
        "take the uuid from the backend or from host.identity; do not generate it at each start",
        _has_the_same_nodes,
    ),
)
CONSTRUCTOR = _check(
    "constructor",
    "an instance is made within the deadline of the start, and a second one too",
    "only register and read options in __init__(); leave what can wait or fail to start()",
    _is_made_again,
)
PROCESS_END = _check(
    "process-end",
    "the process goes on: nothing ends it, keeps the interpreter, or answers without end",
    "raise DriverError instead of ending the process; let C code release the interpreter",
    _lets_the_process_go_on,
)
ALWAYS = (
    CONSTRUCTOR,
    PROCESS_END,
    _check(
        "process-state",
        "the process stays as it is: its directory, umask, environment, signals, limits, threads",
        "change nothing that belongs to the whole process; in programs it starts, as they need it",
        _leaves_the_process_alone,
    ),
    _check(
        "ready",
        "NotReady means that the backend does not answer; once started, every call is answered",
        "repeat the check while the backend answers; if it did answer, try again within the call",
        _is_ready,
    ),
    _check(
        "stdout",
        "nothing is written to standard output, which belongs to the agent's report",
        "use a logger of the module logging, and capture the output of other programs",
        _prints_nothing,
    ),
)
