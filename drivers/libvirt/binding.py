"""The Python binding of libvirt, an extra of this package: its import, its errors, its event loop,
and its events of guests and devices, with delayed notifications that can be cancelled.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Condition, Lock, Thread
from types import ModuleType
from typing import Any

from oslo_log import log as logging

from agent.errors import ConfigError, DriverError, NotReady
from agent.model.names import printable
from agent.version import pip_install

LOG = logging.getLogger(__name__)

Handle = Any
"""A ``libvirt.virConnect``. Used in workers only, because even dropping the last reference waits
for libvirtd.
"""

Undo = Callable[[], object]
EXAMPLE = "agent --once --dry-run --placement-backend embedded --compute_driver fake.numa"
"""What works at once, without libvirt and without a Placement."""


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
            "install it, with gcc, pkg-config and libvirt's headers (libvirt-dev) to build it: "
            f"{pip_install('libvirt')}; without it, on an example host: {EXAMPLE}",
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


# --- events of guests and devices -----------------------------------------------------------------


class Debouncer:
    """Calls ``tell`` for each key that was put ``seconds`` ago and not cancelled since. ``tell`` is
    called holding no lock.
    """

    def __init__(self, seconds: float, tell: Callable[[], None]) -> None:
        self._seconds, self._tell = seconds, tell
        self._due: dict[str, float] = {}
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def put(self, key: str) -> None:
        """Notify of ``key`` later; restarts the delay if it waits already."""
        with self._changed:
            if self._closed:
                return
            # Put last, so that the first key is always the next one due.
            self._due.pop(key, None)
            self._due[key] = time.monotonic() + self._seconds
            if self._thread is None:
                self._thread = Thread(target=self._run, name="libvirt stopped guests", daemon=True)
                self._thread.start()
            self._changed.notify()

    def cancel(self, key: str) -> None:
        """Drop the notification of ``key``."""
        with self._changed:
            self._due.pop(key, None)

    def close(self) -> None:
        """Drop all notifications and end the thread."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._next():
            try:
                self._tell()
            except Exception:
                # The other notifications are made all the same.
                LOG.exception("reporting a guest that has stopped")

    def _next(self) -> bool:
        """Wait until a key is due; False when closed."""
        with self._changed:
            while not self._closed:
                first = next(iter(self._due.items()), None)
                left = None if first is None else first[1] - time.monotonic()
                if first is not None and left is not None and left <= 0:
                    del self._due[first[0]]
                    return True
                self._changed.wait(left)
            return False


class Events:
    """Subscribes to the events of each new connection. ``changed`` is called from libvirt's thread,
    or one of our own, holding no lock.

    ``reboot``: seconds that a guest may stay stopped before this is reported: a guest that reboots
    stops and starts again.
    """

    def __init__(self, changed: Callable[[], None], reboot: float) -> None:
        self._changed = changed
        self._stopped = Debouncer(reboot, changed)

    def subscribe(self, handle: Handle) -> Iterator[Undo]:
        """Register the callbacks one by one; yield a function that deregisters each. Events that
        the backend does not have are left out.

        :raises libvirtError: libvirtd refuses the registration.
        """
        libvirt = binding()
        guests = (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._guest),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, self._guest_device),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED, self._guest_device),
        )
        wanted: list[tuple[Any, Any, int, Callable[..., None]]] = [
            (
                handle.nodeDeviceEventRegisterAny,
                handle.nodeDeviceEventDeregisterAny,
                libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE,
                self._device,
            ),
            *(
                (handle.domainEventRegisterAny, handle.domainEventDeregisterAny, event, callback)
                for event, callback in guests
            ),
        ]
        for register, deregister, event, callback in wanted:
            try:
                yield partial(deregister, register(None, event, callback, None))
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
                    raise

    def close(self) -> None:
        """Report no change any more."""
        self._stopped.close()

    def _guest(self, _handle: Handle, domain: Any, event: int, detail: int, _nothing: None) -> None:
        # Only the data of the event are used: the domain may be gone already.
        guest = domain.UUIDString()
        LOG.debug("guest %s: life-cycle event %d, %d", guest, event, detail)
        libvirt = binding()
        if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            self._stopped.put(guest)
        # A guest that is shutting down has its resources until it has stopped.
        elif event != libvirt.VIR_DOMAIN_EVENT_SHUTDOWN:
            self._stopped.cancel(guest)
            self._changed()

    def _guest_device(self, _handle: Handle, domain: Any, _alias: str, _nothing: None) -> None:
        self._stopped.cancel(domain.UUIDString())
        self._changed()

    def _device(
        self, _handle: Handle, _device: Any, _event: int, _detail: int, _nothing: None
    ) -> None:
        self._changed()
