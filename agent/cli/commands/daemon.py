"""``agent`` without a command: the daemon in the foreground."""

import logging
import os
from functools import partial
from pathlib import Path

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.config_warnings import exposures, warn_of_unknown
from agent.cli.configuration import load
from agent.cli.logs import set_up_logging
from agent.errors import AgentError
from agent.model.finding import FAILED
from agent.render.document import problems_of
from agent.service import daemon
from agent.service.log_writer import WRITER
from agent.store import engines, identity

LOG = logging.getLogger(__name__)


def run_daemon(conf: cfg.ConfigOpts, options: Options) -> int:
    """Run the daemon until it is stopped. Return its exit code. An error of its start is logged
    too, unless the log goes to stderr, where the error is written anyway.

    :raises AgentError: the daemon could not start.
    """
    code = FAILED
    if lacks_state(conf):
        # In the first line, because a host whose state is only not mounted becomes a new node.
        LOG.info(
            "no state in %s: this host gets a new identity unless a compute_id of nova names it; "
            "if it had one, stop the agent and mount its state there, or see agent identity set",
            conf.store.path,
        )
    try:
        code = daemon.run(conf, partial(load, options), partial(set_up_logging, once=False), _warn)
    except AgentError as error:
        if not conf.use_stderr:
            for problem in problems_of(error):
                LOG.error("the agent cannot start: %s (%s)", problem.message, problem.remedy)
        raise
    finally:
        if not WRITER.finish():
            # Python's own end would wait for the thread that writes.
            os._exit(code)
    return code


def _warn(conf: cfg.ConfigOpts, complete: bool) -> None:
    """Log warnings of settings that are valid but may not be meant."""
    for line in exposures(conf):
        LOG.warning("%s", line)
    warn_of_unknown(conf, complete=complete)


def lacks_state(conf: cfg.ConfigOpts) -> bool:
    """Whether nothing is kept of an earlier run, as where a volume is not mounted."""
    folder = Path(conf.store.path)
    kept = (identity.FILE_NAME, identity.PROPOSED, engines.FOLDER, engines.FILE_NAME)
    return not conf.store.connection and not any((folder / name).exists() for name in kept)


RUN: Commands = {
    (): run_daemon,
}
