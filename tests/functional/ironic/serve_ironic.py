"""The process behind ``Ironic``: starts the real ironic, which leads a group of its own, and ends
all of it with its parent.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from tests.support.child import READY

# Shorter than the parent waits, because only here everything that was started is known.
START_DEADLINE = 240.0


def main() -> None:
    """Options: config_file, database, port, and the file that gets the id of ironic's group."""
    options = json.loads(sys.stdin.buffer.readline())
    if not Path(options["database"]).exists():
        _run("dbsync", options["config_file"], "create_schema").wait()
    server = _run("singleprocess", options["config_file"])
    Path(options["group_file"]).write_text(str(server.pid))
    threading.Thread(target=_end_with_parent, args=(server.pid,), daemon=True).start()
    _wait_until_it_listens(options["port"], server)
    print(f"{READY}{options['port']}", flush=True)
    server.wait()


def _end_with_parent(group: int) -> None:
    # raw reads, because a buffered reader in a daemon thread holds a lock that stops an orderly
    # exit
    while os.read(0, 1):
        pass
    _end(group)


def _end(group: int) -> NoReturn:
    os.killpg(group, signal.SIGKILL)
    os._exit(1)


def _run(command: str, config_file: str, *arguments: str) -> "subprocess.Popen[bytes]":
    program = (
        f"import sys; sys.argv[0] = 'ironic'; from ironic.command.{command} import main; "
        "sys.exit(main())"
    )
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        program,
        "--config-file",
        config_file,
        *arguments,
    ]
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )


def _wait_until_it_listens(port: int, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_DEADLINE
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    print("ironic did not begin to listen", file=sys.stderr, flush=True)
    _end(server.pid)


if __name__ == "__main__":
    main()
