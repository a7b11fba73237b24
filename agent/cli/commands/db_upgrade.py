"""``agent db upgrade``: the store's schema, brought up to date."""

from pathlib import Path

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.store.lock import RunLock
from agent.store.schema import VERSION
from agent.store.store import open_store

UPGRADE_SCHEMA = "compute-node-agent/db-upgrade/1"


def upgrade_store(conf: cfg.ConfigOpts, options: Options) -> int:
    """Make the store or upgrade it.

    :raises StoreError: another run holds it, or it cannot be used.
    """
    folder = Path(conf.store.path)
    with RunLock(folder), open_store(folder, conf.store.connection) as store:
        place = str(store)
    if options.as_document:
        write_document({"schema": UPGRADE_SCHEMA, "store": place, "version": VERSION, "errors": [], "exit_code": 0}, options)
    else:
        write(f"{place} has schema {VERSION}, the newest\n")
    return 0
