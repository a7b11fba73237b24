"""Where the log goes: stderr for one audit, what oslo.log is configured to for the daemon."""

import logging
import re
import sys

from oslo_config import cfg
from oslo_log import log

from agent.errors import ConfigError
from agent.model.names import masked, printable

PROGRAM = "agent"
# A nova.conf sends its log to nova's files; what an operator asks for at a prompt belongs on the
# terminal.
ELSEWHERE = {
    "log_config_append": None,
    "log_file": None,
    "log_dir": None,
    "use_syslog": False,
    "use_journal": False,
    "use_json": False,
}
IN_THE_REPORT = "agent.placement.unreachable"
QUIET = {
    # The whole traffic with Placement and identity: tokens hashed, but bodies in full.
    **dict.fromkeys(
        ("keystoneauth", "keystoneauth.session", "urllib3", "urllib3.connectionpool"),
        logging.WARNING,
    ),
    # An identity service that cannot be reached is our own error a moment later.
    "keystoneauth.identity": logging.ERROR,
    # Each failed attempt, with a traceback; the request's own line has told of it.
    "retrying": logging.CRITICAL,
    # Each plugin of its own and each step of a schema.
    "alembic": logging.WARNING,
    # The embedded Placement: each request that it answers, and that its database is already open
    # after a reload.
    "placement.requestlog": logging.WARNING,
    "placement.db_api": logging.ERROR,
    # What cannot be loaded is an error of ours, with a remedy, where it is wanted.
    "stevedore": logging.CRITICAL,
    # What is deprecated in a nova.conf is for nova to say.
    "oslo_config": logging.ERROR,
}


class Masking(logging.Formatter):
    """As another formatter, without the passwords of URLs and with control characters escaped.

    Libraries quote both in messages, and in the exceptions of a traceback.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        text = masked(self._formatter.format(record))
        # Lines stay, and so do the colours that oslo.log itself has put there.
        kept = {"\n", *(getattr(record, name, "\n") for name in ("color", "reset_color"))}
        parts = re.split(f"({'|'.join(map(re.escape, kept))})", text)
        text = "".join(part if part in kept else printable(part) for part in parts)
        # Handlers for the journal send it once more.
        record.exc_text = masked(record.exc_text) if record.exc_text else record.exc_text
        return text


def _mask_passwords() -> None:
    """Have no handler that there is write a password of a URL."""
    loggers = [
        logging.getLogger(),
        *(
            one
            for one in logging.root.manager.loggerDict.values()
            if isinstance(one, logging.Logger)
        ),
    ]
    for handler in [logging.lastResort, *(handler for one in loggers for handler in one.handlers)]:
        if handler is not None and not isinstance(handler.formatter, Masking):
            handler.setFormatter(Masking(handler.formatter or logging.Formatter()))


def quiet_libraries() -> None:
    """Keep libraries from saying what the agent says better, or what nobody may read."""
    _mask_passwords()
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)


def set_up_logging(conf: cfg.ConfigOpts, *, once: bool, debug: bool = False) -> None:
    """Log as configured; for ``once``, warnings on stderr only, and everything with ``debug``.

    :raises ConfigError: the log cannot be written as configured.
    """
    # oslo.log would try to import a notifier that the agent has no use for.
    conf.set_override("publish_errors", False)
    if once:
        for option, value in ELSEWHERE.items():
            conf.set_override(option, value)
        conf.set_override("debug", debug)
        conf.set_override("use_stderr", True)
    elif not (conf.log_file or conf.log_dir or conf.use_journal):
        # Not stdout, oslo.log's last resort.
        conf.set_default("use_stderr", True)
    try:
        log.setup(conf, PROGRAM)
    except (OSError, ValueError, TypeError, RuntimeError, log.LogConfigError) as error:
        raise ConfigError(
            f"the log cannot be set up: {error}",
            "correct log_file, log_dir, log_config_append or default_log_levels in [DEFAULT]",
        ) from error
    # Errors are reported by their own, with a remedy; oslo.log's hook would say less.
    sys.excepthook = sys.__excepthook__
    quiet_libraries()
    if once and not debug:
        # What the report tells once is not told a second time; the daemon has no report.
        logging.getLogger(IN_THE_REPORT).setLevel(logging.ERROR)
        # On the handlers too, because default_log_levels lets some loggers say more than their
        # parents.
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.WARNING)
