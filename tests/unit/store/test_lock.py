"""The run lock."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.errors import StoreError, StoreLocked
from agent.store.lock import RunLock, holder
from tests.unit.store.trees import folder_state

HOLDER = """
import sys
from pathlib import Path
from agent.store.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_run(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_asking_for_the_holder_takes_and_writes_nothing(folder: Path) -> None:
    with another_run(folder) as process:
        before = folder_state(folder)
        assert holder(folder) == process.pid
        assert folder_state(folder) == before
        with pytest.raises(StoreLocked):
            RunLock(folder).acquire()


def test_nobody_holds_a_lock_that_is_not_there_or_was_left(folder: Path) -> None:
    assert holder(folder) is None
    assert not folder.exists()
    with RunLock(folder):
        pass
    assert holder(folder) is None


def test_the_own_process_is_refused_too_and_does_not_lose_the_lock_by_asking(folder: Path) -> None:
    with RunLock(folder):
        with pytest.raises(StoreLocked, match=f"pid {os.getpid()}"):
            RunLock(folder).acquire()
        assert holder(folder) == os.getpid()
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder)], stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stderr is not None
            assert (
                f"StoreLocked: [store] path {folder} is in use by another run of the agent, pid "
                f"{os.getpid()}"
            ) in second.stderr.read()


def test_a_lock_that_cannot_be_opened_is_named(folder: Path) -> None:
    (folder / "lock").mkdir(parents=True)
    with pytest.raises(
        StoreError, match=r"\[store\] path .*/state/lock: Is a directory"
    ) as refused:
        RunLock(folder).acquire()
    assert not isinstance(refused.value, StoreLocked)
