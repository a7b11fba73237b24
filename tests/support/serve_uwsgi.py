"""The process behind ``HttpPlacement`` in a real uWSGI with its defaults: 4,096 bytes for a request,
and an HTTP socket that closes each connection after the answer without saying so.
"""

import ctypes
import functools
import json
import os
import signal
import socket
import sys
from typing import Any

import pyuwsgi

from tests.support.child import READY
from tests.support.serve_placement import placement_of

PR_SET_PDEATHSIG = 1


@functools.cache
def application() -> Any:
    """Placement, once uWSGI has its sockets."""
    import uwsgi  # Only inside uWSGI.

    with socket.socket(fileno=os.dup(uwsgi.sockets[0])) as listening:
        port = listening.getsockname()[1]
    app = placement_of(json.loads(os.environ["PLACEMENT_OPTIONS"]))
    # uWSGI has made standard output its log.
    os.write(int(os.environ["PARENT"]), f"{READY}{port}\n".encode())
    return app


def main() -> None:
    """Options: as those of ``serve_placement``, and ``uwsgi``: its kind of socket, further options."""
    options = json.loads(sys.stdin.buffer.readline())
    # No thread that waits for the parent's end: uWSGI sets up the interpreter's lock anew.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ["PLACEMENT_OPTIONS"] = json.dumps(options)
    os.environ["PARENT"] = str(os.dup(1))
    kind, *more = options["uwsgi"]
    pyuwsgi.run(
        [
            *(f"--{kind}", f"127.0.0.1:{options['port']}"),
            *("--mount", f"{options['prefix']}=tests.support.serve_uwsgi:application()"),
            *("--manage-script-name", "--enable-threads", "--threads", str(options["threads"])),
            *("--die-on-term", "--need-app", *more),
        ]
    )


if __name__ == "__main__":
    main()
