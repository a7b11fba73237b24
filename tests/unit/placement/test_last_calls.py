"""Of some calls the last ones close what none of them uses any more."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3

from agent.conf import placement
from agent.http.bounded import BoundedAdapter
from agent.http.last_calls import LastCalls


def test_nothing_is_closed_while_calls_wait_to_begin() -> None:
    kept: list[int] = []
    calls = LastCalls(3, kept.append)
    assert [calls.run(lambda: 7), calls.run(lambda: 8)] == [7, 8]
    assert kept == []
    assert calls.run(lambda: 9) == 9
    assert kept == [1]


def test_the_last_of_those_side_by_side_keeps_a_connection() -> None:
    kept: list[int] = []
    calls, begun, ends = LastCalls(3, kept.append), threading.Barrier(4), threading.Semaphore(0)

    def call() -> None:
        begun.wait(60)
        ends.acquire()

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(calls.run, call) for _ in range(3)]
        begun.wait(60)
        ends.release(3)
    assert [one.result() for one in running] == [None, None, None]
    assert sorted(kept) == [0, 0, 1]


def test_after_an_exception_no_other_call_is_expected() -> None:
    kept: list[int] = []
    calls = LastCalls(3, kept.append)
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 // 0)
    assert kept == [1]


def pool_of(adapter: BoundedAdapter, scheme: str) -> urllib3.HTTPConnectionPool:
    pool = adapter.poolmanager.connection_from_url(f"{scheme}://127.0.0.1:1/")
    assert isinstance(pool, urllib3.HTTPConnectionPool)
    return pool


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_last_used_connections_stay(scheme: str) -> None:
    adapter = BoundedAdapter()
    pool = pool_of(adapter, scheme)
    taken = [pool._get_conn() for _ in range(3)]
    for connection in taken:
        pool._put_conn(connection)
    adapter.close_idle(2)
    assert pool._get_conn() is taken[2]
    assert pool._get_conn() is taken[1]
    assert pool._get_conn() is not taken[0]
    # A pool that was closed as a whole has none.
    pool.close()
    adapter.close_idle(0)


def test_as_many_connections_may_be_idle_as_there_may_be_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library below keeps ten unless it is told otherwise, and warns of each that is more."""
    (most,) = (option.type.max for option in placement.OPTIONS if option.name == "max_in_flight")
    pool = pool_of(BoundedAdapter(), "http")
    taken = [pool._get_conn() for _ in range(most)]
    for connection in taken:
        pool._put_conn(connection)
    assert {pool._get_conn() for _ in range(most)} == set(taken)
    assert not caplog.records


def test_a_call_knows_that_it_is_one() -> None:
    assert not LastCalls.in_one()
    assert LastCalls(2, lambda _keep: None).run(LastCalls.in_one)
    assert not LastCalls(1, lambda _keep: None).run(LastCalls.in_one), "it is the only one"
    assert not LastCalls.in_one()
