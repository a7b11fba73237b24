"""The Python binding of libvirt, an extra of this package: its import, its errors and its event
loop.
"""

import logging
import time
from threading import Lock, Thread
from types import ModuleType
from typing import Any

from agent.errors import ConfigError, DriverError, NotReady
from agent.model.names import printable

INSTALL = (
    "pip install 'compute-node-agent[libvirt]'; to build it takes gcc, pkg-config and libvirt's "
    "headers (libvirt-dev)"
)


class LibvirtRefused(DriverError):
    """libvirt answered with an error. ``number``: its code.
    Remedy: see the message, which has libvirt's own words.
    """

    code = "libvirt.refused"

    def __init__(self, message: str, remedy: str = "", *, number: int) -> None:
        super().__init__(message, remedy)
        self.number = number


class ConnectionLost(NotReady):
    """The connection to libvirtd is broken for good.
    Remedy: none is needed; the agent connects again.
    """

    code = "libvirt.connection-lost"


def binding() -> ModuleType:
    """Return the module ``libvirt``, imported here because the rest of this package can be used
    without it.

    :raises ConfigError: it is not installed.
    """
    try:
        import libvirt
    except ImportError as error:
        raise ConfigError(
            (
                "[DEFAULT] compute_driver = libvirt: the Python package of libvirt is missing: "
                f"{error}"
            ),
            INSTALL,
        ) from error
    module: ModuleType = libvirt
    return module


def as_driver_error(what: str, error: Any) -> DriverError:
    """Return an error of libvirt as a :class:`DriverError`. ``what``: describes the call."""
    libvirt = binding()
    number, domain = error.get_error_code(), error.get_error_domain()
    message = printable(f"{what}: {error.get_error_message() or 'libvirt gives no reason'}")
    broken = number in (
        libvirt.VIR_ERR_SYSTEM_ERROR,
        libvirt.VIR_ERR_INTERNAL_ERROR,
    ) and domain in (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)
    if broken:
        return ConnectionLost(
            message, "see whether libvirtd runs; the agent connects again by itself"
        )
    return LibvirtRefused(message, "see the log of libvirtd", number=number)


LOG = logging.getLogger(__name__)

# Seconds to wait after a failure.
PAUSE = 1.0

_lock = Lock()
_running = False


def ensure_event_loop() -> None:
    """Start the event loop if it is not running. To be called before the first connection: an older
    one has neither keep-alive nor events.

    It is never stopped, because libvirt has only one and cannot be given another.
    """
    global _running  # noqa: PLW0603 -- libvirt's own loop is as global
    libvirt = binding()
    with _lock:
        if _running:
            return
        # By default libvirt prints every error to stderr, raised ones too.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        Thread(target=_run, name="libvirt events", daemon=True).start()
        _running = True


def _run() -> None:
    libvirt, logged = binding(), ""
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except Exception as error:
            # Without the loop, neither a broken connection nor a change of a guest would be
            # noticed.
            if (now := repr(error)) != logged:
                LOG.exception("libvirt's event loop")
                logged = now
            time.sleep(PAUSE)
