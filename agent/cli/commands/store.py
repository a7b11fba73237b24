"""``agent db`` and ``agent identity``: the store of this host, and the uuid of its only node."""

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.daemon_client import from_daemon
from agent.cli.output import answer
from agent.conf.default import host_name, nova_folders
from agent.deadline import within
from agent.driver import interface as drivers
from agent.driver.interface import NeedsLease
from agent.errors import AgentError, IdentityError
from agent.model.names import ProviderUuid, is_uuid, normal_uuid, printable
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import connect_http, uses_embedded
from agent.store import identity
from agent.store.backup import back_up, restore
from agent.store.database_file import set_aside
from agent.store.engines import locate
from agent.store.lock import RunLock, holder
from agent.store.store import Store, open_read_only, open_store
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


ORIGINS: Mapping[identity.Source, str] = {
    "nova": "nova's compute_id",
    "store": "the agent's store",
    "proposed": "made up by the agent, until Placement shows the node with it",
}
SHOW_SCHEMA = "compute-node-agent/identity/1"
SET_SCHEMA = "compute-node-agent/identity-set/1"
# Seconds in which Placement has to answer, because a uuid can be set while it is away.
ASKED = 10.0


def show_identity(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the identity and where it comes from; creates none. Return the exit code.

    :raises IdentityError: there is no identity yet, or a file is damaged.
    :raises StoreError: the store cannot be read.
    """
    _check_driver(conf)
    folder, host = Path(conf.store.path), host_name(conf)
    with open_read_only(folder, conf.store.connection) as store:
        found = identity.find(folder, nova_folders(conf), host, store)
    if found is None:
        raise IdentityError(
            f"[store] path {folder}: host {host} has no identity yet",
            "make one: agent --once; if the host had one and lost it, find it: openstack resource "
            f"provider list --name {printable(host)}; and set it: agent identity set UUID",
        )
    shown = {"host": host, "uuid": found.uuid, "source": found.source, "place": found.place}
    text = f"{found.uuid}\n{ORIGINS[found.source]}: {found.place}\n"
    return answer(options, SHOW_SCHEMA, shown, text)


def set_identity(conf: cfg.ConfigOpts, options: Options) -> int:
    """Have this host be the node with the given uuid, also while the daemon runs, which then
    reloads; and while Placement is away. Return the exit code.

    :raises IdentityError: it is no uuid, it is that of a provider below another one, or nova's
        ``compute_id`` says otherwise.
    :raises StoreError: the file cannot be written.
    :raises ApiProblem, ApiUnreachable: the daemon runs, and does not reload.
    """
    given = options.arguments["uuid"]
    if not is_uuid(given):
        raise IdentityError(f"{printable(given)!r} is no uuid", "give the uuid that Placement has")
    _check_driver(conf)
    folder, wanted = Path(conf.store.path), normal_uuid(given)
    novas = identity.nova_identity(folder, nova_folders(conf))
    if novas is not None and novas[0] != wanted:
        raise IdentityError(
            f"{novas[2]} says that this node is {novas[0]}, for nova-compute too",
            f"write {wanted} into that file",
        )
    seen = _in_placement(conf, wanted)
    former = identity.save(folder, wanted)
    status = from_daemon(conf, lambda daemon: daemon.reload())
    run = None if status is not None else holder(folder)
    then = (
        f"the daemon reloaded; {printable(status)}"
        if status is not None
        else "the next run uses it"
        if run is None
        else f"process {run} has the store, and uses it once it is restarted"
    )
    was = f", no longer {former}" if former not in (None, wanted) else ""
    document = {"host": host_name(conf), "uuid": wanted, "status": status}
    text = f"{host_name(conf)} is {wanted}{was}; {then}\n{seen}\n"
    return answer(options, SET_SCHEMA, document, text)


def _in_placement(conf: cfg.ConfigOpts, wanted: ProviderUuid) -> str:
    """Return what Placement has with the uuid, as a sentence.

    :raises IdentityError: a provider below another one.
    """
    try:
        if uses_embedded(conf, daemon=False):
            return "the embedded Placement was not asked about it"
        client = PlacementClient(Exchange(connect_http(conf, Event()), f"req-{uuid.uuid4()}"))
        with within(ASKED):
            rows = client.tree(wanted)
    except AgentError as error:
        return f"Placement was not asked about it: {error.message}"
    root = next((row for row in rows if row.parent_uuid is None), None)
    if root is None:
        return "Placement has no provider with it yet"
    name = printable(root.name)
    if root.uuid != wanted:
        raise IdentityError(
            f"{wanted} is no host in Placement, but below provider {root.uuid}, {name!r}",
            f"if this host is that provider: agent identity set {root.uuid}",
        )
    if name == host_name(conf):
        return f"Placement has it as {name!r}"
    return f"Placement has it as {name!r}; if the host was renamed: agent identity rename"


def _check_driver(conf: cfg.ConfigOpts) -> None:
    """Check that the node of this host has a uuid of the host.

    :raises IdentityError: the uuids of its nodes are those of the backend.
    :raises ConfigError: the driver cannot be loaded.
    """
    name = conf.compute_driver
    if name and isinstance(drivers.load(name, conf), NeedsLease):
        raise IdentityError(
            f"the nodes of driver {printable(name)} have the uuids of its backend",
            "see them: agent status",
        )


RUN: Commands = {
    ("db", "upgrade"): upgrade_store,
    ("db", "backup"): back_up_store,
    ("db", "restore"): restore_store,
    ("db", "set-aside"): set_store_aside,
    ("identity", "show"): show_identity,
    ("identity", "set"): set_identity,
}
