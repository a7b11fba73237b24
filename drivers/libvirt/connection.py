"""The shared connection to libvirtd: opened when it is first needed, and reopened, with pauses,
after it was lost.
"""

import time
from collections.abc import Callable
from threading import Event, Lock
from typing import Any

from oslo_log import log as logging

from agent.driver.worker import DriverWorker
from agent.errors import AgentError, DriverTimeout, NotReady
from agent.model.names import printable
from drivers.libvirt.binding import LibvirtRefused, as_driver_error, binding, ensure_event_loop
from drivers.libvirt.session import CHEAP, Session, Subscribe

LOG = logging.getLogger(__name__)

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
