"""The node's persistent identity: a uuid in a file that is never overwritten, and in the store."""

import logging
import uuid
from pathlib import Path

from agent.errors import IdentityError
from agent.model.names import ProviderUuid, is_uuid, normal_uuid, printable
from agent.store.engines import folder_unusable
from agent.store.lock import prepare, write_new
from agent.store.store import Store

LOG = logging.getLogger(__name__)

FILE_NAME = "compute_id"


def find(folder: Path, nova_folder: Path, host: str, store: Store) -> ProviderUuid | None:
    """Return the identity of the host's only node, ``None`` if it has none yet. Nothing is written.

    The sources in order: the file in ``folder``, the store, nova's file in ``nova_folder``.

    :raises IdentityError: a file is damaged, or two of the sources contradict each other.
    :raises StoreError: the store cannot be read.
    """
    own_file, nova_file = folder / FILE_NAME, nova_folder / FILE_NAME
    own, kept = _read(own_file), store.identity(host)
    if own and kept:
        _agree(own, own_file, kept, store)
    if own:
        return own
    nova = _read(nova_file)
    if kept and nova and kept != nova:
        raise _contradiction(
            nova,
            nova_file,
            kept,
            store,
            f"write the uuid that this node has in Placement into {own_file}",
        )
    return kept or nova


def establish(folder: Path, nova_folder: Path, host: str, store: Store) -> ProviderUuid:
    """Return the identity found by :func:`find`, or else a new one, after saving it durably in file
    and store.

    :raises IdentityError: as for :func:`find`.
    :raises StoreError: the file or the store cannot be read or written.
    """
    prepare(folder)
    file = folder / FILE_NAME
    known, kept = find(folder, nova_folder, host, store), store.identity(host)
    own = _read(file)
    if own is None:
        if kept:
            LOG.warning(
                "%s was lost; written again with %s, which the store %s knows", file, kept, store
            )
        own = _written(file, known or ProviderUuid(str(uuid.uuid4())))
    # Compared again, because another run may have written the file or the store first.
    _agree(own, file, kept or store.save_identity(host, own), store)
    return own


def _written(file: Path, chosen: ProviderUuid) -> ProviderUuid:
    """Write the file and return its uuid: that of another run if that one was first."""
    try:
        write_new(file, f"{chosen}\n")
    except FileExistsError:
        LOG.info("another run has just made %s", file)
    except OSError as error:
        raise folder_unusable(file.parent, error) from error
    written = _read(file)
    if written is None:
        raise IdentityError(
            f"{file} vanished while it was made", "run the agent again, and only once at a time"
        )
    return written


def _read(file: Path) -> ProviderUuid | None:
    try:
        with file.open("rb") as opened:
            text = opened.read(4096).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # Not taken for a missing file: the node would get a second identity.
        raise IdentityError(
            f"{file} cannot be read: {error.strerror}",
            "make it readable for the agent",
            file=str(file),
        ) from error
    if not is_uuid(text):
        raise IdentityError(
            f"{file} does not hold one uuid but {printable(text[:80])!r}",
            "write the uuid that this node has in Placement into it",
            file=str(file),
        )
    return normal_uuid(text)


def _agree(own: ProviderUuid, file: Path, kept: ProviderUuid, store: Store) -> None:
    if own != kept:
        raise _contradiction(
            own,
            file,
            kept,
            store,
            f"put {kept} back into the file, or point [store] path at the folder of node {own}",
        )


def _contradiction(found: str, file: Path, kept: str, store: Store, remedy: str) -> IdentityError:
    return IdentityError(
        f"{file} says that this node is {found}, the store {store} says {kept}",
        remedy,
        file=str(file),
        found=found,
        kept=kept,
    )
