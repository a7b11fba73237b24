"""``agent db backup``: the store, copied into a file."""

from pathlib import Path

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.model.names import printable
from agent.store.backup import back_up
from agent.store.location import located

BACKUP_SCHEMA = "compute-node-agent/db-backup/1"


def back_up_store(conf: cfg.ConfigOpts, options: Options) -> int:
    """Copy it, whether a daemon runs or not.

    :raises StoreError: there is no store, it cannot be read, or the file cannot be made.
    """
    folder, target = Path(conf.store.path), Path(options.arguments["file"])
    location = located(folder, conf.store.connection)
    back_up(folder, location, target)
    if options.as_document:
        write_document({"schema": BACKUP_SCHEMA, "store": str(location), "file": str(target), "errors": [], "exit_code": 0}, options)
    else:
        write(f"{location} as it was a moment ago is in {printable(str(target))}\n")
    return 0
