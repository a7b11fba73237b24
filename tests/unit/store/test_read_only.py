"""A store opened to be read only: not a byte of its folder changes, whatever state it is in."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.model.mirror import Journal, PlacementView
from agent.store.lock import RunLock
from agent.store.store import open_read_only, open_store
from tests.support.store_place import Place
from tests.unit.store.trees import ENDPOINT, ROOT, contents, folder_state, names_in, node_view

DAEMON = """
import sys
from pathlib import Path
from agent.store.lock import RunLock
from agent.store.store import open_store
from tests.support.store_place import Place
from tests.unit.store.trees import ENDPOINT, ROOT, names_in, node_view

with RunLock(Path(sys.argv[1])), open_store(Path(sys.argv[1])) as store:
    for generation in range(int(sys.argv[2])):
        store.save_view(ENDPOINT, ROOT, None, node_view(generation=generation))
    print("saved", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def daemon(folder: Path, saves: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run lock and the open store, after that many saves."""
    command = [sys.executable, "-c", DAEMON, str(folder), str(saves)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        try:
            yield process
        finally:
            process.kill()


def _read(folder: Path) -> PlacementView | None:
    before = folder_state(folder)
    with open_read_only(folder) as store:
        view = store.view(ENDPOINT, ROOT)
        assert folder_state(folder) == before
    assert folder_state(folder) == before
    return view


def test_a_store_that_is_not_there_is_empty_and_is_not_made(place: Place) -> None:
    with place.open_read_only() as store:
        assert store.view(ENDPOINT, ROOT) is None
        assert store.journal(ROOT) == Journal()
        assert store.capabilities(ENDPOINT) is None
        assert store.identity("host") is None
    assert not place.folder.exists()


def test_the_copy_of_a_crashed_store_is_gone_afterwards(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    with daemon(folder, saves=3):
        pass
    assert _read(folder) is not None
    assert names_in(tmp_path / "copies") == []


@pytest.mark.parametrize("index", ["left", "lost"])
def test_a_run_that_holds_the_lock_but_has_not_opened_its_crashed_store_yet_is_no_obstacle(
    folder: Path, index: str
) -> None:
    with daemon(folder, saves=3):
        pass
    if index == "lost":
        (folder / "database/store.sqlite-shm").unlink()
    with RunLock(folder):
        assert contents(_read(folder)) == contents(node_view(generation=2))


def test_a_folder_with_odd_characters_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c=%20#d&é"
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
    assert contents(_read(folder)) == contents(node_view())


def test_a_crashed_store_opened_read_only_is_whole_for_the_next_run(
    folder: Path, tmp_path: Path
) -> None:
    with daemon(folder, saves=5):
        pass
    shutil.copytree(folder, tmp_path / "untouched")
    _read(folder)
    with open_store(folder) as store, open_store(tmp_path / "untouched") as untouched:
        assert (
            contents(store.view(ENDPOINT, ROOT))
            == contents(untouched.view(ENDPOINT, ROOT))
            == contents(node_view(generation=4))
        )
