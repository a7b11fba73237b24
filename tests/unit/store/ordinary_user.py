"""Runs a check as somebody whom the kernel refuses things, which root is not."""

import os
import pickle
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

NOBODY = 65534


def as_ordinary_user(attempt: Callable[[Path], str], prepare: Callable[[Path], object]) -> str:
    """What ``attempt`` returns for a folder of its own that ``prepare`` filled; both get the
    folder.
    """
    shared = Path(tempfile.mkdtemp(prefix="compute-node-agent-test-"))
    try:
        prepare(shared)
        if os.geteuid() == 0:
            for path in (shared, *shared.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        outcome, said = _forked(attempt, shared)
    finally:
        for path in shared.rglob("*"):
            path.chmod(0o700)
        shutil.rmtree(shared)
    assert outcome == "returned", said
    return said


def _forked(attempt: Callable[[Path], str], shared: Path) -> tuple[str, str]:
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # Because the folder of the tests may be closed to this user, and whoever leaves another
            # one has to come back.
            os.chdir(shared)
            if os.geteuid() == 0:
                os.setresuid(NOBODY, NOBODY, NOBODY)
            answer = ("returned", attempt(shared))
        except BaseException:  # noqa: BLE001
            answer = ("raised", traceback.format_exc())
        os.write(writable, pickle.dumps(answer)[:60000])
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        outcome: tuple[str, str] = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return outcome
