"""Where the store is: a SQLite file, or a database server's URL."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from agent.errors import StoreError
from agent.model.names import printable

FILE_NAME = "store.sqlite"


@dataclass(frozen=True, slots=True)
class Location:
    """``option`` names the option that put the store there; ``file`` is None for a database server."""

    url: URL
    option: str
    file: Path | None

    def __str__(self) -> str:
        return printable(str(self.file or self.url.render_as_string(hide_password=True)))


def located(folder: Path, connection: str | None) -> Location:
    """The store in ``folder``, or at the URL ``connection``.

    :raises StoreError: the URL cannot be understood, or names a database that keeps nothing.
    """
    if not connection:
        return in_file(folder / FILE_NAME, "[store] path")
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError) as error:
        # Not quoted, because it may hold a password.
        raise StoreError("[store] connection is not a database URL", "for example sqlite:////var/lib/agent/store.sqlite") from error
    if url.get_backend_name() != "sqlite":
        return Location(url, "[store] connection", None)
    if not url.database or url.database.startswith((":", "file:")):
        raise StoreError(f"[store] connection {url}: not the path of a file", "for example sqlite:////var/lib/agent/store.sqlite")
    return in_file(Path(url.database), "[store] connection")


def in_file(file: Path, option: str) -> Location:
    """A SQLite file that ``option`` put where it is."""
    return Location(URL.create("sqlite", database=str(file)), option, file)
