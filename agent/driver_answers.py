"""What a driver answers, looked at before anybody builds on it: which nodes it has, and what they are like."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from agent.driver import Driver
from agent.driver_worker import DriverWorker
from agent.errors import DRIVER_FAULT, ConfigError, DriverError
from agent.model.facts import HostFacts
from agent.model.names import is_uuid, normal_uuid, printable

SHOWN = 10

Nodes = Mapping[str, str]
"""The names of nodes, by uuid."""


def managed_nodes(driver: Driver, worker: DriverWorker, called: str, deadline: float, *, refresh: bool = True) -> Nodes:
    """The nodes that the driver called ``called`` manages now.

    :raises DriverError: the backend does not answer, or the answer makes no sense.
    """
    found = worker.call(driver.nodes, refresh, deadline=deadline)
    if not isinstance(found, Mapping) or not all(is_uuid(uuid) and isinstance(name, str) for uuid, name in found.items()):
        raise DriverError(f"driver {called}: its nodes are not names by uuid, but {printable(str(found))[:200]}", DRIVER_FAULT)
    return {normal_uuid(uuid): name for uuid, name in found.items()}


def chosen_nodes(found: Nodes, wanted: Sequence[str], called: str) -> tuple[Nodes, list[ConfigError]]:
    """Those of ``found`` that ``--node`` means, by name, pattern or uuid, all if there is none; and an error for each that means nothing."""
    chosen = {uuid: name for uuid, name in found.items() if not wanted or any(_is_called(one, uuid, name) for one in wanted)}
    errors = [
        ConfigError(f"--node {one}: the driver {called} has no such node", f"it has {', '.join(sorted(found.values())[:SHOWN]) or 'none'}")
        for one in wanted if not any(_is_called(one, uuid, name) for uuid, name in found.items())
    ]  # fmt: skip
    return chosen, errors


def node_facts(driver: Driver, worker: DriverWorker, called: str, node: str, deadline: float) -> HostFacts:
    """What the driver called ``called`` says of the node.

    :raises DriverError: the backend does not answer, or the answer makes no sense.
    """
    facts = worker.call(driver.facts, node, deadline=deadline, node=node)
    if not isinstance(facts, HostFacts):
        raise DriverError(f"driver {called}: its facts of {printable(node)} are no HostFacts but {type(facts).__name__}", DRIVER_FAULT)
    if forgotten := facts.forgotten:
        # Taken for a node that has none, the inventory would go; so the last good one stays.
        raise DriverError(f"driver {called}: its facts of {printable(node)} have CPUs but no {' and no '.join(forgotten)}", DRIVER_FAULT)
    return facts


def _is_called(wanted: str, uuid: str, name: str) -> bool:
    return wanted == uuid or fnmatchcase(name, wanted)
