"""Hold processes, for certain.

``kill`` returns before a process of several threads has stopped: on a busy machine one of them may
answer a request that comes after it.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

HALTED = {"T", "t", "Z", "X"}
DEADLINE = 120.0


def stop(pid: int) -> None:
    """Send SIGSTOP and return when no thread of the process runs any more."""
    os.kill(pid, signal.SIGSTOP)
    _wait_for([pid])


def stop_group(group: int) -> None:
    """The same for each process of a group."""
    os.killpg(group, signal.SIGSTOP)
    _wait_for(
        [
            int(one.name)
            for one in Path("/proc").iterdir()
            if one.name.isdigit() and _group_of(int(one.name)) == group
        ]
    )


def _wait_for(pids: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE
    while running := [pid for pid in pids if not _halted(pid)]:
        assert time.monotonic() < deadline, f"processes {running} do not stop"
        time.sleep(0.001)


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _halted(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        # The name of a thread stands in brackets and may contain anything; its state follows the
        # last one.
        states = {
            one.read_text().rpartition(")")[2].split()[0]
            for one in Path(f"/proc/{pid}/task").glob("*/stat")
        }
        return states <= HALTED
    return True
