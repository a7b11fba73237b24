"""What Python's search for garbage goes through in a process of the agent: not the code, and not
what stays in the memory of a daemon. A search keeps every thread waiting.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.functional.test_daemon_claims import Host
from tests.support.child import CHECKOUT
from tests.support.service_manager import until

# Answers a line on its standard input with what is searched now, in the file of a descriptor.
SCRIPT = """
import gc, json, os, signal, sys, threading
from agent.__main__ import main

answers = os.fdopen(int(sys.argv.pop(1)), "w")

def count(name):
    return sum(type(found).__name__ == name for found in gc.get_objects())

def answer():
    for line in sys.stdin:
        every = line == "all\\n"
        if every:
            gc.unfreeze()
        found = {
            "searches": gc.isenabled(),
            "left out": gc.get_freeze_count(),
            "functions": count("function"),
            "configurations": count("ConfigOpts"),
        }
        if every:
            gc.freeze()
        print(json.dumps(found), file=answers, flush=True)

# The agent leaves SIGHUP to its main thread; this thread would be ended by it, and the process too.
before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
thread = threading.Thread(target=answer, daemon=True)
thread.start()
signal.pthread_sigmask(signal.SIG_SETMASK, before)
code = main()
thread.join()
sys.exit(code)
"""

Ask = Callable[..., Mapping[str, Any]]


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Ask]]:
    """Run the command in a process that begins with nothing. Yield it, and what asks it."""
    read, write = os.pipe()
    command = [sys.executable, "-c", SCRIPT, str(write), *arguments]
    with (
        os.fdopen(read) as answers,
        subprocess.Popen(
            command,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            pass_fds=[write],
        ) as process,
    ):
        os.close(write)

        def ask(line: str = "") -> Mapping[str, Any]:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return json.loads(answers.readline())

        try:
            yield process, ask
        finally:
            process.kill()


@pytest.fixture
def host(http_placement, tmp_path):
    made = Host(tmp_path / "agent", http_placement.url)
    made.config["DEFAULT"]["update_resources_interval"] = 1
    made.command.configure(made.config)
    return made


def test_an_audit_searches_all_but_the_code(host: Host) -> None:
    with _process("--config-file", str(host.command.config_file), "--once") as (_, ask):
        until(lambda: ask()["left out"] > 10_000, lambda: host.service)
        assert ask()["searches"]


def test_a_daemon_searches_nothing_that_stays(host: Host) -> None:
    with _process("--config-file", str(host.command.config_file)) as (process, ask):

        def wait_until_settled() -> None:
            until(lambda: ask()["functions"] < 1000, lambda: host.service)

        host.answers(host.client.readiness)
        wait_until_settled()
        assert ask()["searches"]

        # Each reload replaces the configuration; the one of the start is kept.
        counts = []
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
            until(lambda: ask()["functions"] > 10_000, lambda: host.service)
            wait_until_settled()
            counts.append(ask("all")["configurations"])
        assert counts[1:] == counts[:1] * 2
