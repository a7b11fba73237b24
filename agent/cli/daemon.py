"""``agent`` without a command: the daemon, in the foreground."""

import logging
from functools import partial
from pathlib import Path

from oslo_config import cfg

from agent.cli.configuration import load
from agent.cli.exposures import exposures
from agent.cli.logs import set_up_logging
from agent.cli.options import Options
from agent.cli.unknown_options import warn_of_unknown
from agent.errors import AgentError
from agent.render.json_report import problems_of
from agent.service import daemon

LOG = logging.getLogger(__name__)


def run_daemon(conf: cfg.ConfigOpts, options: Options) -> int:
    """Run the daemon until it is stopped. Return its exit code. An error of its start is logged
    too, unless the log goes to stderr, where the error is written anyway.

    :raises AgentError: the daemon could not start.
    """
    try:
        return daemon.run(conf, partial(load, options), partial(set_up_logging, once=False), _warn)
    except AgentError as error:
        if not conf.use_stderr:
            for problem in problems_of(error):
                LOG.error("the agent cannot start: %s (%s)", problem.message, problem.remedy)
        raise


def _warn(conf: cfg.ConfigOpts, complete: bool) -> None:
    """Log warnings of settings that are valid but may not be meant."""
    for line in exposures(conf, map(Path, conf.config_file)):
        LOG.warning("%s", line)
    warn_of_unknown(conf, complete=complete)
