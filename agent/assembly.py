"""Puts the parts of a process together: store, lock, identity, Placement, driver; and takes them apart again."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent import driver as drivers
from agent.audit import House
from agent.conf.default import host_name
from agent.desired.policy import Policy
from agent.driver import Driver, HostContext
from agent.driver_worker import DriverWorker
from agent.errors import AgentError, ConfigError, ConfigErrors
from agent.fleet import Fleet
from agent.placement.connect import connect, http, wants_embedded
from agent.placement.embedded import FILE
from agent.placement.mirror import Freshness
from agent.placement.server import Server
from agent.store import identity
from agent.store.lock import RunLock
from agent.store.store import Store, open_read_only, open_store

LOG = logging.getLogger(__name__)

STOP_DEADLINE = 15


@contextmanager
def assembled(conf: cfg.ConfigOpts, cancelled: Event, *, daemon: bool = False, dry_run: bool = False) -> Iterator[Fleet]:
    """The nodes of this host, ready to be audited; everything is closed at the end.

    ``dry_run``: nothing is written, neither to the store nor to disk, and the run lock is not taken.

    :raises AgentError: configuration, store, identity or driver cannot be used.
    """
    folder = Path(conf.store.path)
    host = host_name(conf)
    policy = Policy.from_options(conf)
    name, notes = _driver_name(conf, daemon)
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(RunLock(folder))
        store = stack.enter_context((open_read_only if dry_run else open_store)(folder, conf.store.connection))
        transport, embedded = connect(conf, folder, cancelled, daemon=daemon, dry_run=dry_run)
        if embedded:
            notes.append(f"using the embedded Placement in {folder / FILE}")
        own, provisional = _identity(conf, host, folder, store, dry_run)
        driver = drivers.load(name, conf)
        worker = DriverWorker(name, cancelled=cancelled)
        stack.callback(_stop, driver, worker)
        worker.call(driver.start, HostContext(host, own, folder), deadline=conf.compute.start_deadline)
        house = House(
            Server(transport, "embedded" if embedded else "http", store, keep=not dry_run), driver, worker, policy, host, cancelled,
            conf.compute.facts_deadline, _freshness(conf, daemon),
        )  # fmt: skip
        yield Fleet(house, name, host, conf.compute.workers, provisional=provisional, notice="; ".join(notes))


def check(conf: cfg.ConfigOpts, *, daemon: bool) -> None:
    """Find out whether the configuration can be used, without touching anything.

    :raises ConfigErrors: everything that is wrong with it.
    """
    errors: list[ConfigError] = []
    for look in (
        lambda: Policy.from_options(conf), lambda: drivers.load(_driver_name(conf, daemon)[0], conf),
        lambda: wants_embedded(conf, daemon=daemon) or http(conf, Event()),
    ):  # fmt: skip
        try:
            look()
        except ConfigErrors as several:
            errors += several.errors
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors(errors)


def _freshness(conf: cfg.ConfigOpts, daemon: bool) -> Freshness:
    return Freshness(sharing=conf.compute.resource_provider_association_refresh, reread=conf.placement.full_reread_interval if daemon else 0)


def _driver_name(conf: cfg.ConfigOpts, daemon: bool) -> tuple[str, list[str]]:
    """The driver to use, and what to say about the choice."""
    if conf.compute_driver:
        return drivers.canonical_name(conf.compute_driver), []
    if not daemon:
        return "host", ["no [DEFAULT] compute_driver set: auditing this machine with the driver host"]
    raise ConfigError("[DEFAULT] compute_driver is not set", f"installed drivers: {', '.join(sorted(drivers.available()))}")


def _identity(conf: cfg.ConfigOpts, host: str, folder: Path, store: Store, dry_run: bool) -> tuple[str, bool]:
    """The uuid of this host, and whether it was made up because a dry run may not create one."""
    nova = Path(conf.state_path)
    if not dry_run:
        return identity.establish(folder, nova, host, store), False
    found = identity.find(folder, nova, host, store)
    return (found, False) if found else (str(uuid.uuid4()), True)


def _stop(driver: Driver, worker: DriverWorker) -> None:
    try:
        worker.call(driver.stop, deadline=STOP_DEADLINE)
    except AgentError as error:
        LOG.warning("the driver did not stop: %s", error)
