"""The tables of random walks: what came to happen is added up, and a failure is told with the command that walks the same way again."""

from pathlib import Path

import pytest

from bench import cloud_walk
from bench.cloud_walk import markdown, walk


def walked(stores: str, seed: int, failure: str = "") -> dict[str, object]:
    return {
        "seed": seed,
        "stores": stores,
        "steps": 500,
        "seconds": 36.0,
        "met": {"pass: in-sync": 20},
        "faults": {"kill -9": 1200, "a driver lies: bug": 0 if seed == 1 else 1},
        "checked": {"nothing is allocated twice": 501},
        "again": f"CLOUD_SEED={seed} pytest",
        "failure": failure,
    }


def test_the_tables_add_up_what_happened_in_all_walks() -> None:
    text = markdown([walked("each", 1), walked("each", 2), walked("one", 1)], "abc")
    assert "Commit abc, seeds 1 to 2." in text
    assert "| a store for each host | 2 | 1,000 | 2,401 | 1,002 | 0.02 | 0 |" in text
    assert "| one store for both hosts | 1 | 500 | 1,200 | 501 | 0.01 | 0 |" in text
    assert "| kill -9 | 3,600 | 3 of 3 |" in text
    assert "| a driver lies: bug | 1 | 1 of 3 |" in text
    assert "| nothing is allocated twice | 1,503 | 3 of 3 |" in text
    assert "Failed" not in text


def test_a_failure_is_told_with_the_command_that_walks_the_same_way_again() -> None:
    text = markdown([walked("each", 1), walked("each", 7, "step 12 of seed 7: it is gone")], "abc")
    assert "| a store for each host | 2 | 1,000 | 2,401 | 1,002 | 0.02 | 1 |" in text
    assert "Failed: CLOUD_SEED=7 pytest\n\n    step 12 of seed 7: it is gone" in text


def test_a_walk_that_ends_before_it_has_begun_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cloud_walk.TESTS, "each", "test_that_is_not_there")
    found = walk("each", 1, 1, tmp_path)
    assert found["steps"] == 0
    assert found["failure"].startswith("pytest ended with 4")
