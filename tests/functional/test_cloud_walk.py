"""Two random hosts, with a store each or one for both, on a random walk through all that a cloud
does to them: faults of Placement, of the database, of the driver, kills, other writers, a second
agent. After each step everything is held against an account of its own.

A failure tells its last steps, and the command that walks the same way again. CLOUD_SEEDS: how many
seeds from CLOUD_SEED on; CLOUD_STEPS: of each; CLOUD_LAST: how many steps are told; CLOUD_OUT: a
folder for what happened in each walk, as JSON.
"""

import json
import os
import time as real_time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.placement import clock, exchange
from tests.support import backends
from tests.support.tracking import Time

if TYPE_CHECKING:
    from tests.support.store_place import Place

pytestmark = pytest.mark.long

FIRST = int(os.environ.get("CLOUD_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("CLOUD_SEEDS", "1")))
STEPS = int(os.environ.get("CLOUD_STEPS", "120"))
OUT = os.environ.get("CLOUD_OUT")

Walked = Callable[[str | None, int], None]


@pytest.fixture
def walked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Walked]:
    """Walk on a database, or on two stores if that is None. Whatever is tried again is tried at
    once.
    """
    for wait in ("LEAST_WAIT", "LONGEST_WAIT", "LEAST_READ_WAIT", "LONGEST_READ_WAIT"):
        monkeypatch.setattr(exchange, wait, 0.0)
    time = Time()
    monkeypatch.setattr(clock, "now", time)
    backends.require("placement.deploy")
    from tests.functional.walk.cloud_walk import CloudWalk
    from tests.support.placement import PlacementServer

    placement, reference = PlacementServer(), PlacementServer()

    def walk(url: str | None, seed: int) -> None:
        walk, begun, failure = (
            CloudWalk(placement, reference, tmp_path, url, seed, time),
            real_time.monotonic(),
            "",
        )
        # What a seed walks depends on the order of sets.
        order = os.environ.get("PYTHONHASHSEED", "random, so that the walk may be another")
        again = f"PYTHONHASHSEED={order} CLOUD_SEED={seed} CLOUD_STEPS={STEPS}"
        again += f" .venv/bin/python -m pytest -n0 '{request.node.nodeid}'"
        try:
            walk.go(STEPS)
        except AssertionError as error:
            error.add_note(again)
            failure = str(error)
            raise
        finally:
            summary = {
                **walk.summary(),
                "seconds": round(real_time.monotonic() - begun, 1),
                "again": again,
                "failure": failure,
            }
            print(f"seed {seed}, what happened: {summary}")
            if OUT is not None:
                file = Path(OUT) / f"walk-{summary['stores']}-{seed}.json"
                file.write_text(json.dumps(summary, indent=1) + "\n")

    yield walk
    placement.close()
    reference.close()


@pytest.mark.timeout(900 if STEPS <= 120 else 0)
@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_with_a_store_each_lose_nothing_and_give_nothing_twice(
    walked: Walked, seed: int
) -> None:
    walked(None, seed)


@pytest.mark.timeout(900 if STEPS <= 120 else 0)
@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_with_one_store_lose_nothing_and_give_nothing_twice(
    walked: Walked, seed: int, postgresql_place: "Place"
) -> None:
    walked(postgresql_place.url, seed)
