"""The location of the store: a SQLite file, or a database server's URL."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from agent.errors import StoreError
from agent.model.names import printable

FILE_NAME = "store.sqlite"
EXAMPLES = (
    "for example sqlite:////var/lib/agent/store.sqlite or "
    "postgresql://user:password@server/database"
)
SQLITE = ("sqlite", "sqlite+pysqlite")
POSTGRESQL = ("postgresql", "postgresql+psycopg")
# Defaults for options of the URL: a server that is gone is noticed within half a minute, also in
# the middle of a statement.
# https://www.postgresql.org/docs/current/libpq-connect.html
CONNECTIONS = {
    "application_name": "compute-node-agent",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a store."""

    url: URL
    option: str
    """The option that determines the location, for messages."""
    file: Path | None
    """The SQLite file; ``None`` for a database server."""

    def __str__(self) -> str:
        # Other options of the connection are not shown, because a password may be among them.
        shown = {
            name: value
            for name, value in self.url.query.items()
            if name in ("host", "port", "service")
        }
        return printable(
            str(self.file or self.url.set(query=shown).render_as_string(hide_password=True))
        )


def locate(folder: Path, connection: str | None) -> Location:
    """Return the location of the store in ``folder``, or at the URL ``connection``.

    :raises StoreError: the URL is malformed, is for an unsupported database, or names a database
        that is not in a file.
    """
    if not connection:
        return in_file(folder / FILE_NAME, "[store] path")
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError) as error:
        # The URL is not quoted, because it may hold a password.
        raise StoreError("[store] connection is not a database URL", EXAMPLES) from error
    if url.drivername in POSTGRESQL:
        return Location(_server_url(url), "[store] connection", None)
    if url.drivername not in SQLITE:
        raise StoreError(
            (
                f"[store] connection {printable(url.drivername)}: the store can only be in SQLite "
                "or PostgreSQL"
            ),
            EXAMPLES,
        )
    if not url.database or url.database.startswith((":", "file:")):
        raise StoreError(
            f"[store] connection {printable(str(url))}: not the path of a file", EXAMPLES
        )
    return in_file(Path(url.database), "[store] connection")


def _server_url(url: URL) -> URL:
    missing = {name: value for name, value in CONNECTIONS.items() if name not in url.query}
    return url.set(drivername="postgresql+psycopg").update_query_dict(missing)


def in_file(file: Path, option: str) -> Location:
    """Return the location of a SQLite file determined by ``option``."""
    return Location(URL.create("sqlite", database=str(file)), option, file)
