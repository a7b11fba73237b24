"""Opens the store, starts the driver, and builds the fleet; closes them at the end."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from glob import escape
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent.audit.context import AuditContext
from agent.audit.fleet import Fleet
from agent.bootstrap.components import Components, build_components
from agent.conf.default import host_name, nova_folders, only_observes
from agent.driver.interface import STOP_DEADLINE, HostContext, NeedsLease, TellsOfChanges
from agent.driver.worker import DriverWorker
from agent.errors import AgentError
from agent.placement import clock
from agent.placement.embedded import FILE, connect_embedded, name_embedded
from agent.placement.mirror import Freshness
from agent.placement.server import Backend, OptionalStorage, Server
from agent.placement.transport import Transport, timeouts_of
from agent.store import identity
from agent.store.database_file import snapshot
from agent.store.engines import in_file
from agent.store.identity import HostIdentity
from agent.store.lock import RunLock
from agent.store.records import Records
from agent.store.store import Store, open_read_only, open_store
from agent.tracker.node_record import Agent
from agent.tracker.reconcile import ReconcileRules
from agent.tracker.tracker import TrackerServices, build_tracker_services
from agent.tracker.usage_step import DAY, UsageSettings

LOG = logging.getLogger(__name__)

# Seconds that a driver may take to stop when the whole agent has to end within 5.
HASTY_STOP_DEADLINE = 1.0


@contextmanager
def running_fleet(
    conf: cfg.ConfigOpts, cancelled: Event, *, dry_run: bool = False, gives_back: bool = False
) -> Iterator[Fleet]:
    """Yield the nodes of this host, ready to be audited; everything is closed at the end.

    ``dry_run``: nothing is written, neither to the store nor to disk, and the run lock is not
    taken. ``gives_back``: the trees are left to nova-compute.

    :raises AgentError: configuration, store, identity or driver cannot be used.
    """
    # First, because a configuration that cannot be used must leave no trace.
    components = build_components(conf, cancelled, daemon=False)
    with (
        open_run_store(conf, dry_run=dry_run) as store,
        start_fleet(
            conf, components, store, cancelled, dry_run=dry_run, gives_back=gives_back
        ) as fleet,
    ):
        yield fleet


@contextmanager
def open_run_store(conf: cfg.ConfigOpts, *, dry_run: bool = False) -> Iterator[Store]:
    """Yield the store, locked for this run.

    :raises StoreError: another run has it, or it cannot be used.
    """
    folder = Path(conf.store.path)
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(RunLock(folder))
        yield stack.enter_context(
            (open_read_only if dry_run else open_store)(folder, conf.store.connection)
        )


@contextmanager
def start_driver(
    conf: cfg.ConfigOpts, components: Components, store: Store, cancelled: Event, *, dry_run: bool
) -> Iterator[HostIdentity | None]:
    """Start the driver, and stop it at the end. Yields the identity of this host; None if the uuids
    of its nodes are those of a backend that other hosts see too.

    :raises AgentError: identity or driver cannot be used.
    """
    folder, host = Path(conf.store.path), host_name(conf)
    own = (
        None
        if isinstance(components.driver, NeedsLease)
        else _host_identity(conf, host, folder, store, dry_run)
    )
    try:
        components.worker.call(
            components.driver.start,
            HostContext(host, own.uuid if own else "", folder, read_only=dry_run),
            deadline=conf.compute.start_deadline,
        )
        yield own
    finally:
        _stop_driver(components, cancelled)


@contextmanager
def open_tracker_services(
    conf: cfg.ConfigOpts,
    components: Components,
    store: Store,
    own: HostIdentity | None,
    *,
    dry_run: bool,
    changed: Callable[[str], None] = lambda _node: None,
) -> Iterator[TrackerServices]:
    """Yield the tracker on the store's records; at the end the leases are released, so that other
    hosts may have the nodes at once. ``own``: the identity of this host. ``changed``: see
    :func:`start_fleet`.
    """
    rules = ReconcileRules(
        conf.tracker.stranded_after, conf.tracker.count_orphans, conf.tracker.keep_ended * DAY
    )
    settings = UsageSettings(
        Agent(host_name(conf), conf.my_ip, conf.tracker.node_lease, own.uuid if own else None),
        components.policy,
        rules,
        components.pci.rows,
        components.pci.misfits,
        components.pci.aliases,
        observes=only_observes(conf),
    )
    tracker_services = build_tracker_services(
        Records(store, clock.now), settings, clock.now, changed
    )
    try:
        yield tracker_services
    finally:
        if not dry_run:
            _release_leases(tracker_services)


@contextmanager
def start_fleet(
    conf: cfg.ConfigOpts,
    components: Components,
    store: Store,
    cancelled: Event,
    *,
    daemon: bool = False,
    dry_run: bool = False,
    gives_back: bool = False,
    changed: Callable[[str], None] = lambda _node: None,
) -> Iterator[Fleet]:
    """Yield the fleet of started components; the driver is stopped at the end.

    ``changed``: called with each node on which something was claimed or released, by its uuid, or
    of which the driver has noticed a change, by a pattern of its name.

    :raises AgentError: identity, driver or the embedded Placement cannot be used.
    """
    for warning in components.warnings:
        LOG.warning("%s", warning)
    folder, notes = Path(conf.store.path), components.notes
    transport = components.transport
    backend: Backend = "http" if transport else "embedded"
    if transport is None:
        notes = (*notes, name_embedded(folder))
        transport = embedded_transport(conf, cancelled, dry_run=dry_run)
    with ExitStack() as stack:
        own = stack.enter_context(start_driver(conf, components, store, cancelled, dry_run=dry_run))
        _subscribe(conf, components, changed)
        observes = only_observes(conf)
        storage = OptionalStorage() if observes else store
        server = Server(transport, backend, storage, keep=not (dry_run or observes))
        tracker_services = stack.enter_context(
            open_tracker_services(conf, components, store, own, dry_run=dry_run, changed=changed)
        )
        context = AuditContext(
            server,
            components.driver,
            components.worker,
            components.policy,
            host_name(conf),
            cancelled,
            tracker_services,
            facts_deadline=conf.compute.facts_deadline,
            freshness=_freshness(conf, daemon),
            provider_config=components.provider_config,
            pci=components.pci,
            nodes_deadline=conf.compute.nodes_deadline,
            observes=observes,
            gives_back=gives_back,
            nova=components.nova if observes else None,
            identity=own,
        )
        yield Fleet(
            context,
            components.driver_name,
            host_name(conf),
            conf.compute.workers,
            notice="; ".join(notes),
            full_audit_interval=conf.compute.full_audit_interval,
        )


def _subscribe(
    conf: cfg.ConfigOpts, components: Components, changed: Callable[[str], None]
) -> None:
    """Have the driver report the nodes that change, if it can."""
    if isinstance(components.driver, TellsOfChanges):
        components.worker.call(
            components.driver.subscribe,
            lambda name: changed(escape(name)),
            deadline=conf.compute.start_deadline,
        )


def _freshness(conf: cfg.ConfigOpts, daemon: bool) -> Freshness:
    return Freshness(
        sharing=conf.compute.resource_provider_association_refresh,
        reread=conf.placement.full_reread_interval if daemon else 0,
        consumers=conf.placement.consumers_refresh,
    )


def embedded_transport(conf: cfg.ConfigOpts, cancelled: Event, *, dry_run: bool) -> Transport:
    """Return a transport to the embedded Placement of the store's folder; in a dry run, to a copy
    of it in memory.

    :raises ConfigError, StoreError: it cannot be used.
    """
    folder = Path(conf.store.path)
    copy = partial(snapshot, folder, in_file(folder / FILE, "[store] path"))
    return connect_embedded(folder, cancelled, copy if dry_run else None, timeouts_of(conf))


def _host_identity(
    conf: cfg.ConfigOpts, host: str, folder: Path, store: Store, dry_run: bool
) -> HostIdentity:
    """Return the identity of this host; a dry run saves none, and makes one up if there is none."""
    folders = nova_folders(conf)
    if not dry_run:
        return identity.establish(folder, folders, host, store)
    return identity.find(folder, folders, host, store) or identity.made_up(folder, host, store)


def _release_leases(tracker_services: TrackerServices) -> None:
    """Release the leases, so that another host may take over the nodes at once. If this fails, the
    other host has to wait for their end.
    """
    failure = ""
    try:
        tracker_services.node_leases.release()
        tracker_services.shared_lease.release()
    except AgentError as error:
        failure = str(error)
    if failure:
        LOG.warning("the leases of this host's nodes could not be ended: %s", failure)


def _stop_driver(components: Components, cancelled: Event) -> None:
    # With a worker of its own, because the fleet's worker makes no more calls once the agent is
    # stopping.
    worker, failure = DriverWorker(components.driver_name), ""
    deadline = HASTY_STOP_DEADLINE if cancelled.is_set() else STOP_DEADLINE
    try:
        worker.call(components.driver.stop, deadline=deadline)
    except AgentError as error:
        failure = str(error)
    # Outside of the except block, because oslo.log adds the exception being handled to every
    # warning, a second time.
    if failure:
        LOG.warning("the driver did not stop: %s", failure)
