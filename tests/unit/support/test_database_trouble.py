"""The troubles of the walk's stores are real ones, are met by every write, and pass."""

from pathlib import Path

import pytest

from agent.errors import StoreError
from agent.model.names import ProviderUuid
from agent.store.store import open_store
from tests.support.agent import ROOT
from tests.support.database_trouble import DatabaseTrouble, Kind

LARGE = "x" * 100_000
"""No page that there is already has room for it."""


@pytest.mark.parametrize(
    ("kind", "reason"), [("full", "full"), ("read-only", "attempt to write a readonly database")]
)
def test_a_store_that_is_full_or_can_only_be_read_is_written_again_afterwards(
    tmp_path: Path, kind: Kind, reason: str
) -> None:
    trouble = DatabaseTrouble()
    with open_store(tmp_path) as store:
        trouble.attach(store)
        store.save_identity("first", ProviderUuid(ROOT))
        trouble.kind = kind
        with pytest.raises(StoreError, match=reason):
            store.save_identity(LARGE, ProviderUuid(ROOT))
        assert store.identity("first") == ROOT
        trouble.kind = None
        store.save_identity(LARGE, ProviderUuid(ROOT))
        assert store.identity(LARGE) == ROOT
    assert trouble.hits == 0


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_chosen_statement_fails_and_no_other(tmp_path: Path, at: int) -> None:
    trouble = DatabaseTrouble()
    with open_store(tmp_path) as store:
        trouble.attach(store)
        trouble.at = at
        with pytest.raises(StoreError, match="disk I/O error"):
            # BEGIN, DELETE, INSERT
            store.save_identity("first", ProviderUuid(ROOT))
        assert trouble.hits == 1
        assert store.identity("first") is None
        store.save_identity("first", ProviderUuid(ROOT))
        assert store.identity("first") == ROOT
