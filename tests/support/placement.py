"""The real Placement for tests: inside the test's process, with no socket, every request logged and
disturbable.
"""

import contextlib
import functools
import gc
import sqlite3
from typing import Any

import requests
from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from agent.model.names import ApiVersion
from tests.support import dump, placement_app
from tests.support.exchange import OBSERVER_HEADER, Exchange, LogReader, RequestLog
from tests.support.faults import Faults
from tests.support.other_client import OtherClient
from tests.support.transport import WSGITransport

SERVICE_ROLES = "admin,service"
PREFIX = "/placement"


def observer_session(session: Session) -> Session:
    """Mark a session as the test's own: neither logged nor disturbed."""
    session.additional_headers[OBSERVER_HEADER] = "1"
    return session


def noauth_session(url: str, roles: str, http: requests.Session | None = None) -> Session:
    """A session as a client configured with a fixed endpoint and token has it."""
    auth = token_endpoint.Token(endpoint=url, token="test-user")
    return Session(auth=auth, session=http, additional_headers={"X-Roles": roles})


class Placement(LogReader):
    """What the in-process server and the one over HTTP have in common."""

    url: str
    max_version: str | None

    def session(self, roles: str = SERVICE_ROLES) -> Session:
        """A keystoneauth session of a client; ``roles="admin"`` lacks the role that
        reshapes need.
        """
        raise NotImplementedError

    def adapter(self, roles: str = SERVICE_ROLES, version: str | None = None) -> Adapter:
        """The same as an adapter, with an optional default microversion."""
        return Adapter(
            self.session(roles),
            service_type="placement",
            default_microversion=version,
            raise_exc=False,
        )

    @functools.cached_property
    def other(self) -> OtherClient:
        """Another client of this Placement, unseen by the log and the faults."""
        version = (
            "1.37"
            if self.max_version is None or ApiVersion.of(self.max_version) >= ApiVersion(1, 37)
            else self.max_version
        )
        return OtherClient(observer_session(self.session()), self.url, version)

    def credentials(self, url: str | None = None, *, service_role: bool = True) -> dict[str, str]:
        """``[placement]`` of a client without keystone, of this server or of a proxy's ``url`` in
        front of it.
        """
        token = "a-token" if service_role else placement_app.ADMIN_ONLY_TOKEN
        return {"auth_type": "admin_token", "endpoint": url or self.url, "token": token}

    def dump(self) -> dict[str, Any]:
        """The whole state, see ``tests.support.dump``."""
        raise NotImplementedError


class PlacementServer(Placement):
    """A Placement of its own, empty at first. Any number live side by side; requests are handled
    one at a time.
    """

    def __init__(self, max_version: str | None = None) -> None:
        self.url = f"http://placement.test{PREFIX}"
        self.max_version = max_version
        self.faults = Faults()
        self._log = RequestLog()
        self._database = placement_app.memory_database()
        transport = WSGITransport(
            placement_app.application(max_version), self.url, self._serving, self._log, self.faults
        )
        self._http = requests.Session()
        self._http.trust_env = False
        self._http.mount(self.url, transport)

    def session(self, roles: str = SERVICE_ROLES) -> Session:
        return noauth_session(self.url, roles, self._http)

    @property
    def requests(self) -> list[Exchange]:
        return self._log.requests

    def clear(self) -> None:
        """Forget the log; state and faults stay."""
        self._log.clear()

    def reset(self) -> None:
        """Back to empty: state, log and faults."""
        with placement_app.ONE_AT_A_TIME:
            placement_app.copy_template(placement_app.connection_of(self._database))
        self.faults.clear()
        self.clear()

    def snapshot(self) -> sqlite3.Connection:
        """A copy of the state, for ``restore``."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        with placement_app.ONE_AT_A_TIME:
            placement_app.connection_of(self._database).backup(copy)
        return copy

    def restore(self, snapshot: sqlite3.Connection) -> None:
        """Have the state of a snapshot, of this server or another."""
        with placement_app.ONE_AT_A_TIME:
            target = placement_app.connection_of(self._database)
            # A cursor that nobody has finished yet would keep the database locked, and the copy
            # waiting for ever.
            gc.collect()
            target.rollback()
            snapshot.backup(target, sleep=0.01)

    def dump(self) -> dict[str, Any]:
        with placement_app.ONE_AT_A_TIME:
            return dump.dump(placement_app.connection_of(self._database))

    def close(self) -> None:
        """Give the database to the next server; this one cannot be used any more."""
        self._http.close()
        placement_app.give_back(self._database)
        self._database = None

    @contextlib.contextmanager
    def _serving(self) -> Any:
        with placement_app.serving_from(self._database), placement_app.capped(self.max_version):
            yield
