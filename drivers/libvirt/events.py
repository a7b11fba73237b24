"""Events from libvirt: guests that start, stop and give devices back, and devices that come and go,
with delayed notifications that can be cancelled.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Condition, Thread
from typing import Any

from oslo_log import log as logging

from drivers.libvirt.binding import binding
from drivers.libvirt.connection import Handle, Undo

LOG = logging.getLogger(__name__)


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
