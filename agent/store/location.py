"""Where the store is: a SQLite file, or a database server's URL."""

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
# Of the connections, unless the URL says otherwise: a server that is gone is noticed within half a
# minute, also in the middle of a statement.
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
    """``option`` names the option that put the store there; ``file`` is None for a
    database server.
    """

    url: URL
    option: str
    file: Path | None

    def __str__(self) -> str:
        # Without most options of the connection, because a password may be among them too.
        shown = {
            name: value
            for name, value in self.url.query.items()
            if name in ("host", "port", "service")
        }
        return printable(
            str(self.file or self.url.set(query=shown).render_as_string(hide_password=True))
        )


def located(folder: Path, connection: str | None) -> Location:
    """The store in ``folder``, or at the URL ``connection``.

    :raises StoreError: the URL cannot be understood, is another database's, or names one that keeps
        nothing.
    """
    if not connection:
        return in_file(folder / FILE_NAME, "[store] path")
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError) as error:
        # Not quoted, because it may hold a password.
        raise StoreError("[store] connection is not a database URL", EXAMPLES) from error
    if url.drivername in POSTGRESQL:
        return Location(_served(url), "[store] connection", None)
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


def _served(url: URL) -> URL:
    missing = {name: value for name, value in CONNECTIONS.items() if name not in url.query}
    return url.set(drivername="postgresql+psycopg").update_query_dict(missing)


def in_file(file: Path, option: str) -> Location:
    """A SQLite file that ``option`` put where it is."""
    return Location(URL.create("sqlite", database=str(file)), option, file)
