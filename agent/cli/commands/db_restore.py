"""``agent db restore``: a backup, put in the store's place."""

from contextlib import ExitStack
from pathlib import Path

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.conf.default import host_name
from agent.model.names import printable
from agent.store import identity
from agent.store.backup import restore
from agent.store.location import located
from agent.store.lock import RunLock
from agent.store.store import Store

RESTORE_SCHEMA = "compute-node-agent/db-restore/1"


def restore_store(conf: cfg.ConfigOpts, options: Options) -> int:
    """Put it there, if it is a sound store of this node; what was there keeps another name.

    :raises StoreError: a run holds the store, or the file is none that could be one.
    """
    folder, source = Path(conf.store.path), Path(options.arguments["file"])
    location = located(folder, conf.store.connection)

    def of_this_node(store: Store) -> None:
        identity.find(folder, Path(conf.state_path), host_name(conf), store)

    with ExitStack() as stack:
        if not options.dry_run:
            stack.enter_context(RunLock(folder))
        before = restore(location, source, of_this_node, dry_run=options.dry_run)
    if options.as_document:
        shown = {"store": str(location), "file": str(source), "before": str(before) if before else None, "dry_run": options.dry_run}
        write_document({"schema": RESTORE_SCHEMA, **shown, "errors": [], "exit_code": 0}, options)
    elif options.dry_run:
        write(f"{printable(str(source))} can be put in the place of {location}\n")
    else:
        kept = f"; what was there is {printable(before.name)} now" if before else ""
        write(f"{location} is what {printable(str(source))} has{kept}\n")
    return 0
