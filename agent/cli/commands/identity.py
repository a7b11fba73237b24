"""``agent identity show`` and ``set``: the uuid by which Placement knows this host's own node."""

import uuid
from collections.abc import Mapping
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
from agent.store.lock import holder
from agent.store.store import open_read_only

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
            "see agent status for them",
        )


RUN: Commands = {
    ("identity", "show"): show_identity,
    ("identity", "set"): set_identity,
}
