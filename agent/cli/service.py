"""``agent`` without more: the daemon, in the foreground."""

from oslo_config import cfg

from agent import daemon
from agent.cli.configuration import load
from agent.cli.options import Options


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Be the daemon until a signal ends it; a reload reads again what the command line names.

    :raises AgentError: it could not begin.
    """
    return daemon.run(conf, lambda: load(options))
