"""Events from libvirt: guests that start, stop and give devices back, and devices that come and
go.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from oslo_log import log as logging

from drivers.libvirt.binding import binding
from drivers.libvirt.debouncer import Debouncer
from drivers.libvirt.session import Handle, Undo

LOG = logging.getLogger(__name__)


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
