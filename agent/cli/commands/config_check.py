"""``agent config check``: everything wrong with the configuration, at once."""

from threading import Event

from oslo_config import cfg

from agent.assembly import made
from agent.cli.options import Options
from agent.cli.output import write, write_document

SCHEMA = "compute-node-agent/config-check/1"


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check what loading alone does not.

    :raises ConfigErrors: everything that is wrong.
    """
    made(conf, Event(), daemon=False)
    files = list(conf.config_file)
    if options.format == "json":
        write_document({"schema": SCHEMA, "files": files, "errors": [], "exit_code": 0})
    else:
        write(f"nothing wrong in {', '.join(files) if files else 'the defaults: no configuration file was found'}\n")
    return 0
