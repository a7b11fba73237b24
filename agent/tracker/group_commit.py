"""Attempts at operations under their nodes' locks: operations that wait for the same node are
written in one transaction, so that one wait for the disk serves all of them.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from agent.errors import RecordConflict
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.tracker.errors import TrackerError
from agent.tracker.node_entry import NodeEntry, current_state, lock_nodes
from agent.tracker.node_state import NodeState
from agent.tracker.planning import LocklessPlanner, NotPlannedYet
from agent.tracker.stored_state import (
    OperationTarget,
    RecordReads,
    RecordStore,
    RecordTransaction,
    StoredState,
    claimed_nodes,
    nodes_of_instance,
    read_stored_state,
)

LOG = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Plan = Callable[[Mapping[ProviderUuid, NodeState], StoredState, RecordReads], Answer]
"""Pure function of the nodes' states, the stored state of the target, and further reads."""


@dataclass(frozen=True, slots=True)
class Done(Generic[Answer]):
    """An operation that was carried out, with its answer and the changes that were written."""

    answer: Answer
    changes: RecordChanges


# Without a text of its own, because deque.remove() makes one of what it does not find.
@dataclass(slots=True, eq=False, repr=False)
class TrackerOperation(Generic[Answer]):
    """An operation on its way through the runner."""

    target: OperationTarget
    plan: Plan[Answer]
    changes_of: Callable[[Answer], RecordChanges]
    """The changes that an answer of ``plan`` comes with."""
    outcome: Done[Answer] | frozenset[ProviderUuid] | NotPlannedYet | TrackerError | None = None
    """What the last attempt came to: the answer, the nodes that are concerned too, the search that
    has to be made first, or a refusal; None before it, and after a conflict.
    """


class GroupCommit:
    """Attempts operations on the nodes of ``entries``. Threads may share it."""

    def __init__(self, records: RecordStore, entries: Mapping[ProviderUuid, NodeEntry]) -> None:
        self._records, self._entries = records, entries
        # The operations that wait for the lock of their node, in the order of their arrival.
        self._waiting: dict[ProviderUuid, deque[TrackerOperation[Any]]] = {}

    def attempt_alone(
        self,
        nodes: frozenset[ProviderUuid],
        operation: TrackerOperation[Any],
        planner: LocklessPlanner | None = None,
    ) -> None:
        """Attempt an operation in a transaction of its own. ``planner``: makes a missing search
        under the lock, after which the operation is attempted once more.
        """
        with lock_nodes(self._entries, nodes) as entries, suppress(RecordConflict):
            self._attempt(entries, nodes, [operation])
            if isinstance(operation.outcome, NotPlannedYet) and planner is not None:
                planner.search(operation.outcome)
                self._attempt(entries, nodes, [operation])

    def attempt_with_others(self, node: ProviderUuid, operation: TrackerOperation[Any]) -> None:
        """Attempt an operation, and in the same transaction all others that wait for the lock of
        the node, so that one wait for the disk serves all of them.

        If the transaction fails, each of them is attempted alone, by its own thread, and meets its
        own error. What was written nevertheless is not written twice, because each has an id. An
        operation whose deadline passes while another thread attempts it may have been carried out.
        """
        waiting = self._waiting.setdefault(node, deque())
        waiting.append(operation)
        try:
            with lock_nodes(self._entries, [node]) as entries:
                if operation.outcome is not None:
                    # A thread that had the lock before has carried it out.
                    return
                together = [operation]
                with suppress(IndexError):
                    while True:
                        if (other := waiting.popleft()) is not operation:
                            together.append(other)
                if len(together) > 1:
                    try:
                        self._attempt(entries, frozenset({node}), together)
                        return
                    except Exception as error:  # noqa: BLE001
                        LOG.debug("node %s: %d operations failed: %r", node, len(together), error)
                with suppress(RecordConflict):
                    self._attempt(entries, frozenset({node}), [operation])
        finally:
            with suppress(ValueError):
                waiting.remove(operation)

    def _attempt(
        self,
        entries: Mapping[ProviderUuid, NodeEntry],
        nodes: frozenset[ProviderUuid],
        operations: Sequence[TrackerOperation[Any]],
    ) -> None:
        """Plan and write operations in one transaction, with the nodes locked; then apply them to
        the states in memory, and set their outcomes. Either all that is planned is written, or
        nothing and no outcome is set.
        """
        states: dict[ProviderUuid, NodeState] = {}
        try:
            with self._records.transaction(nodes) as transaction:
                outcomes = [
                    self._outcome(operation, transaction, entries, nodes, states)
                    for operation in operations
                ]
        except Exception:
            # The commit may have succeeded although its answer was lost.
            self._drop_states(nodes)
            raise
        for uuid, state in states.items():
            entries[uuid].state = state
        for operation, outcome in zip(operations, outcomes, strict=True):
            operation.outcome = outcome

    def _outcome(
        self,
        operation: TrackerOperation[Answer],
        transaction: RecordTransaction,
        entries: Mapping[ProviderUuid, NodeEntry],
        nodes: frozenset[ProviderUuid],
        states: dict[ProviderUuid, NodeState],
    ) -> Done[Answer] | frozenset[ProviderUuid] | NotPlannedYet | TrackerError:
        """Plan and write one operation, and return its outcome. ``states``: as the transaction has
        them so far.
        """
        try:
            stored = read_stored_state(transaction, operation.target)
            if not (more := claimed_nodes(stored)) <= nodes:
                return more
            for uuid in entries.keys() - states.keys():
                states[uuid] = current_state(uuid, entries[uuid], transaction)
            answer = operation.plan(states, stored, transaction)
        except (TrackerError, NotPlannedYet) as refusal:
            # Nothing of it is written yet, so that the other operations go on.
            return refusal
        if changes := operation.changes_of(answer):
            changes = replace(changes, also_on=nodes_of_instance(stored))
            transaction.write(changes)
            for uuid, state in states.items():
                states[uuid] = state.after(changes, stored.instance)
        return Done(answer, changes)

    def _drop_states(self, nodes: Collection[ProviderUuid]) -> None:
        for uuid in nodes:
            if uuid in self._entries:
                self._entries[uuid].state = None
