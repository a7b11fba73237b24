"""Warnings of what other users of the host could read or change: files with secrets, the store's
folder, the metrics listener. Given at the daemon's start and by ``agent config check``.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from oslo_config import cfg

from agent.api.socket_file import metrics_warning
from agent.cli.command import Source
from agent.cli.config_files import read_all
from agent.model.names import printable

_SECRET = re.compile(
    r"password|secret|token(_id)?$|passcode|assertion|^fixed_key$|role_id$", re.IGNORECASE
)
# Names with such words whose values are no secrets: which secret, how it is kept, how long it is.
_NO_SECRET = re.compile(r"_uuid$|_security$|_length$", re.IGNORECASE)
_SWITCH = re.compile(r"true|false|yes|no|on|off|[0-9]", re.IGNORECASE)
# In an HTTP URL a user name without a password may be a token; databases and hypervisors are often
# accessed by a user without a password.
_URL_WITH_SECRET = re.compile(r"://[^/\s]*:[^/\s]+@|https?://[^/\s]+@")


def exposures(conf: cfg.ConfigOpts, files: Iterable[Path]) -> list[str]:
    """Return the warnings, one line each. ``files``: those of the configuration."""
    listener = metrics_warning(conf)
    return [
        *_of_folder(Path(conf.store.path)),
        *(line for file in files for line in _of_file(file)),
        *([listener] if listener else []),
    ]


def _of_folder(folder: Path) -> Iterator[str]:
    """Yield a warning if others can write the store's folder or a folder above it: they could
    replace store, identity and lock.
    """
    for path in (folder, *folder.absolute().parents):
        try:
            status = path.stat()
        except OSError:
            # It does not exist yet, or the code that needs it reports the error.
            continue
        name = printable(str(path))
        if path == folder and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield f"[store] path: {name} can be written by others than its owner: chmod go-w {name}"
        elif path != folder and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            yield f"[store] path: {name}, above it, can be written by everybody: chmod o-w {name}"
        if path == folder and status.st_uid not in (0, os.geteuid()):
            yield (
                f"[store] path: {name} belongs to uid {status.st_uid}, not to the agent's own, "
                f"{os.geteuid()}: chown {os.geteuid()} {name}"
            )


def _of_file(file: Path) -> Iterator[str]:
    try:
        readable = file.stat().st_mode & stat.S_IROTH
    except OSError:
        return
    secrets = _secrets(file) if readable else []
    if secrets:
        name = printable(str(file))
        yield f"{name} can be read by everybody, and holds {', '.join(secrets)}: chmod o-r {name}"


def _secrets(file: Path) -> list[str]:
    """Return the names of the file's options that have a secret as value; not the secrets."""
    found, _ = read_all([Source(file)])
    return [
        printable(f"[{section}] {name}")
        for file in found
        for section, options in file.sections.items()
        for name, values in options.items()
        if any(_URL_WITH_SECRET.search(value.text) for value in values)
        or (
            _SECRET.search(name)
            and not _NO_SECRET.search(name)
            and any(value.text and not _SWITCH.fullmatch(value.text) for value in values)
        )
    ]
