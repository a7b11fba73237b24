"""The process behind ``Ironic``: leads a group of its own, in which the real ironic runs, and ends all of it with its parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.support.child import READY

# Shorter than the parent waits, because only here everything that was started is known.
START_DEADLINE = 50.0


def main() -> None:
    """Options: config_file, database, port."""
    os.setpgid(0, 0)
    options = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if not Path(options["database"]).exists():
        _run("dbsync", options["config_file"], "create_schema").wait()
    server = _run("singleprocess", options["config_file"])
    _wait_until_it_listens(options["port"], server)
    print(f"{READY}{options['port']}", flush=True)
    server.wait()


def _end_with_parent() -> None:
    # raw reads, because a buffered reader in a daemon thread holds a lock that stops an orderly exit
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _run(command: str, config_file: str, *arguments: str) -> "subprocess.Popen[bytes]":
    program = f"import sys; sys.argv[0] = 'ironic'; from ironic.command.{command} import main; sys.exit(main())"
    words = [sys.executable, "-W", "ignore", "-c", program, "--config-file", config_file, *arguments]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def _wait_until_it_listens(port: int, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_DEADLINE
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    print("ironic did not begin to listen", file=sys.stderr, flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
