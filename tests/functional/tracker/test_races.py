"""Eight threads and four processes claim the last of something at the same moment: one gets it, the
others are told that there is none.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.model.node_records import RecordChanges
from agent.store.records import Transaction
from tests.functional.tracker.contenders import CLAIMS, PROCESSES, REFUSED, THREADS, WON, contended
from tests.support.tracking import F1, Host, uuid_of

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL

# Of each of three prizes on two databases; under soak a thousand.
ROUNDS = int(os.environ.get("CLAIM_RACES", "40"))


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


def test_a_claim_that_waits_is_made_before_anybody_else_makes_four(
    ha: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"{number}-{turn}": number for number in range(THREADS) for turn in range(30)}
    contenders = {uuid_of(f"claim-{name}"): contender for name, contender in names.items()}
    made, everybody = list[int](), threading.Barrier(THREADS)
    write = Transaction.write

    def note(transaction: Transaction, changes: RecordChanges) -> None:
        made.extend(contenders[claim.id] for claim in changes.claims)
        write(transaction, changes)

    monkeypatch.setattr(Transaction, "write", note)

    def claims(contender: int) -> list[Counter[int]]:
        """Whose claims were made while it waited, claim by claim."""
        waits = []
        everybody.wait()
        for turn in range(30):
            asked = len(made)
            ha.claim(f"{contender}-{turn}", F1)
            waits.append(Counter(made[asked : made.index(contender, asked)]))
        return waits

    with ThreadPoolExecutor(THREADS) as threads:
        waits = [wait for found in threads.map(claims, range(THREADS)) for wait in found]
    # Most wait for others, because all of them claim all the time.
    assert sorted(wait.total() for wait in waits)[len(waits) // 2] >= 1
    # Those who ask while this one is on its way to the queue come before it; an unfair lock lets
    # some have many more.
    assert max(max(wait.values(), default=0) for wait in waits) <= 3
