"""One open connection to libvirtd, from the opening to the closing. A broken one never recovers:
another takes its place.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

from agent.driver.worker import DriverWorker
from agent.errors import DriverTimeout
from drivers.libvirt.binding import ConnectionLost, binding, translated

# A daemon that hangs is noticed after so many seconds without a sign of life, so often in a row.
KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 5, 3

# How long calls may take, in seconds: those that cost libvirtd nothing, those for which it asks
# QEMU or the CPU, those about everything there is.
CHEAP, CAPABILITIES, LISTING = 10.0, 30.0, 60.0

T = TypeVar("T")
Handle = Any
"""A ``libvirt.virConnect``. It is touched in workers only, because even dropping the last reference
waits for libvirtd.
"""

Undo = Callable[[], object]
Subscribe = Callable[[Handle], Iterator[Undo]]
"""Registers callbacks, and tells of each how it is taken back."""


class Session:
    """Made in a worker. ``lost`` is called once, from any thread, when the connection turns out to
    be broken.

    :raises libvirtError: libvirtd does not let us in, or breaks down at once.
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
        # Nobody is there to be asked for a password: see auth_unix_rw in libvirtd.conf, or the keys
        # of the transport.
        self._handle: Handle = binding().openAuth(uri, [[], lambda _asked, _none: -1, None], 0)
        try:
            self._prepare(subscribe)
        except BaseException:
            self._close()
            raise

    def _prepare(self, subscribe: Subscribe) -> None:
        handle, libvirt = self._handle, binding()
        handle.registerCloseCallback(self._closed, None)
        self._undo.append(handle.unregisterCloseCallback)
        try:
            handle.setKeepAlive(KEEPALIVE_INTERVAL, KEEPALIVE_COUNT)
        except libvirt.libvirtError as error:
            # A driver within this very process has nobody to keep alive.
            if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
                raise
        for undo in subscribe(handle):
            self._undo.append(undo)

    @property
    def usable(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        return not self._broken

    def ask(self, what: str, question: Callable[[Handle], T], deadline: float) -> T:
        """What ``question`` finds out with the connection, in a worker. ``what`` it does, for
        messages; ``deadline`` in seconds.

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
        """Use it no more. It is closed as soon as nobody waits for an answer by it."""
        with self._lock:
            first, self._given_up = not self._given_up, True
            idle = first and not self._users
        if idle:
            # In a thread of its own, because closing waits for libvirtd too.
            Thread(target=self._close, name="libvirt close", daemon=True).start()
        self._break()

    def _answer(self, what: str, question: Callable[[Handle], T]) -> T:
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
            failure = translated(what, error)
        finally:
            with self._lock:
                self._users -= 1
                last = self._given_up and not self._users
            if last:
                self._close()
        # Out here, so that libvirt's error is gone, and with it whatever of the connection its
        # traceback holds.
        raise failure

    def _closed(self, _handle: Handle, reason: int, _nothing: None) -> None:
        """libvirt's own word, in the thread of the event loop."""
        if reason != binding().VIR_CONNECT_CLOSE_REASON_CLIENT:
            self._break()

    def _break(self) -> None:
        with self._lock:
            first, self._broken = not self._broken, True
        if first:
            self._lost(self)

    def _close(self) -> None:
        """Let go of everything. Each callback has the connection, and it does not go
        before them.
        """
        for undo in reversed(self._undo):
            # A connection that is broken cannot tell libvirtd, but forgets them all the same.
            with suppress(binding().libvirtError):
                undo()
        with suppress(binding().libvirtError):
            self._handle.close()
        self._undo, self._handle = [], None
