"""One node's place in memory: its lock, its state, and what its audits remember."""

import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from agent.deadline import DeadlinePassed, acquired
from agent.model.names import ProviderUuid
from agent.tracker.host_capacity import HostCapacity
from agent.tracker.node_state import NodeState


class FairLock:
    """Not reentrant. Whoever lets go hands it to the next one, so that nobody in between can take
    it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        """:raises DeadlinePassed: it was not this thread's turn in time."""
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        # Free once it is this thread's turn.
        if not acquired(turn):
            with self._mutex:
                # Unless it was handed over in this moment.
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    raise DeadlinePassed("the node, with which others are busy,")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


@dataclass(slots=True)
class NodeEntry:
    """``state`` is None until it is read, and after a failure left unknown what the store holds.
    Everything but the locks belongs to who has the lock. ``agent``: the name of this host once an
    audit found that the node is its own, else None. ``created``: whether the last audit made the
    record.
    """

    host: HostCapacity
    state: NodeState | None = None
    agent: str | None = None
    created: bool = False
    # First come, first served, so that nobody waits for ever on a busy node.
    lock: FairLock = field(default_factory=FairLock)
    # The turn of whose claim is planned that takes long, so that they do not undo each other's
    # plans. Never waited for under ``lock``.
    turn: FairLock = field(default_factory=FairLock)


@dataclass(slots=True)
class Listed:
    """``nodes``: those that the driver listed last, audited or not; None before it did."""

    nodes: frozenset[ProviderUuid] | None = None


@contextmanager
def locked(
    entries: Mapping[ProviderUuid, NodeEntry], nodes: Collection[ProviderUuid]
) -> Iterator[Mapping[ProviderUuid, NodeEntry]]:
    """The slots of those of ``nodes`` that are ours, locked in one order that all keep, so that
    nobody waits for each other.
    """
    with ExitStack() as stack:
        yield {
            uuid: entry
            for uuid in sorted(nodes)
            if (entry := _entered(entries, uuid, stack)) is not None
        }


def _entered(
    entries: Mapping[ProviderUuid, NodeEntry], uuid: ProviderUuid, stack: ExitStack
) -> NodeEntry | None:
    """The slot, once ``stack`` has its lock; None if there is none, or no more when the lock was
    free.
    """
    while (entry := entries.get(uuid)) is not None:
        with ExitStack() as attempt:
            attempt.enter_context(entry.lock)
            if entries.get(uuid) is entry:
                stack.push(attempt.pop_all())
                return entry
    return None
