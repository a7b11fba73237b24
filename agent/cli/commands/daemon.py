"""``agent`` without a command: the daemon in the foreground."""

import logging
import os
from functools import partial

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.config_warnings import exposures, warn_of_unknown
from agent.cli.configuration import load
from agent.cli.logs import set_up_logging
from agent.errors import AgentError
from agent.model.report import FAILED
from agent.render.json_report import problems_of
from agent.service import daemon
from agent.service.log_writer import WRITER

LOG = logging.getLogger(__name__)


def run_daemon(conf: cfg.ConfigOpts, options: Options) -> int:
    """Run the daemon until it is stopped. Return its exit code. An error of its start is logged
    too, unless the log goes to stderr, where the error is written anyway.

    :raises AgentError: the daemon could not start.
    """
    code = FAILED
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


RUN: Commands = {
    (): run_daemon,
}
