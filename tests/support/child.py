"""A server process of the tests' own: started with a handshake, stopped by its pid, gone when the
tests are gone.
"""

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.render.document import name_program
from tests.support import stopped

CHECKOUT = Path(__file__).resolve().parents[2]
READY = "READY "


class Child:
    """``python -m <module>`` with one JSON document of options on its standard input.

    The child prints ``READY <port>`` once it serves, and ends when its standard input does: so a
    test run that is killed leaves nothing behind. What it prints besides goes to the file
    ``output``.
    """

    def __init__(self, module: str, output: Path, *, start_deadline: float = 300.0) -> None:
        self._module = module
        self._output = output
        self._start_deadline = start_deadline
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self._module} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(
        self, options: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> int:
        """Start and wait until it serves; the port on loopback."""
        assert not self.running, f"{self._module} is running already"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=CHECKOUT,
                env={**os.environ, **(environment or {})},
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(options).encode() + b"\n")
        self._process.stdin.flush()
        return self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> int:
        assert process.stdout is not None
        deadline = time.monotonic() + self._start_deadline
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([process.stdout], [], [], left)[0]:
                break
            line = process.stdout.readline().decode()
            if line.startswith(READY):
                return int(line.removeprefix(READY))
            if not line:
                break
        self.kill()
        raise AssertionError(
            f"{self._module} did not start; it said:\n{self._output.read_text()[-4000:]}"
        )

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that is not enough."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: nothing is finished or tidied up."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """Hold the process: connections are still taken by the kernel, nothing is answered."""
        stopped.stop(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


# ---
# What a command line changes in the process that runs it, taken back afterwards.


@contextlib.contextmanager
def undone() -> Iterator[None]:
    """Inside, logging, the hook for uncaught exceptions and how remedies call the agent may be
    changed; afterwards they are as they were.
    """
    hook, handlers = sys.excepthook, logging.getLogger().handlers[:]
    loggers = [
        logging.getLogger(),
        *(
            one
            for one in logging.Logger.manager.loggerDict.values()
            if isinstance(one, logging.Logger)
        ),
    ]
    levels = [(logger, logger.level) for logger in loggers]
    try:
        yield
    finally:
        sys.excepthook = hook
        name_program("agent")
        for handler in loggers[0].handlers:
            if handler not in handlers:
                handler.close()
        loggers[0].handlers[:] = handlers
        for logger, level in levels:
            if logger.level != level:
                logger.setLevel(level)
