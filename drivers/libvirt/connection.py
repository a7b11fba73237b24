"""The one connection to libvirtd that all share: opened when it is first needed, and again, not too
often, when it was lost.
"""

import time
from collections.abc import Callable
from threading import Event, Lock
from typing import Any

from oslo_log import log as logging

from agent.driver.worker import DriverWorker
from agent.errors import AgentError, DriverTimeout, NotReady
from agent.model.names import printable
from drivers.libvirt.binding import LibvirtRefused, binding, ensure_event_loop, translated
from drivers.libvirt.session import CHEAP, Session, Subscribe

LOG = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0

Verify = Callable[[Session], None]
"""Looks at a new connection.

:raises AgentError: it will not do.
"""


class LibvirtConnection:
    """The connection to ``uri``. ``changed`` is called, holding no lock, when it was lost and when
    libvirtd, which hung, is back.
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
        # Held while it is opened, so that many who need it open it once.
        self._opening = Lock()
        # Held for a moment, by whoever shares or closes it.
        self._lock = Lock()
        self._session: Session | None = None
        self._failures, self._not_before, self._why = 0, 0.0, ""
        self._closed = False

    def session(self) -> Session:
        """The open connection, seen to be alive just now.

        :raises NotReady: libvirtd does not answer, or did not a moment ago.
        :raises ConfigError: it is too old.
        """
        # Each step under the lock has a deadline.
        with self._opening:
            # Not shared until it is seen to be alive: who asks here learns of its loss anyway, and
            # need not be told of it.
            session, self._session = self._session, None
            if session is not None and self._alive(session):
                return self._shared(session)
            if (left := self._not_before - time.monotonic()) > 0:
                raise NotReady(
                    self._why, f"the agent connects again in {left:.0f} s at the earliest"
                )
            try:
                session = self._opened()
            except AgentError as error:
                self._failed(error)
                raise
            self._failures = 0
            LOG.info("connected to %s", self.uri)
            return self._shared(session)

    def close(self) -> None:
        """Close it for good, without waiting for libvirtd, nor for anybody who does."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        if session is not None:
            session.give_up()

    def _shared(self, session: Session) -> Session:
        with self._lock:
            closed = self._closed
            self._session = None if closed else session
        if closed:
            session.give_up()
            raise NotReady("driver libvirt: stopped")
        return session

    def _alive(self, session: Session) -> bool:
        if not session.usable:
            session.give_up()
            return False
        try:
            session.ask("getLibVersion", lambda handle: handle.getLibVersion(), CHEAP)
        except NotReady:
            return False
        except LibvirtRefused:
            # It answers.
            return True
        except DriverTimeout as error:
            self._failed(error)
            raise NotReady(error.message, error.remedy) from error
        return True

    def _opened(self) -> Session:
        late = Event()

        def open_connection() -> Session:
            ensure_event_loop()
            try:
                session = Session(self._uri, self._worker, self._subscribe, self._lost)
            except binding().libvirtError as error:
                raise NotReady(
                    translated(f"cannot connect to {self.uri}", error).message, _remedy(error)
                ) from error
            finally:
                if late.is_set():
                    self._answers_again()
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

    def _failed(self, error: AgentError) -> None:
        self._why = error.message
        self._not_before = time.monotonic() + min(LONGEST_PAUSE, 2.0 ** min(self._failures, 16))
        self._failures += 1

    def _lost(self, session: Session) -> None:
        if not self._closed and session is self._session:
            LOG.warning("the connection to %s is lost", self.uri)
            self._changed()

    def _answers_again(self) -> None:
        """What nobody waited for any more came to an end after all."""
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
