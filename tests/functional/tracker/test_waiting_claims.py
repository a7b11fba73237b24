"""Claims that wait for the same node are made one after the other, in the order of their arrival."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

from agent.deadline import DeadlinePassed, within
from agent.errors import StoreError
from agent.model.node_records import RecordChanges
from agent.store.records import Transaction
from agent.tracker.errors import InstanceClaimed, ResourcesUnavailable
from agent.tracker.stored_state import ClaimLimits, PlannedChange
from tests.support.tracking import F1, Host, World, settled, uuid_of

END = 60.0
NOTHING = ClaimLimits(memory_mb=1)


class Commits:
    """The transactions that were committed in the store, and whether the next commits fail."""

    def __init__(self, world: World) -> None:
        self.count = self.fails = 0
        event.listen(world.store._engine, "commit", self._count)

    def _count(self, _connection: Connection) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("the disk is gone")
        self.count += 1


@pytest.fixture
def commits(world: World, ha: Host) -> Commits:
    ha.claim("first", F1)
    return Commits(world)


def waiting(host: Host) -> int:
    """How many operations wait for the lock of the host's node."""
    return len(host.usage_step._entries[host.node].lock._waiting)


@contextmanager
def held_up(host: Host, *claims: Callable[[], PlannedChange]) -> Iterator[list[Future[Any]]]:
    """Claims that arrive in this order while the node is locked; when the block ends, it is not."""
    with ThreadPoolExecutor(len(claims)) as pool, host.usage_step._entries[host.node].lock:
        begun = []
        for number, claim in enumerate(claims):
            begun.append(pool.submit(claim))
            until = time.monotonic() + END
            while waiting(host) <= number and time.monotonic() < until:
                time.sleep(0.001)
        assert waiting(host) == len(claims)
        yield begun


def claim(host: Host, name: str, **more: Any) -> Callable[[], PlannedChange]:
    return lambda: host.claim(name, F1, **more)


def test_claims_that_wait_for_a_node_are_written_one_by_one(ha: Host, commits: Commits) -> None:
    with held_up(ha, *(claim(ha, f"guest-{number}") for number in range(5))) as begun:
        pass
    assert [one.result().repeated for one in begun] == [False] * 5
    assert commits.count == 5
    assert [len(ha.claims(f"guest-{number}")) for number in range(5)] == [1] * 5
    assert len(ha.tracker.view(ha.node).claims) == 6
    assert ha.changed.count(ha.node) >= 5
    settled(ha)
    ha.audit()
    settled(ha)


def test_a_claim_that_is_refused_is_refused_alone(ha: Host, commits: Commits) -> None:
    with held_up(
        ha,
        claim(ha, "a"),
        claim(ha, "b", limits=NOTHING),
        claim(ha, "first", id="x"),
        claim(ha, "c"),
    ) as (a, b, first, c):
        pass
    assert [one.result().claim.id for one in (a, c)] == [uuid_of("claim-a"), uuid_of("claim-c")]
    with pytest.raises(ResourcesUnavailable):
        b.result()
    with pytest.raises(InstanceClaimed):
        first.result()
    assert commits.count == 2
    assert len(ha.tracker.view(ha.node).claims) == 3
    settled(ha)


def test_equal_and_contradicting_claims_that_wait_see_each_other(
    ha: Host, commits: Commits
) -> None:
    same, other = claim(ha, "a"), claim(ha, "a", id="another")
    with held_up(ha, same, same, other) as (first, again, contradicting):
        pass
    assert not first.result().repeated
    assert again.result().repeated
    assert again.result().claim.id == first.result().claim.id
    with pytest.raises(InstanceClaimed):
        contradicting.result()
    assert len(ha.claims("a")) == 1
    settled(ha)


def test_a_claim_that_cannot_be_written_takes_no_other_with_it(
    ha: Host, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Transaction.write

    def fail(transaction: Transaction, changes: RecordChanges) -> None:
        write(transaction, changes)
        if any(claim.id == uuid_of("claim-b") for claim in changes.claims):
            raise StoreError("no", "no")

    monkeypatch.setattr(Transaction, "write", fail)
    with held_up(ha, *(claim(ha, name) for name in "abc")) as (a, b, c):
        pass
    assert [one.result().repeated for one in (a, c)] == [False, False]
    with pytest.raises(StoreError):
        b.result()
    assert not ha.claims("b")
    assert len(ha.tracker.view(ha.node).claims) == 3
    settled(ha)


def test_nobody_is_answered_before_a_commit_has_succeeded(ha: Host, commits: Commits) -> None:
    commits.fails = 1
    with held_up(ha, *(claim(ha, name) for name in "abc")) as (a, b, c):
        pass
    with pytest.raises(StoreError):
        a.result()
    assert [one.result().repeated for one in (b, c)] == [False, False]
    assert not ha.claims("a")
    assert len(ha.tracker.view(ha.node).claims) == 3
    settled(ha)


def test_a_claim_whose_time_is_over_while_it_waits_is_not_made(ha: Host, commits: Commits) -> None:
    with held_up(ha, claim(ha, "b")) as (b,), within(0.05), pytest.raises(DeadlinePassed):
        ha.claim("a", F1)
    assert not b.result().repeated
    assert not ha.claims("a")
    settled(ha)


def test_claims_of_a_node_that_is_removed_while_they_wait_are_refused(
    ha: Host, commits: Commits
) -> None:
    entries: dict[Any, Any] = ha.usage_step._entries
    with held_up(ha, claim(ha, "a"), claim(ha, "b")) as (a, b):
        entries.pop(ha.node)
    for refused in (a, b):
        with pytest.raises(Exception, match="node"):
            refused.result()
    assert commits.count == 0
    assert not ha.claims("a")
    assert not ha.claims("b")
