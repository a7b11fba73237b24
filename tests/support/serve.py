"""What a server process shares: options from standard input, an end with its parent, waitress on
loopback.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import waitress

from tests.support.child import READY


def options_from_parent() -> dict[str, Any]:
    """The parent's options; from now on this process ends when the parent does."""
    options: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return options


def _end_with_parent() -> None:
    # raw reads, because a buffered reader in a daemon thread holds a lock that stops an orderly
    # exit
    while os.read(0, 1):
        pass
    os._exit(0)


def serve(make_app: Callable[[int], Any], port: int, *, threads: int, prefix: str = "") -> None:
    """Serve until the process is ended; port 0 lets the kernel choose, ``make_app`` is told what it
    chose.
    """
    late: list[Any] = []
    server = waitress.create_server(
        lambda environ, start: late[0](environ, start),
        listen=f"127.0.0.1:{port}",
        threads=threads,
        url_prefix=prefix,
        ident="",
    )
    late.append(make_app(server.effective_port))
    print(f"{READY}{server.effective_port}", flush=True)
    server.run()
