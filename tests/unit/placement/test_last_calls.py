"""Of some calls the last ones close what none of them uses any more."""

import pytest
import urllib3

from agent.conf import clients
from agent.http.bounded import BoundedAdapter, LastCalls


def test_nothing_is_closed_while_calls_wait_to_begin() -> None:
    closed: list[int] = []
    calls = LastCalls(3, lambda: closed.append(1))
    assert [calls.run(lambda: 7), calls.run(lambda: 8)] == [7, 8]
    assert closed == []
    assert calls.run(lambda: 9) == 9
    assert closed == [1]


def test_an_exception_is_the_end_of_its_own_call_only() -> None:
    closed: list[int] = []
    calls = LastCalls(2, lambda: closed.append(1))
    for expected in ([], [1]):
        with pytest.raises(ZeroDivisionError):
            calls.run(lambda: 1 // 0)
        assert closed == expected
        assert not LastCalls.in_one()


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
    (most,) = (option.type.max for option in clients.PLACEMENT if option.name == "max_in_flight")
    pool = pool_of(BoundedAdapter(), "http")
    taken = [pool._get_conn() for _ in range(most)]
    for connection in taken:
        pool._put_conn(connection)
    assert {pool._get_conn() for _ in range(most)} == set(taken)
    assert not caplog.records
