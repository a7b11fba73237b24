"""``agent db upgrade``, ``backup``, ``restore`` and ``set-aside``: work on the store as a whole."""

from contextlib import ExitStack
from pathlib import Path

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.output import answer
from agent.conf.default import host_name, nova_folders
from agent.errors import IdentityError
from agent.model.names import printable
from agent.store import identity
from agent.store.backup import back_up, restore
from agent.store.database_file import set_aside
from agent.store.engines import locate
from agent.store.lock import RunLock
from agent.store.store import Store, open_store
from agent.store.store_errors import translate_errors
from agent.store.tables import VERSION

UPGRADE_SCHEMA = "compute-node-agent/db-upgrade/1"


def upgrade_store(conf: cfg.ConfigOpts, options: Options) -> int:
    """Create the store, or check that it has the schema of this version. Return the exit code.

    :raises StoreError: another run holds the store, or it cannot be used.
    """
    folder = Path(conf.store.path)
    with RunLock(folder), open_store(folder, conf.store.connection) as store:
        place = str(store)
    text = f"{place} has schema {VERSION}, that of this version\n"
    return answer(options, UPGRADE_SCHEMA, {"store": place, "version": VERSION}, text)


RESTORE_SCHEMA = "compute-node-agent/db-restore/1"


def restore_store(conf: cfg.ConfigOpts, options: Options) -> int:
    """Replace the store by a backup, if that is a sound store of this node. The former store is
    kept under another name. Return the exit code.

    :raises StoreError: a run holds the store, or the file is not a store of this node.
    """
    folder, source = Path(conf.store.path), Path(options.arguments["file"])
    location = locate(folder, conf.store.connection)

    def of_this_node(store: Store) -> None:
        found = identity.find(folder, nova_folders(conf), host_name(conf), store)
        kept = store.identity(host_name(conf))
        if found is not None and kept and kept != found.uuid:
            raise IdentityError(
                f"{found.place} says that this node is {found.uuid}, the backup says {kept}",
                "restore a backup of this node, or move the store of the other one back",
            )

    with ExitStack() as stack:
        if not options.dry_run:
            stack.enter_context(RunLock(folder))
        before = restore(location, source, of_this_node, dry_run=options.dry_run)
    shown = {
        "store": str(location),
        "file": str(source),
        "before": str(before) if before else None,
        "dry_run": options.dry_run,
    }
    kept = f"; what was there is in {printable(before.name)} now" if before else ""
    file = printable(str(source))
    text = (
        f"{file} can be put in the place of {location}\n"
        if options.dry_run
        else f"{location} is what {file} has{kept}\n"
    )
    return answer(options, RESTORE_SCHEMA, shown, text)


BACKUP_SCHEMA = "compute-node-agent/db-backup/1"


def back_up_store(conf: cfg.ConfigOpts, options: Options) -> int:
    """Copy the store into a file, whether a daemon runs or not. Return the exit code.

    :raises StoreError: there is no store, it cannot be read, or the file cannot be written.
    """
    folder, target = Path(conf.store.path), Path(options.arguments["file"])
    location = locate(folder, conf.store.connection)
    back_up(folder, location, target)
    text = f"{location} as it was a moment ago is in {printable(str(target))}\n"
    return answer(options, BACKUP_SCHEMA, {"store": str(location), "file": str(target)}, text)


SET_ASIDE_SCHEMA = "compute-node-agent/db-set-aside/1"
# The command, and what it does.
WHAT_FOLLOWS = {
    "agent --once --adopt": "takes the tree in Placement over again, by the names of its providers",
    "agent guests import": "records the guests that run here, each with its share of the host",
    "agent --once --dry-run": "names allocations whose guest does not run here; claims whose guest "
    "was not built yet have to be made again",
}


def set_store_aside(conf: cfg.ConfigOpts, options: Options) -> int:
    """Move the database away, also one of an earlier version or a damaged one, so that the next run
    begins with an empty one. Identity and embedded Placement stay. Return the exit code.

    :raises StoreError: a run holds the store, or it is on a database server.
    """
    folder = Path(conf.store.path)
    location = locate(folder, conf.store.connection)
    with RunLock(folder), translate_errors(location, "moved"):
        moved = set_aside(location)
    shown = {
        "store": str(location),
        "folder": str(moved) if moved else None,
        "next": list(WHAT_FOLLOWS) if moved else [],
    }
    steps = "".join(f"  {command}\n    {does}\n" for command, does in WHAT_FOLLOWS.items())
    text = (
        f"what was {location} is in {printable(str(moved))} now; next\n{steps}"
        if moved
        else f"there is no store {location}\n"
    )
    return answer(options, SET_ASIDE_SCHEMA, shown, text)


RUN: Commands = {
    ("db", "upgrade"): upgrade_store,
    ("db", "backup"): back_up_store,
    ("db", "restore"): restore_store,
    ("db", "set-aside"): set_store_aside,
}
