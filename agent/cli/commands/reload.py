"""``agent reload``: what SIGHUP does, with an answer."""

from oslo_config import cfg

from agent.api.client import ApiProblem
from agent.cli.daemon_client import client
from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable

RELOAD_SCHEMA = "compute-node-agent/reload/1"


def reload_configuration(conf: cfg.ConfigOpts, options: Options) -> int:
    """Have the daemon read its configuration again.

    :raises ConfigErrors: everything that is wrong with it; the daemon goes on with the old one.
    :raises ApiProblem, ApiUnreachable: the daemon refuses, or there is none.
    """
    try:
        status = client(conf).reload()
    except ApiProblem as problem:
        if problem.code != ConfigError.code:
            raise
        parts = problem.parts or [problem.problem]
        raise ConfigErrors([ConfigError(str(one.get("detail", "")), str(one.get("remedy", ""))) for one in parts]) from problem
    if options.as_document:
        write_document({"schema": RELOAD_SCHEMA, "status": status, "errors": [], "exit_code": 0}, options)
    else:
        write(f"the configuration was reloaded; {printable(status)}\n")
    return 0
