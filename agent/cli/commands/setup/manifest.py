"""The manifest of ``agent setup``: what it wrote on a host, so that it can take it away again."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from agent.cli.commands.setup.root_folder import RootFolder
from agent.cli.commands.setup.shipped import CONFIGURATION_FOLDER, FOLDERS, is_agent_command
from agent.errors import ConfigError
from agent.model.names import printable

# Not in the folder of the store, because the service's user may write there: root would remove what
# that user names.
MANIFEST = f"{CONFIGURATION_FOLDER}/setup.json"
SCHEMA = "compute-node-agent/setup-manifest/1"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``agent setup`` wrote below one root folder."""

    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """SHA-256 of the contents of each file that was written, by path below the root folder. While
    files are being replaced: the new and the old one, because a crash may leave either.
    """
    folders: tuple[str, ...] = ()
    """Folders that were created, parents first."""
    command: str | None = None
    """The value of ``--command``; None if none was given."""

    def wrote(self, target: str, content: bytes) -> bool:
        """Return whether ``content`` is what was written to ``target``."""
        return content_hash(content) in self.files.get(target, ())


def content_hash(content: bytes) -> str:
    """Return the SHA-256 of ``content``, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_manifest(root: RootFolder) -> Manifest:
    """Return the manifest of a root folder, empty if there is none.

    :raises ConfigError: the manifest cannot be read.
    """
    content = root.read(MANIFEST)
    if content is None:
        return Manifest()
    try:
        document = json.loads(content)
        found = Manifest(
            {target: tuple(hashes) for target, hashes in document["files"].items()},
            tuple(document["folders"]),
            document.get("command"),
        )
        lists_folders = isinstance(document["folders"], list)
        sound = document["schema"] == SCHEMA and lists_folders and _is_sound(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise ConfigError(
            f"{printable(str(root.path(MANIFEST)))} is damaged: it does not list what agent setup "
            "wrote",
            "restore it from a backup, or remove the files of agent setup by hand",
        )
    return found


def _is_sound(manifest: Manifest) -> bool:
    hashes = [found for several in manifest.files.values() for found in several]
    return (
        all(map(_is_below, [*manifest.files, *manifest.folders]))
        and all(isinstance(found, str) and _HASH.fullmatch(found) for found in hashes)
        and (manifest.command is None or is_agent_command(manifest.command))
    )


def _is_below(target: Any) -> bool:
    path = PurePosixPath(target)
    # A file system cannot have every character that JSON can, such as NUL and lone surrogates.
    return (
        not path.is_absolute()
        and ".." not in path.parts
        and bool(path.parts)
        and printable(target) == target
    )


def write_manifest(root: RootFolder, manifest: Manifest) -> None:
    """Write the manifest, and create the folders above it. One without files is removed, with those
    of its folders above it that are empty then.

    :raises ConfigError: it cannot be written.
    """
    if not manifest.files:
        root.remove_with_folders(MANIFEST, manifest.folders)
        return
    document = {
        "schema": SCHEMA,
        "files": {target: list(hashes) for target, hashes in sorted(manifest.files.items())},
        "folders": list(manifest.folders),
    }
    if manifest.command is not None:
        document["command"] = manifest.command
    content = f"{json.dumps(document, indent=1)}\n".encode()
    root.write_with_folders(MANIFEST, content, 0o644, FOLDERS)
