"""What a command line changes in its process is taken back after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.child import undone


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A home of its own; logging and the hook for uncaught exceptions as they were."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with undone():
        yield
