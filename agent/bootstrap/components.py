"""The components of a process that its configuration alone decides, and the check of that
configuration.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent.api.access import Access
from agent.api.socket_file import METRICS_OPTION, metrics_address
from agent.conf.default import host_is_given, host_name, only_observes
from agent.driver import interface as drivers
from agent.driver.interface import ChecksConfiguration, Driver, HostContext, WarnsOfOptions
from agent.driver.worker import DriverWorker
from agent.errors import AgentError, ConfigError, ConfigErrors, DriverError, StoreError, gathering
from agent.http.nova_api import NovaApi, build_nova_api
from agent.model.names import MAX_PROVIDER_NAME, is_unnamed, printable
from agent.monitors import Monitors, load_monitors
from agent.pci.settings import PciSettings
from agent.placement.transport import Transport, connect_http, uses_embedded
from agent.provider_config.applying import ProviderConfig
from agent.provider_config.reading import load_provider_config
from agent.store.engines import locate
from agent.tree.policy import Policy, option_warnings
from agent.tree.reported_cards import named_twice

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
    nova: NovaApi | None
    """None: nova is not to be asked."""
    notes: tuple[str, ...]
    """What was chosen by default."""
    warnings: tuple[str, ...]
    """Options that do something else than they seem to."""


def build_components(conf: cfg.ConfigOpts, cancelled: Event, *, daemon: bool) -> Components:
    """Build all components that the configuration decides, without touching anything outside the
    process.

    :raises ConfigErrors: everything that is wrong with it.
    :raises DriverError: the driver failed to check it.
    """
    check = check_configuration(conf, cancelled, daemon=daemon)
    if check.components is not None:
        return check.components
    config_errors = [error for error in check.errors if isinstance(error, ConfigError)]
    ConfigErrors.raise_if_any(config_errors)
    raise check.errors[0]


@dataclass(frozen=True, slots=True)
class ConfigurationCheck:
    """Result of checking a configuration."""

    components: Components | None
    """The components; None if there are errors."""
    errors: Sequence[AgentError]


def check_configuration(
    conf: cfg.ConfigOpts, cancelled: Event, *, daemon: bool
) -> ConfigurationCheck:
    """Check the configuration: as :func:`build_components`, but return everything that is wrong
    instead of raising it.
    """
    errors: list[AgentError] = []
    with _gather(errors):
        _check_host(host_name(conf))
    with _gather(errors):
        policy = Policy.from_options(conf)
    with _gather(errors):
        pci = PciSettings.from_options(conf)
    if not errors:
        errors += named_twice(pci.specs, policy.mdev)
    with _gather(errors):
        provider_config = load_provider_config(conf)
    with _gather(errors):
        monitors = Monitors(load_monitors(conf), conf.compute.monitor_deadline, cancelled)
    with _gather(errors):
        Access.from_options(conf)
    with _gather(errors):
        _check_metrics_address(conf)
    with _gather(errors):
        locate(Path(conf.store.path), conf.store.connection)
    with _gather(errors):
        transport = None if uses_embedded(conf, daemon=daemon) else connect_http(conf, cancelled)
        if transport is not None and not only_observes(conf) and not host_is_given(conf):
            _check_named(host_name(conf))
    with _gather(errors):
        nova = build_nova_api(conf)
    with _gather(errors):
        name, notes = _choose_driver(conf, daemon, cancelled)
        driver = drivers.load(conf.compute_driver or name, conf)
        worker = DriverWorker(name, cancelled=cancelled)
        if isinstance(driver, ChecksConfiguration):
            worker.call(driver.check, host_name(conf), deadline=conf.compute.start_deadline)
    if errors:
        return ConfigurationCheck(None, errors)
    warnings = [
        *option_warnings(conf, name, policy, pci),
        *(driver.option_warnings() if isinstance(driver, WarnsOfOptions) else ()),
    ]
    components = Components(
        name,
        driver,
        worker,
        policy,
        pci,
        provider_config,
        monitors,
        transport,
        nova,
        notes,
        tuple(warnings),
    )
    return ConfigurationCheck(components, ())


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
    if printable(name) != name or name.strip() != name:
        raise ConfigError(
            f"[DEFAULT] host = {printable(name)}: it has control characters, or begins or ends "
            "with blanks",
            "give the host's name, on one line",
        )


def _check_named(name: str) -> None:
    """Check that the machine has a name, because a first boot may start the agent before DHCP or
    cloud-init gives it one.

    :raises ConfigError: it has none yet.
    """
    if is_unnamed(name):
        raise ConfigError(
            f"[DEFAULT] host is not set, and this machine is only called {printable(name)}: such a "
            "name is not published",
            "give the machine a name (hostnamectl set-hostname NAME), or set [DEFAULT] host",
        )


def _check_metrics_address(conf: cfg.ConfigOpts) -> None:
    """Check the address of the listener for metrics.

    :raises ConfigError: it is wrong, or there is no local API whose metrics it could show.
    """
    if metrics_address(conf) is not None and not conf.api.socket:
        raise ConfigError(
            f"{METRICS_OPTION} without [api] socket: the figures are those of the local API",
            "set [api] socket too",
        )


@contextmanager
def _gather(errors: list[AgentError]) -> Iterator[None]:
    """Gather the errors of the block: of the configuration, of the store and of the driver."""
    try:
        with gathering(errors):
            yield
    except StoreError as error:
        errors.append(ConfigError(error.message, error.remedy))
    except DriverError as error:
        errors.append(error)


def _choose_driver(
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
        _check_start(DEFAULT_DRIVER, conf, cancelled)
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


def _check_start(name: str, conf: cfg.ConfigOpts, cancelled: Event) -> None:
    """Start the driver and stop it again.

    :raises AgentError: it does not start.
    """
    driver = drivers.load(name, conf)
    worker = DriverWorker(name, cancelled=cancelled)
    try:
        # With a random uuid, because the driver is asked for no node.
        worker.call(
            driver.start,
            HostContext(host_name(conf), str(uuid.uuid4()), Path(conf.store.path), read_only=True),
            deadline=conf.compute.start_deadline,
        )
    finally:
        worker.call(driver.stop, deadline=drivers.STOP_DEADLINE)
