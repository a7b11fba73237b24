"""Running a command of the host, for what only that can tell."""

import subprocess
from collections.abc import Sequence

from agent.errors import DriverError
from agent.model.names import printable

DEADLINE = 30.0


def output_of(command: Sequence[str], deadline: float = DEADLINE) -> str:
    """What the command prints. In a worker, because one that cannot be killed is waited for.

    :raises DriverError: it is not installed, fails, or takes longer than ``deadline`` seconds.
    """
    name = command[0]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline, check=False)  # noqa: S603 -- no shell
    except FileNotFoundError as error:
        raise DriverError(f"the command {name} is not installed", f"install {name}, or change what asks for it in [libvirt]") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverError(printable(f"the command {name} failed: {error}")) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        raise DriverError(printable(f"the command {name} failed with {done.returncode}: {said[-1][:300]}"), f"run {printable(' '.join(command))} by hand")
    return done.stdout.decode(errors="replace")
