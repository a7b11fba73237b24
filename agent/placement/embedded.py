"""The embedded Placement: openstack-placement inside this process, on a SQLite file, for
demonstrations, CI and hosts without a cloud.

It is reached through keystoneauth like any other Placement; only the socket is replaced by a
function call.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from keystoneauth1 import adapter, session, token_endpoint
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict
from sqlalchemy import URL

from agent.driver.worker import start_thread
from agent.errors import ConfigError, PlacementUnreachable, StoreError
from agent.model.names import printable
from agent.placement.transport import Timeouts, Transport
from agent.version import pip_install

ENDPOINT = "http://placement.embedded"
FILE = "placement.sqlite"

DEFAULT_TIMEOUTS = Timeouts()

# Returns a copy of the database in memory, None if there is no database.
Copy = Callable[[], sqlite3.Connection | None]


SLOW = "slow"
"""The kind of failure of a query that takes too long; it is not worth repeating."""
MOST_CANDIDATES = 20_000
"""So many are found at most, because their number grows with a power of the groups."""
_SEARCHES = "/allocation_candidates"


class WsgiAdapter(BaseAdapter):
    """A transport adapter of ``requests`` that calls a WSGI application, one request at a time.

    A search for candidates tries every combination of providers, which can take for ever. It runs
    in a thread of its own and is abandoned after the read timeout.
    """

    def __init__(self, application: Any) -> None:
        super().__init__()
        self._application = application
        self._lock = threading.Lock()

    def send(
        self,
        request: requests.PreparedRequest,
        *_args: Any,
        timeout: Any = None,
        **_options: Any,
    ) -> requests.Response:
        """Have the application answer ``request``.

        :raises PlacementUnreachable: a search for candidates takes too long, this or an earlier
            one.
        """
        seconds = timeout[1] if isinstance(timeout, tuple) else timeout
        end = None if seconds is None else time.monotonic() + seconds
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            raise _too_slow(request, seconds)
        if request.method != "GET" or urlsplit(str(request.url)).path != _SEARCHES:
            return self._answer_and_release(request)
        try:
            answer = start_thread(lambda: self._answer_and_release(request), "embedded Placement")
        except RuntimeError:
            self._lock.release()
            raise
        try:
            return answer.result(None if end is None else max(0.0, end - time.monotonic()))
        except TimeoutError as error:
            raise _too_slow(request, seconds) from error

    def _answer_and_release(self, request: requests.PreparedRequest) -> requests.Response:
        try:
            return self._answer(request)
        finally:
            self._lock.release()

    def _answer(self, request: requests.PreparedRequest) -> requests.Response:
        # Imported here, because it comes with Placement.
        from webob import Request

        sent = Request.blank(
            str(request.url),
            method=request.method,
            headers=dict(request.headers),
            body=request.body.encode() if isinstance(request.body, str) else request.body or b"",
        )
        status, headers, content = sent.call_application(self._application)
        answer = requests.Response()
        code, _, answer.reason = status.partition(" ")
        answer.status_code = int(code)
        answer.headers = CaseInsensitiveDict(headers)
        answer.url, answer.request, answer.encoding = str(request.url), request, "utf-8"
        answer._content = b"".join(content)
        return answer

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def _too_slow(request: requests.PreparedRequest, seconds: float) -> PlacementUnreachable:
    path = printable(urlsplit(str(request.url)).path)
    return PlacementUnreachable(
        f"the embedded Placement did not answer {request.method} {path} within {seconds:.3g} s",
        "request less at once, because it tries every combination of providers for the groups of a "
        "query; or raise [placement] read_timeout",
        kind=SLOW,
    )


def _application(connection: str, copy: Copy | None) -> Any:
    """Return Placement's WSGI application on the database ``connection``, filled from ``copy``."""
    try:
        from oslo_config import cfg
        from placement import conf as placement_conf
        from placement import db_api, deploy
        from placement.db.sqlalchemy import migration
    except ImportError as error:
        raise ConfigError(
            f"the embedded Placement is not installed: {error}",
            f"set up [placement], or install it: {pip_install('embedded')}",
        ) from error
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("connection", connection, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    # Read at each search, and so not taken back below.
    conf.set_override("max_allocation_candidates", MOST_CANDIDATES, group="placement")
    try:
        conf([], project="placement", default_config_files=[], default_config_dirs=[])
        db_api.configure(conf)
        if copy is not None and (copied := copy()) is not None:
            with closing(copied):
                copied.backup(db_api.get_placement_engine().raw_connection().driver_connection)
        # alembic logs every step at INFO, which is of no interest here.
        logging.getLogger("alembic").setLevel(logging.WARNING)
        migration.upgrade("head")
        return deploy.loadapp(conf)
    finally:
        # Placement's groups of options are objects of the process, so that an override would be one
        # of every configuration.
        conf.clear_override("connection", group="placement_database")
        conf.clear_override("auth_strategy", group="api")


def _error_of(file: Path, error: Exception) -> ConfigError | StoreError:
    """Return why the embedded Placement does not start: its database, or its libraries."""
    # Imported here, because alembic is needed only for this error.
    from alembic.util import CommandError

    chain: list[BaseException] = [error]
    while (
        before := chain[-1].__cause__ or chain[-1].__context__
    ) is not None and before not in chain:
        chain.append(before)
    reason = printable(" ".join(str(error).split()))[:300] or type(error).__name__
    if (
        of_file := next(
            (cause for cause in chain if isinstance(cause, sqlite3.Error | OSError)), None
        )
    ) is not None:
        return StoreError(
            f"the embedded Placement's database {printable(str(file))} cannot be used: {reason}",
            _file_remedy(file, of_file),
        )
    if isinstance(error, CommandError):
        # alembic does not know the revision that is recorded in the database.
        remedy = (
            "upgrade openstack-placement to the version that wrote it, or move the file away to "
            "start with an empty Placement"
        )
        return StoreError(
            (
                f"the embedded Placement's database {printable(str(file))} was made by another "
                f"version of it: {reason}"
            ),
            remedy,
        )
    return ConfigError(
        (
            "the embedded Placement cannot be started, for a reason in its libraries: "
            f"{type(error).__name__}: {reason}"
        ),
        (
            "its database is as it was; see that the versions fit: "
            f"{pip_install('embedded')} --upgrade"
        ),
    )


def _file_remedy(file: Path, error: BaseException) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process has it open for too long"
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return "make room on its file system and check its disk"
    if code in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
    ) or isinstance(error, OSError):
        return f"make {printable(str(file.parent))} and the file writable for the agent's user"
    return "move the file away to start with an empty Placement"


def name_embedded(folder: Path) -> str:
    """Return the line that says which Placement is used. To be asked before that is opened: one
    that holds nothing yet is told, because all its answers are "nothing".
    """
    file = folder / FILE
    new = "" if file.exists() else ", which was empty"
    return f"using the embedded Placement in {file}{new}"


def connect_embedded(
    folder: Path,
    cancelled: threading.Event,
    copy: Copy | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Transport:
    """Return a transport to the Placement in ``folder``, or, for a dry run, to the ``copy`` of its
    database in memory. To be called once in a process. Of ``timeouts`` only that for an answer
    counts, and only for searches.

    :raises ConfigError: openstack-placement is not installed or its libraries fail.
    :raises StoreError: its database cannot be used.
    """
    file = folder / FILE
    # The path is given as SQLite's own kind of URI, because it may contain characters that are
    # special in a database URL or an option.
    location = URL.create(
        "sqlite", database=f"file:{quote(str(file.absolute()))}", query={"uri": "true"}
    )
    connection = "sqlite://" if copy else location.render_as_string()
    try:
        application = _application(connection, copy)
    except (ConfigError, StoreError):
        raise
    except Exception as error:
        raise _error_of(file, error) from error
    http = requests.Session()
    http.trust_env = False
    http.mount(ENDPOINT, WsgiAdapter(application))
    # Placement's noauth2 requires a token and takes the roles from a header; the reshaper requires
    # the role service.
    auth = token_endpoint.Token(endpoint=ENDPOINT, token="admin")  # noqa: S106 - no secret: it only says who # nosec B106
    connected = session.Session(
        auth=auth, session=http, additional_headers={"X-Roles": "admin,service"}
    )
    return Transport(
        adapter.Adapter(connected, service_type="placement"),
        timeouts=timeouts,
        max_in_flight=1,
        cancelled=cancelled,
    )
