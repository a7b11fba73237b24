"""One open connection to libvirtd, from opening to closing. A broken session never recovers: a new
one replaces it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

from agent.driver.worker import DriverWorker
from agent.errors import DriverTimeout
from drivers.libvirt.binding import ConnectionLost, as_driver_error, binding

# A hanging libvirtd is noticed after COUNT intervals (in seconds) without a sign of life.
KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 5, 3

# Deadlines of calls, in seconds: calls that cost libvirtd nothing, calls for which it asks QEMU or
# the CPU, and listings of everything there is.
CHEAP, CAPABILITIES, LISTING = 10.0, 30.0, 60.0

T = TypeVar("T")
Handle = Any
"""A ``libvirt.virConnect``. Used in workers only, because even dropping the last reference waits
for libvirtd.
"""

Undo = Callable[[], object]
Subscribe = Callable[[Handle], Iterator[Undo]]
"""Registers callbacks, and yields for each a function that deregisters it."""


class Session:
    """An open connection. To be constructed in a worker.

    ``lost`` is called once, from any thread, when the connection is found to be broken.

    :raises libvirtError: libvirtd refuses the connection, or breaks it at once.
    """

    def __init__(
        self,
        uri: str,
        worker: DriverWorker,
        subscribe: Subscribe,
        lost: Callable[["Session"], None],
    ) -> None:
        self._worker, self._lost = worker, lost
        self._lock, self._users = Lock(), 0
        self._broken = self._given_up = False
        self._undo: list[Undo] = []
        # No password can be asked for: see auth_unix_rw in libvirtd.conf, or the keys of the
        # transport.
        self._handle: Handle = binding().openAuth(uri, [[], lambda _asked, _none: -1, None], 0)
        try:
            self._prepare(subscribe)
        except BaseException:
            self._close()
            raise

    def _prepare(self, subscribe: Subscribe) -> None:
        handle, libvirt = self._handle, binding()
        handle.registerCloseCallback(self._note_close, None)
        self._undo.append(handle.unregisterCloseCallback)
        try:
            handle.setKeepAlive(KEEPALIVE_INTERVAL, KEEPALIVE_COUNT)
        except libvirt.libvirtError as error:
            # A libvirt driver within this process has no peer to keep alive.
            if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
                raise
        for undo in subscribe(handle):
            self._undo.append(undo)

    @property
    def usable(self) -> bool:
        """Whether the connection is not known to be broken."""
        return not self._broken

    def ask(self, what: str, question: Callable[[Handle], T], deadline: float) -> T:
        """Return what ``question`` returns for the connection, run in a worker. ``what``: describes
        the call in messages; ``deadline`` in seconds.

        :raises ConnectionLost: the connection is broken.
        :raises LibvirtRefused: libvirt answered with an error.
        :raises DriverTimeout: no answer came in time. The connection is given up.
        """

        def answer() -> T:
            return self._answer(what, question)

        answer.__name__ = what
        try:
            return self._worker.call(answer, deadline=deadline)
        except (ConnectionLost, DriverTimeout):
            self.give_up()
            raise

    def give_up(self) -> None:
        """Stop using the connection. It is closed as soon as no call waits for an answer from
        it.
        """
        with self._lock:
            first, self._given_up = not self._given_up, True
            idle = first and not self._users
        if idle:
            # In a thread of its own, because closing waits for libvirtd too.
            Thread(target=self._close, name="libvirt close", daemon=True).start()
        self._break()

    def _answer(self, what: str, question: Callable[[Handle], T]) -> T:
        """Run ``question`` in the worker's thread. The last call on a connection that was given up
        closes it.
        """
        with self._lock:
            if self._given_up or self._broken:
                raise ConnectionLost(
                    f"{what}: the connection to libvirtd is broken",
                    "the agent connects again by itself",
                )
            self._users += 1
        try:
            return question(self._handle)
        except binding().libvirtError as error:
            failure = as_driver_error(what, error)
        finally:
            with self._lock:
                self._users -= 1
                last = self._given_up and not self._users
            if last:
                self._close()
        # Outside of the except block, so that libvirt's error is freed, and with it the references
        # to the connection in its traceback.
        raise failure

    def _note_close(self, _handle: Handle, reason: int, _nothing: None) -> None:
        """Note a break that libvirt itself reports, in the thread of the event loop."""
        if reason != binding().VIR_CONNECT_CLOSE_REASON_CLIENT:
            self._break()

    def _break(self) -> None:
        with self._lock:
            first, self._broken = not self._broken, True
        if first:
            self._lost(self)

    def _close(self) -> None:
        """Deregister all callbacks and close the connection. Each callback refers to the
        connection, so they go first.
        """
        for undo in reversed(self._undo):
            # A broken connection cannot deregister at libvirtd, but frees the callback all the
            # same.
            with suppress(binding().libvirtError):
                undo()
        with suppress(binding().libvirtError):
            self._handle.close()
        self._undo, self._handle = [], None
