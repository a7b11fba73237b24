"""The thread in which libvirt watches its connections: one in a process, for as long as the process lives."""

import logging
import time
from threading import Lock, Thread

from drivers.libvirt.binding import binding

LOG = logging.getLogger(__name__)

# After a failure, in seconds.
PAUSE = 1.0

_lock = Lock()
_running = False


def ensure_event_loop() -> None:
    """Start the loop if it does not run yet. Before the first connection: one that is older has neither keep-alive nor events.

    It is never stopped, because libvirt has only one and cannot be given another.
    """
    global _running  # noqa: PLW0603 -- libvirt's own loop is as global
    libvirt = binding()
    with _lock:
        if _running:
            return
        # By default libvirt prints every error on stderr, also those that are raised.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        Thread(target=_run, name="libvirt events", daemon=True).start()
        _running = True


def _run() -> None:
    libvirt, told = binding(), ""
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except Exception as error:
            # Without the loop no connection would be seen to break, and no change of a guest.
            if (now := repr(error)) != told:
                LOG.exception("libvirt's event loop")
                told = now
            time.sleep(PAUSE)
