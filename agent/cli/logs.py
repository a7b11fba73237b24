"""Set-up of the log: stderr for one command, oslo.log's options for the daemon."""

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from oslo_config import cfg

from agent.errors import ConfigError
from agent.model.names import masked, printable

PROGRAM = "agent"
# Overridden for a command: a nova.conf sends the log to nova's files, but the result of a command
# belongs on the terminal.
ELSEWHERE = {
    "log_config_append": None,
    "log_file": None,
    "log_dir": None,
    "use_syslog": False,
    "use_journal": False,
    "use_json": False,
}
# Of a log file that the agent creates.
FILE_MODE = 0o640
IN_THE_REPORT = "agent.placement.transport"
QUIET = {
    # These log the whole traffic with Placement and identity, bodies in full.
    **dict.fromkeys(
        ("keystoneauth", "keystoneauth.session", "urllib3", "urllib3.connectionpool"),
        logging.WARNING,
    ),
    # An unreachable identity service is reported by the agent's own error.
    "keystoneauth.identity": logging.ERROR,
    # This logs each failed attempt with a traceback; the request's own line reports the failure.
    "retrying": logging.CRITICAL,
    # This logs its plugins and each step of a schema migration.
    "alembic": logging.WARNING,
    # The embedded Placement logs each request, and after a reload that its database is open
    # already.
    "placement.requestlog": logging.WARNING,
    "placement.db_api": logging.ERROR,
    # A plugin that cannot be loaded is reported by the agent's own error, with a remedy.
    "stevedore": logging.CRITICAL,
    # Deprecated options in a nova.conf are reported by nova.
    "oslo_config": logging.ERROR,
}


JOURNAL = "/run/systemd/journal/socket"
LONGEST_FIELD = 48 * 1024
"""Bytes of a field of the journal, of which a line has few: a datagram has at most some 200 KiB."""


class JournalSender:
    """Sends lines to journald, for oslo.log's handler, in the place of systemd's own binding: that
    holds Python's lock while journald takes nothing, so that every thread stands still.
    """

    def send(self, message: str, **fields: object) -> None:
        """Send a line; nothing is sent while no journald runs."""
        values = {"MESSAGE": message, **fields}
        line = b"".join(
            b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)
            for name, value in values.items()
            for data in [str(value).encode(errors="replace")[:LONGEST_FIELD]]
        )
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(line, JOURNAL)


class Masking(logging.Formatter):
    """A formatter that masks the passwords of URLs and escapes control characters in the text of
    another formatter.

    Libraries quote both in messages, and in the exceptions of a traceback.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        text = masked(self._formatter.format(record))
        # Newlines stay, and so do the colours of oslo.log itself. In a file these are empty, and an
        # empty text would be found between any two characters.
        colours = (getattr(record, name, "") for name in ("color", "reset_color"))
        kept = {"\n", *filter(None, colours)}
        parts = re.split(f"({'|'.join(map(re.escape, kept))})", text)
        text = "".join(part if part in kept else printable(part) for part in parts)
        # Handlers for the journal send exc_text once more.
        record.exc_text = masked(record.exc_text) if record.exc_text else record.exc_text
        return text


def _handlers() -> list[logging.Handler]:
    loggers = [
        logging.getLogger(),
        *(
            logger
            for logger in logging.root.manager.loggerDict.values()
            if isinstance(logger, logging.Logger)
        ),
    ]
    return [handler for logger in loggers for handler in logger.handlers]


@contextmanager
def _umask_of_logs() -> Iterator[None]:
    """Make a file that the block creates readable to the group, as an administrator's, and to
    nobody else, whatever the umask.
    """
    before = os.umask(0o777 & ~FILE_MODE)
    try:
        yield
    finally:
        os.umask(before)


def _keep_mode(handler: logging.FileHandler) -> None:
    """Have a log file that is opened anew, because it was rotated, get the same mode."""
    plain = handler._open

    def opened() -> Any:
        with _umask_of_logs():
            return plain()

    handler._open = opened  # type: ignore[method-assign]


def _mask_passwords() -> None:
    """Give every existing handler a :class:`Masking` formatter."""
    for handler in [logging.lastResort, *_handlers()]:
        if handler is not None and not isinstance(handler.formatter, Masking):
            handler.setFormatter(Masking(handler.formatter or logging.Formatter()))


def quiet_libraries() -> None:
    """Suppress log lines of libraries that the agent reports better, or that contain secrets."""
    _mask_passwords()
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)


def log_to_stderr(*, debug: bool) -> None:
    """Set up the log of a command that asks the daemon: warnings go to stderr; with ``debug``,
    everything does.
    """
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING,
        format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s",
        force=True,
    )
    quiet_libraries()


def set_up_logging(conf: cfg.ConfigOpts, *, once: bool, debug: bool = False) -> None:
    """Set up the log as configured. With ``once``, warnings go to stderr only; with ``debug`` too,
    everything does.

    :raises ConfigError: the log cannot be written as configured.
    """
    # Imported here, because a command that asks the daemon writes no log and needs to be fast.
    from oslo_log import handlers, log

    handlers.journal = JournalSender()  # type: ignore[attr-defined]
    # Otherwise oslo.log would import a notifier that the agent does not use.
    conf.set_override("publish_errors", False)
    if once:
        for option, value in ELSEWHERE.items():
            conf.set_override(option, value)
        conf.set_override("debug", debug)
        conf.set_override("use_stderr", True)
    elif not (conf.log_file or conf.log_dir or conf.use_journal):
        # Otherwise oslo.log would write to stdout.
        conf.set_default("use_stderr", True)
    try:
        with _umask_of_logs():
            log.setup(conf, PROGRAM)
    except (OSError, ValueError, TypeError, RuntimeError, log.LogConfigError) as error:
        raise ConfigError(
            f"the log cannot be set up: {error}",
            "correct log_file, log_dir, log_config_append or default_log_levels in [DEFAULT]",
        ) from error
    # The agent reports exceptions itself, with a remedy; oslo.log's hook would say less.
    sys.excepthook = sys.__excepthook__
    for handler in _handlers():
        if isinstance(handler, logging.FileHandler):
            _keep_mode(handler)
    quiet_libraries()
    if once and not debug:
        # The report has these problems already; the daemon has no report.
        logging.getLogger(IN_THE_REPORT).setLevel(logging.ERROR)
        # Set on the handlers too, because default_log_levels lets some loggers log more than their
        # parents.
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.WARNING)
