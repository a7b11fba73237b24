"""The uuid of this host's only node, where it comes from, and how it becomes final.

A uuid that the agent makes up is *proposed*: it is saved before the root provider is written, so
that a kill or a lost answer leaves no conflict with oneself, and any other proof replaces it. Once
Placement shows the root with it, it is final.
"""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.errors import IdentityError
from agent.model.names import ProviderUuid, is_uuid, normal_uuid, printable
from agent.store.lock import prepare, write_file
from agent.store.store import Store
from agent.store.store_errors import folder_unusable

FILE_NAME = "compute_id"
PROPOSED = "compute_id.proposed"

Source = Literal["nova", "store", "proposed", "made up"]
"""nova's ``compute_id``; the agent's own, or its copy in the database; a uuid that Placement has
not shown yet; one that was made up for a dry run and is saved nowhere.
"""


@dataclass(slots=True)
class HostIdentity:
    """The uuid of this host's only node."""

    uuid: ProviderUuid
    source: Source
    place: str
    """The file or the database that has it; empty if it is saved nowhere."""
    folder: Path
    """The store's folder."""
    host: str
    store: Store
    _confirmed: bool = field(default=False, init=False)

    def confirm(self) -> None:
        """Save the uuid as final in file and database, because Placement shows the root with it.

        :raises StoreError: the file or the store cannot be written.
        """
        if self._confirmed:
            return
        own = _read(self.folder / FILE_NAME)
        # A file that says otherwise was written by ``agent identity set`` since this run began.
        if own is None or (self.source == "nova" and own != self.uuid):
            save(self.folder, self.uuid)
        if self.store.identity(self.host) != self.uuid:
            self.store.save_identity(self.host, self.uuid)
        self._confirmed = True


def find(
    folder: Path, nova_folders: Sequence[Path], host: str, store: Store
) -> HostIdentity | None:
    """Return the identity of the host, ``None`` if it has none yet. Nothing is written.

    The sources in order: nova's file in ``nova_folders``, the file in ``folder``, the database, the
    proposed uuid.

    :raises IdentityError: a file is damaged, or nova's files contradict each other.
    :raises StoreError: the store cannot be read.
    """

    def found(uuid: ProviderUuid, source: Source, place: object) -> HostIdentity:
        return HostIdentity(uuid, source, printable(str(place)), folder, host, store)

    if novas := nova_identity(folder, nova_folders):
        return found(*novas)
    if own := _read(folder / FILE_NAME):
        return found(own, "store", folder / FILE_NAME)
    if kept := store.identity(host):
        return found(kept, "store", store)
    if proposed := _read(folder / PROPOSED):
        return found(proposed, "proposed", folder / PROPOSED)
    return None


def establish(folder: Path, nova_folders: Sequence[Path], host: str, store: Store) -> HostIdentity:
    """Return the identity found by :func:`find`, or else a new one, saved as proposed. The caller
    holds the folder's run lock.

    :raises IdentityError: as for :func:`find`.
    :raises StoreError: the file or the store cannot be read or written.
    """
    prepare(folder)
    if known := find(folder, nova_folders, host, store):
        return known
    made = made_up(folder, host, store)
    _write(folder / PROPOSED, made.uuid)
    made.source, made.place = "proposed", printable(str(folder / PROPOSED))
    return made


def made_up(folder: Path, host: str, store: Store) -> HostIdentity:
    """Return a new identity that is saved nowhere."""
    return HostIdentity(ProviderUuid(str(uuid.uuid4())), "made up", "", folder, host, store)


def nova_identity(
    folder: Path, nova_folders: Sequence[Path]
) -> tuple[ProviderUuid, Literal["nova"], Path] | None:
    """Return what nova's ``compute_id`` says, and the first file that says so. The agent's own file
    in ``folder`` is none of nova's, even if nova would read it.

    :raises IdentityError: a file is damaged, or two contradict each other.
    """
    own = (folder / FILE_NAME).resolve()
    files = dict.fromkeys(place / FILE_NAME for place in nova_folders)
    found = [
        (uuid, file)
        for file in files
        if file.resolve() != own and (uuid := _read(file)) is not None
    ]
    for other, file in found[1:]:
        if other != found[0][0]:
            raise IdentityError(
                f"{printable(str(found[0][1]))} says that this node is {found[0][0]}, "
                f"{printable(str(file))} says {other}",
                "nova-compute refuses this too: remove the file that is wrong",
                file=str(file),
            )
    return (found[0][0], "nova", found[0][1]) if found else None


def save(folder: Path, uuid: ProviderUuid) -> ProviderUuid | None:
    """Write the agent's own file in place of what it says and of what is proposed. Return what one
    of them said, if it can be read.

    :raises StoreError: it cannot be written.
    """
    prepare(folder)
    former = None
    # A damaged file is replaced.
    with suppress(IdentityError):
        former = _read(folder / FILE_NAME) or _read(folder / PROPOSED)
    _write(folder / FILE_NAME, uuid)
    try:
        (folder / PROPOSED).unlink(missing_ok=True)
    except OSError as error:
        raise folder_unusable(folder, error) from error
    return former


def _write(file: Path, uuid: ProviderUuid) -> None:
    try:
        write_file(file, f"{uuid}\n")
    except OSError as error:
        raise folder_unusable(file.parent, error) from error


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
