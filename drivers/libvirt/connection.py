"""The shared connection to libvirtd: opened when it is first needed, and reopened, with pauses,
after it was lost. A broken session never recovers: a new session replaces it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from oslo_log import log as logging

from agent.driver.worker import DriverWorker
from agent.errors import AgentError, DriverTimeout, NotReady
from agent.model.names import printable
from drivers.libvirt.binding import (
    ConnectionLost,
    Handle,
    LibvirtRefused,
    Undo,
    as_driver_error,
    binding,
    ensure_event_loop,
)

LOG = logging.getLogger(__name__)

# A hanging libvirtd is noticed after COUNT intervals (in seconds) without a sign of life.
KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 5, 3

# Deadlines of calls, in seconds: calls that cost libvirtd nothing, calls for which it asks QEMU or
# the CPU, and listings of everything there is.
CHEAP, CAPABILITIES, LISTING = 10.0, 30.0, 60.0

T = TypeVar("T")
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


LONGEST_PAUSE = 60.0
"""Seconds."""

Verify = Callable[[Session], None]
"""Checks a new connection.

:raises AgentError: it cannot be used.
"""


class LibvirtConnection:
    """The connection to ``uri``.

    ``changed`` is called, holding no lock, when the connection was lost and when a libvirtd that
    hung answers again.
    """

    def __init__(
        self,
        uri: str,
        worker: DriverWorker,
        subscribe: Subscribe,
        verify: Verify,
        changed: Callable[[], None],
    ) -> None:
        self.uri = printable(uri)
        self._uri, self._worker, self._subscribe, self._verify, self._changed = (
            uri,
            worker,
            subscribe,
            verify,
            changed,
        )
        # Held while the connection is opened, so that many callers open it once.
        self._opening = Lock()
        # Held for a moment, to share or close the session.
        self._lock = Lock()
        self._session: Session | None = None
        # ``_not_before``: when to connect again at the earliest, in seconds of the monotonic
        # clock. ``_why``: the message of the last failure.
        self._failures, self._not_before, self._last_failure = 0, 0.0, ""
        self._closed = False

    def session(self) -> Session:
        """Return an open session that has just answered.

        :raises NotReady: libvirtd does not answer, or did not a moment ago.
        :raises ConfigError: it is too old.
        """
        # Each step under the lock has a deadline.
        with self._opening:
            # Not shared until it has answered: this caller notices its loss anyway, and needs no
            # notification of it.
            session, self._session = self._session, None
            if session is not None and self._alive(session):
                return self._share(session)
            if (left := self._not_before - time.monotonic()) > 0:
                raise NotReady(
                    self._last_failure, f"the agent connects again in {left:.0f} s at the earliest"
                )
            try:
                session = self._open()
            except AgentError as error:
                self._note_failure(error)
                raise
            self._failures = 0
            LOG.info("connected to %s", self.uri)
            return self._share(session)

    def close(self) -> None:
        """Close the connection for good, without waiting for libvirtd or for callers that do."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        if session is not None:
            session.give_up()

    def _share(self, session: Session) -> Session:
        """Make the session the shared one, unless the connection was closed meanwhile."""
        with self._lock:
            closed = self._closed
            self._session = None if closed else session
        if closed:
            session.give_up()
            raise NotReady("driver libvirt: stopped")
        return session

    def _alive(self, session: Session) -> bool:
        """Return whether the session answers.

        :raises NotReady: it did not answer in time.
        """
        if not session.usable:
            session.give_up()
            return False
        try:
            session.ask("getLibVersion", lambda handle: handle.getLibVersion(), CHEAP)
        except NotReady:
            return False
        except LibvirtRefused:
            # An error is an answer.
            return True
        except DriverTimeout as error:
            self._note_failure(error)
            raise NotReady(error.message, error.remedy) from error
        return True

    def _open(self) -> Session:
        """Open and check a new session."""
        late = Event()

        def open_connection() -> Session:
            ensure_event_loop()
            try:
                session = Session(self._uri, self._worker, self._subscribe, self._report_loss)
            except binding().libvirtError as error:
                raise NotReady(
                    as_driver_error(f"cannot connect to {self.uri}", error).message, _remedy(error)
                ) from error
            finally:
                if late.is_set():
                    self._forget_failures()
            if late.is_set():
                session.give_up()
            return session

        try:
            session = self._worker.call(open_connection, deadline=CHEAP)
        except DriverTimeout as error:
            late.set()
            raise NotReady(error.message, error.remedy) from error
        try:
            self._verify(session)
        except AgentError:
            session.give_up()
            raise
        return session

    def _note_failure(self, error: AgentError) -> None:
        self._last_failure = error.message
        self._not_before = time.monotonic() + min(LONGEST_PAUSE, 2.0 ** min(self._failures, 16))
        self._failures += 1

    def _report_loss(self, session: Session) -> None:
        if not self._closed and session is self._session:
            LOG.warning("the connection to %s is lost", self.uri)
            self._changed()

    def _forget_failures(self) -> None:
        """Drop the pause, because an abandoned call has ended and libvirtd answers again."""
        self._failures, self._not_before = 0, 0.0
        if not self._closed:
            self._changed()


def _remedy(error: Any) -> str:
    libvirt = binding()
    if error.get_error_code() in (
        libvirt.VIR_ERR_AUTH_FAILED,
        libvirt.VIR_ERR_AUTH_CANCELLED,
        libvirt.VIR_ERR_AUTH_UNAVAILABLE,
    ):
        return (
            "let the agent in without a password: as root, or in the group libvirt, which a "
            "drop-in of systemd/ gives the service"
        )
    return "see whether libvirtd runs, and [libvirt] connection_uri"
