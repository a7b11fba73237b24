"""Builds, starts and closes the components of a process: store, lock, identity, Placement, driver,
fleet.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent.api.access import Access
from agent.api.address import METRICS_OPTION, metrics_address
from agent.audit.fleet import Fleet
from agent.audit.node_audit import AuditContext
from agent.conf.default import host_name
from agent.driver import interface as drivers
from agent.driver.interface import (
    ChecksConfiguration,
    Driver,
    HostContext,
    TellsOfChanges,
    WarnsOfOptions,
)
from agent.driver.worker import DriverWorker
from agent.errors import AgentError, ConfigError, ConfigErrors, DriverError, StoreError
from agent.model.names import MAX_PROVIDER_NAME, printable
from agent.monitors.poll import Monitors, load_monitors
from agent.pci.settings import PciSettings
from agent.placement import clock
from agent.placement.connect import connect_http, uses_embedded
from agent.placement.embedded import FILE, connect_embedded
from agent.placement.mirror import Freshness
from agent.placement.server import Backend, Server
from agent.placement.transport import Transport
from agent.provider_config.entry import ProviderConfig
from agent.provider_config.folder import configured
from agent.store import identity
from agent.store.location import in_file, located
from agent.store.lock import RunLock
from agent.store.records import Records
from agent.store.snapshot import snapshot
from agent.store.store import Store, open_read_only, open_store
from agent.tracker.node_record import Agent
from agent.tracker.reconcile import ReconcileRules
from agent.tracker.services import TrackerServices, build_tracker_services
from agent.tracker.usage_step import DAY, UsageSettings
from agent.tree.option_warnings import option_warnings
from agent.tree.policy import Policy

LOG = logging.getLogger(__name__)

# Seconds that a driver may take to stop: as the interface says, and when the whole agent has to end
# within 5.
STOP_DEADLINE = 15.0
HASTY_STOP_DEADLINE = 1.0
# The driver that a daemon uses if none is configured and this one starts.
DEFAULT_DRIVER = "libvirt"


@dataclass(frozen=True, slots=True)
class Components:
    """The components that follow from the configuration alone."""

    driver_name: str
    driver: Driver
    worker: DriverWorker
    policy: Policy
    pci: PciSettings
    provider_config: ProviderConfig
    monitors: Monitors
    transport: Transport | None
    """None: the embedded Placement."""
    notes: tuple[str, ...]
    """What was chosen by default."""
    warnings: tuple[str, ...]
    """Options that do something else than they seem to."""


@contextmanager
def running_fleet(
    conf: cfg.ConfigOpts, cancelled: Event, *, dry_run: bool = False
) -> Iterator[Fleet]:
    """Yield the nodes of this host, ready to be audited; everything is closed at the end.

    ``dry_run``: nothing is written, neither to the store nor to disk, and the run lock is not
    taken.

    :raises AgentError: configuration, store, identity or driver cannot be used.
    """
    # First, because a configuration that cannot be used must leave no trace.
    parts = build_components(conf, cancelled, daemon=False)
    with (
        open_run_store(conf, dry_run=dry_run) as store,
        start_fleet(conf, parts, store, cancelled, dry_run=dry_run) as fleet,
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
    conf: cfg.ConfigOpts, parts: Components, store: Store, cancelled: Event, *, dry_run: bool
) -> Iterator[bool]:
    """Start the driver of ``parts``, and stop it at the end. Yields whether the uuid of its host
    was generated for this run alone.

    :raises AgentError: identity or driver cannot be used.
    """
    folder, host = Path(conf.store.path), host_name(conf)
    own, provisional = _identity(conf, host, folder, store, dry_run)
    try:
        parts.worker.call(
            parts.driver.start,
            HostContext(host, own, folder, read_only=dry_run),
            deadline=conf.compute.start_deadline,
        )
        yield provisional
    finally:
        _stop(parts, cancelled)


@contextmanager
def open_tracker_services(
    conf: cfg.ConfigOpts,
    parts: Components,
    store: Store,
    *,
    dry_run: bool,
    changed: Callable[[str], None] = lambda _node: None,
) -> Iterator[TrackerServices]:
    """Yield the tracker on the store's records; at the end the leases are released, so that other
    hosts may have the nodes at once. ``changed``: see :func:`start_fleet`.
    """
    rules = ReconcileRules(
        conf.tracker.stranded_after, conf.tracker.count_orphans, conf.tracker.keep_ended * DAY
    )
    settings = UsageSettings(
        Agent(host_name(conf), conf.my_ip, conf.tracker.node_lease),
        parts.policy,
        rules,
        parts.pci.rows,
        parts.pci.misfits,
        parts.pci.aliases,
    )
    records = build_tracker_services(Records(store), settings, clock.now, changed)
    try:
        yield records
    finally:
        if not dry_run:
            _let_go(records)


@contextmanager
def start_fleet(
    conf: cfg.ConfigOpts,
    parts: Components,
    store: Store,
    cancelled: Event,
    *,
    daemon: bool = False,
    dry_run: bool = False,
    changed: Callable[[str], None] = lambda _node: None,
) -> Iterator[Fleet]:
    """Yield the fleet of started components; the driver is stopped at the end.

    ``changed``: called with each node on which something was claimed or released, by its uuid, or
    of which the driver has noticed a change, by a pattern of its name.

    :raises AgentError: identity, driver or the embedded Placement cannot be used.
    """
    for warning in parts.warnings:
        LOG.warning("%s", warning)
    folder, notes = Path(conf.store.path), parts.notes
    transport = parts.transport
    backend: Backend = "http" if transport else "embedded"
    if transport is None:
        transport = embedded_transport(folder, cancelled, dry_run=dry_run)
        notes = (*notes, f"using the embedded Placement in {folder / FILE}")
    with ExitStack() as stack:
        provisional = stack.enter_context(
            start_driver(conf, parts, store, cancelled, dry_run=dry_run)
        )
        if isinstance(parts.driver, TellsOfChanges):
            parts.worker.call(
                parts.driver.subscribe,
                lambda name: changed(escape(name)),
                deadline=conf.compute.start_deadline,
            )
        server = Server(transport, backend, store, keep=not dry_run)
        records = stack.enter_context(
            open_tracker_services(conf, parts, store, dry_run=dry_run, changed=changed)
        )
        context = AuditContext(
            server,
            parts.driver,
            parts.worker,
            parts.policy,
            host_name(conf),
            cancelled,
            conf.compute.facts_deadline,
            _freshness(conf, daemon),
            records,
            parts.provider_config,
            pci=parts.pci,
            nodes_deadline=conf.compute.nodes_deadline,
        )
        yield Fleet(
            context,
            parts.driver_name,
            host_name(conf),
            conf.compute.workers,
            provisional=provisional,
            notice="; ".join(notes),
            full_audit_interval=conf.compute.full_audit_interval,
        )


def build_components(conf: cfg.ConfigOpts, cancelled: Event, *, daemon: bool) -> Components:
    """Build all components that the configuration decides, without touching anything outside the
    process.

    :raises ConfigErrors: everything that is wrong with it.
    :raises DriverError: the driver failed to check it.
    """
    found = check_configuration(conf, cancelled, daemon=daemon)
    if found.parts is not None:
        return found.parts
    wrong = [error for error in found.errors if isinstance(error, ConfigError)]
    if wrong:
        raise ConfigErrors(wrong)
    raise found.errors[0]


@dataclass(frozen=True, slots=True)
class ConfigurationCheck:
    """Result of checking a configuration."""

    parts: Components | None
    """The components; None if there are errors."""
    errors: Sequence[AgentError]


def check_configuration(
    conf: cfg.ConfigOpts, cancelled: Event, *, daemon: bool
) -> ConfigurationCheck:
    """Check the configuration: as :func:`build_components`, but return everything that is wrong
    instead of raising it.
    """
    errors: list[AgentError] = []
    with _gathered(errors):
        _check_host(host_name(conf))
    with _gathered(errors):
        policy = Policy.from_options(conf)
    with _gathered(errors):
        pci = PciSettings.from_options(conf)
    with _gathered(errors):
        provider_config = configured(conf)
    with _gathered(errors):
        monitors = Monitors(load_monitors(conf), conf.compute.monitor_deadline, cancelled)
    with _gathered(errors):
        Access.from_options(conf)
    with _gathered(errors):
        if metrics_address(conf) is not None and not conf.api.socket:
            raise ConfigError(
                f"{METRICS_OPTION} without [api] socket: the figures are those of the local API",
                "set [api] socket too",
            )
    with _gathered(errors):
        located(Path(conf.store.path), conf.store.connection)
    with _gathered(errors):
        transport = None if uses_embedded(conf, daemon=daemon) else connect_http(conf, cancelled)
    with _gathered(errors):
        name, notes = _driver_name(conf, daemon, cancelled)
        driver, worker = (
            drivers.load(conf.compute_driver or name, conf),
            DriverWorker(name, cancelled=cancelled),
        )
        if isinstance(driver, ChecksConfiguration):
            worker.call(driver.check, host_name(conf), deadline=conf.compute.start_deadline)
    if errors:
        return ConfigurationCheck(None, errors)
    warnings = [
        *option_warnings(conf, name, policy, pci),
        *(driver.option_warnings() if isinstance(driver, WarnsOfOptions) else ()),
    ]
    return ConfigurationCheck(
        Components(
            name,
            driver,
            worker,
            policy,
            pci,
            provider_config,
            monitors,
            transport,
            notes,
            tuple(warnings),
        ),
        (),
    )


def _check_host(name: str) -> None:
    """Check the host's name, because it becomes the name of a provider.

    :raises ConfigError: Placement cannot take it.
    """
    if not 1 <= len(name) <= MAX_PROVIDER_NAME:
        what = (
            f"[DEFAULT] host = {printable(name[:60])}...: it has {len(name)} characters, "
            f"Placement takes 1 to {MAX_PROVIDER_NAME}"
        )
        raise ConfigError(what, "give the host's name")
    if printable(name) != name:
        raise ConfigError(
            f"[DEFAULT] host = {printable(name)}: it has control characters",
            "give the host's name, on one line",
        )


@contextmanager
def _gathered(errors: list[AgentError]) -> Iterator[None]:
    """Collect the configuration errors of the block, instead of ending at the first one."""
    try:
        yield
    except ConfigErrors as several:
        errors += several.errors
    except ConfigError as error:
        errors.append(error)
    except StoreError as error:
        errors.append(ConfigError(error.message, error.remedy))
    except DriverError as error:
        errors.append(error)


def _freshness(conf: cfg.ConfigOpts, daemon: bool) -> Freshness:
    return Freshness(
        sharing=conf.compute.resource_provider_association_refresh,
        reread=conf.placement.full_reread_interval if daemon else 0,
        consumers=conf.placement.consumers_refresh,
    )


def _driver_name(
    conf: cfg.ConfigOpts, daemon: bool, cancelled: Event
) -> tuple[str, tuple[str, ...]]:
    """Return the name of the driver to use, and notes about the choice.

    :raises ConfigError: a daemon has none configured, and the default driver does not start.
    """
    if conf.compute_driver:
        return drivers.canonical_name(conf.compute_driver), ()
    if not daemon:
        return "host", (
            "no [DEFAULT] compute_driver set: auditing this machine with the driver host",
        )
    try:
        _try(DEFAULT_DRIVER, conf, cancelled)
    except AgentError as error:
        what = (
            f"[DEFAULT] compute_driver is not set, and {DEFAULT_DRIVER} cannot be used: "
            f"{error.message}"
        )
        raise ConfigError(
            what, f"set it; installed drivers: {', '.join(sorted(drivers.available()))}"
        ) from error
    return DEFAULT_DRIVER, (
        f"no [DEFAULT] compute_driver set: using {DEFAULT_DRIVER}, which answers",
    )


def _try(name: str, conf: cfg.ConfigOpts, cancelled: Event) -> None:
    """Start the driver and stop it again.

    :raises AgentError: it does not start.
    """
    driver, worker = drivers.load(name, conf), DriverWorker(name, cancelled=cancelled)
    try:
        # With a random uuid, because the driver is asked for no node.
        worker.call(
            driver.start,
            HostContext(host_name(conf), str(uuid.uuid4()), Path(conf.store.path), read_only=True),
            deadline=conf.compute.start_deadline,
        )
    finally:
        worker.call(driver.stop, deadline=STOP_DEADLINE)


def embedded_transport(folder: Path, cancelled: Event, *, dry_run: bool) -> Transport:
    """Return a transport to the embedded Placement of a store's folder; in a dry run, to a copy of
    it in memory.

    :raises ConfigError, StoreError: it cannot be used.
    """
    copy = partial(snapshot, folder, in_file(folder / FILE, "[store] path"))
    return connect_embedded(folder, cancelled, copy if dry_run else None)


def _identity(
    conf: cfg.ConfigOpts, host: str, folder: Path, store: Store, dry_run: bool
) -> tuple[str, bool]:
    """Return the uuid of this host, and whether it was generated because a dry run may not create
    one.
    """
    nova = Path(conf.state_path)
    if not dry_run:
        return identity.establish(folder, nova, host, store), False
    found = identity.find(folder, nova, host, store)
    return (found, False) if found else (str(uuid.uuid4()), True)


def _let_go(records: TrackerServices) -> None:
    """Release the leases, so that another host may take over the nodes at once. If this fails, the
    other host has to wait for their end.
    """
    failure = ""
    try:
        records.node_leases.release()
        records.shared_lease.release()
    except AgentError as error:
        failure = str(error)
    if failure:
        LOG.warning("the leases of this host's nodes could not be ended: %s", failure)


def _stop(parts: Components, cancelled: Event) -> None:
    # With a worker of its own, because the fleet's worker makes no more calls once the agent is
    # stopping.
    worker, failure = DriverWorker(parts.driver_name), ""
    try:
        worker.call(
            parts.driver.stop, deadline=HASTY_STOP_DEADLINE if cancelled.is_set() else STOP_DEADLINE
        )
    except AgentError as error:
        failure = str(error)
    # Outside of the except block, because oslo.log adds the exception being handled to every
    # warning, a second time.
    if failure:
        LOG.warning("the driver did not stop: %s", failure)
