"""Eight threads and four processes claim the last of something at the same moment: one gets it, the
others are told that there is none.
"""

import os
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.model.names import ProviderUuid
from agent.store.reading import RecordReader
from agent.store.records import Records, Transaction
from tests.support.contenders import CLAIMS, PROCESSES, REFUSED, THREADS, WON, contended
from tests.support.tracking import F1, Host

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL

# A thousand in all, of three prizes on two databases; under soak a thousand of each.
ROUNDS = int(os.environ.get("CLAIM_RACES", "167"))


@pytest.fixture(params=["sqlite", "postgresql"])
def connection(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """``[store] connection`` of a new, empty store."""
    if request.param == "sqlite":
        yield None
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    database = server.create()
    yield server.url(database)
    server.drop(database)


@pytest.mark.long
@pytest.mark.parametrize("prize", CLAIMS)
@pytest.mark.timeout(900 if ROUNDS <= 200 else 0)
def test_one_gets_the_last_one_and_the_others_are_told_so(
    prize: str, connection: str | None, tmp_path: Path
) -> None:
    rounds = contended(tmp_path / "state", connection, prize, ROUNDS)
    assert len(rounds) == ROUNDS
    for results in rounds:
        assert sorted(results) == [REFUSED] * (THREADS + PROCESSES - 1) + [WON]


class Turns:
    """Records that note which thread's turn it is."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.taken: list[int] = []

    def reading(self) -> AbstractContextManager[RecordReader]:
        return self._records.reading()

    @contextmanager
    def transaction(self, nodes: Collection[ProviderUuid]) -> Iterator[Transaction]:
        with self._records.transaction(nodes) as transaction:
            self.taken.append(threading.get_ident())
            yield transaction


def test_a_thread_that_waits_gets_its_turn_before_anybody_gets_four(ha: Host) -> None:
    turns = Turns(ha.records)
    ha.records = turns  # type: ignore[assignment]
    ha.restart()
    ha.audit(start=True)
    everybody = threading.Barrier(THREADS)

    def claims(contender: int) -> list[Counter[int]]:
        """Who else had turns while it waited, claim by claim."""
        waits = []
        everybody.wait()
        for number in range(30):
            asked = len(turns.taken)
            ha.claim(f"{contender}-{number}", F1)
            waits.append(
                Counter(turns.taken[asked : turns.taken.index(threading.get_ident(), asked)])
            )
        return waits

    with ThreadPoolExecutor(THREADS) as threads:
        waits = [wait for found in threads.map(claims, range(THREADS)) for wait in found]
    # Most wait for all the others, because all of them claim all the time.
    assert sorted(wait.total() for wait in waits)[len(waits) // 2] >= THREADS // 2
    # Those who ask while this one is on its way to the queue come before it; an unfair lock lets
    # some have many more.
    assert max(max(wait.values(), default=0) for wait in waits) <= 3
