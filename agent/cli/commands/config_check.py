"""``agent config check``: everything wrong with the configuration, at once."""

from threading import Event

from oslo_config import cfg

from agent.assembly import made
from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.desired.affinity import affinity_warning

SCHEMA = "compute-node-agent/config-check/1"


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Check what loading alone does not.

    :raises ConfigErrors: everything that is wrong.
    """
    parts = made(conf, Event(), daemon=False)
    files, warnings = list(conf.config_file), [one for one in (affinity_warning(parts.policy, parts.pci),) if one is not None]
    if options.format == "json":
        write_document({"schema": SCHEMA, "files": files, "warnings": warnings, "errors": [], "exit_code": 0})
    else:
        write("".join(f"warning: {one}\n" for one in warnings))
        write(f"nothing wrong in {', '.join(files) if files else 'the defaults: no configuration file was found'}\n")
    return 0
