"""A hypervisor managed by libvirt: QEMU guests, and the host as libvirtd reports it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import get_args

from oslo_config import cfg

from agent.driver.interface import HostContext, kernel_warnings
from agent.driver.worker import DriverWorker
from agent.errors import AgentError, ConfigError, ConfigErrors, DriverError, NotReady, gathering
from agent.model.devices import AssignableUnit
from agent.model.facts import HostFacts, Section, Topology
from agent.model.names import is_unnamed, printable
from drivers.libvirt.binding import Events, binding
from drivers.libvirt.capabilities import has_same_cores, read_topology, write_topology
from drivers.libvirt.collector import Collector, ask_capabilities, ask_models
from drivers.libvirt.connection import CAPABILITIES, CHEAP, LibvirtConnection, Session
from drivers.libvirt.facts import QEMU, facts_of
from drivers.libvirt.host import Namespace, configured_namespaces, read_units
from drivers.libvirt.settings import LibvirtSettings, option_warnings
from drivers.libvirt.traits import compute_capabilities

OLDEST_LIBVIRT, OLDEST_QEMU = (8, 0, 0), (6, 2, 0)
# How long a guest that stopped may stay away before it is reported, in seconds; see
# :class:`Events`.
REBOOT = 15.0
LATE = "see whether libvirtd, or what the host has its disks on, still answers"


@dataclass(frozen=True, slots=True)
class _Started:
    """State from a start of the driver to its stop."""

    host: HostContext
    node: str
    """The node's name: the host's name in libvirt."""
    connection: LibvirtConnection
    events: Events


def _host_name(connection: LibvirtConnection) -> str:
    return connection.session().ask("getHostname", lambda handle: str(handle.getHostname()), CHEAP)


class LibvirtDriver:
    """The hypervisor behind ``[libvirt] connection_uri``.

    One node, called as libvirt calls the host, with the identity of the host as its uuid. The node
    is known from the first contact on; while libvirt does not answer, every section of its facts is
    incomplete, so that the last good values stay.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        binding()
        self._settings, self._pmem = _from_options(conf)
        self._excluded_images: list[str] = conf.compute.image_type_exclude_list
        self._warnings = tuple(option_warnings(conf))
        # One worker each, so that a hanging disk does not block the calls to libvirt.
        self._libvirt, self._disk, self._ndctl = self._workers = tuple(
            DriverWorker("libvirt", late=LATE) for _ in range(3)
        )
        self._collector = Collector(self._settings, self._disk)
        self._changed: Callable[[str], None] = lambda _node: None
        self._capabilities: Mapping[str, bool] = {}
        self._started: _Started | None = None
        # As last seen, because libvirt does not report the cores of offline CPUs.
        self._topology: Topology | None = None
        # As last read, by which the guests that have them are known also while ndctl fails.
        self._namespaces: tuple[AssignableUnit, ...] = ()

    @property
    def hanging(self) -> int:
        """See :class:`agent.driver.interface.CountsHangingCalls`."""
        return sum(worker.stuck for worker in self._workers)

    def start(self, host: HostContext) -> None:
        """Connect, and check that the host has what the options describe; see
        :class:`agent.driver.interface.Driver`.
        """
        events = Events(self._notify, REBOOT)
        connection = LibvirtConnection(
            self._settings.uri, self._libvirt, events.subscribe, self._verify, self._notify
        )
        try:
            node = _host_name(connection)
            self._namespaces = self._units()
        except BaseException:
            connection.close()
            events.close()
            raise
        self._started = _Started(host, node, connection, events)
        if self._settings.power_managed_cpus:
            self._topology = read_topology(host.state_path)

    def stop(self) -> None:
        """Close the connection, without waiting for libvirtd."""
        started, self._started = self._started, None
        if started is not None:
            started.events.close()
            started.connection.close()

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Report guests and devices that come and go, and a lost connection; see
        :class:`agent.driver.interface.TellsOfChanges`.
        """
        self._changed = changed

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return the hypervisor, also while libvirt does not answer: an outage does not remove the
        node. As long as libvirt has no name for it, libvirt is asked again.
        """
        started = self._require_start()
        if refresh and is_unnamed(started.node):
            with suppress(DriverError):
                started = replace(started, node=_host_name(started.connection))
                self._started = started
        return {started.host.identity: started.node}

    def facts(self, name: str) -> HostFacts:
        """Return the hypervisor's facts as of now; see :class:`agent.driver.interface.Driver`."""
        started = self._require_start()
        if name != started.node:
            raise DriverError(
                f"driver libvirt: no node '{printable(name)}'",
                f"the only node is {started.node!r}, as libvirt calls this host",
            )
        taken_at = time.time()
        try:
            answers = self._collector.ask(started.connection.session())
        except (DriverError, ConfigError) as error:
            return HostFacts(
                name, taken_at, QEMU, incomplete=dict.fromkeys(get_args(Section), error.message)
            )
        settings = self._settings
        incomplete: dict[Section, str] = {}
        try:
            self._namespaces = self._units()
        except AgentError as error:
            incomplete = {"units": error.message}
        self._capabilities = compute_capabilities(
            answers,
            self._excluded_images,
            file_backed_memory=settings.file_backed_memory > 0,
            raw_images_only=settings.raw_images_only,
        )
        found = facts_of(
            answers,
            name,
            taken_at,
            cpu_flags=settings.cpu_flags,
            vtpm=settings.vtpm,
            tpm_secrets=settings.tpm_secrets,
            file_backed_memory_mib=settings.file_backed_memory,
            power_managed_cpus=settings.power_managed_cpus,
            before=self._topology,
            units=self._namespaces,
        )
        found = replace(found, incomplete={**found.incomplete, **incomplete})
        self._remember(found, started.host)
        return found

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities as of the last facts; see
        :class:`agent.driver.interface.ReportsCapabilities`.
        """
        return self._capabilities

    def option_warnings(self) -> Sequence[str]:
        """Return warnings; see :class:`agent.driver.interface.WarnsOfOptions`."""
        return (*self._warnings, *kernel_warnings(self._settings.sysfs))

    def is_node_deleted(self, name: str) -> bool:  # noqa: ARG002 -- a hypervisor knows of no other
        """Return False: the only hypervisor that could answer exists, and it knows of no other
        node.
        """
        return False

    def _require_start(self) -> _Started:
        if self._started is None:
            raise NotReady("driver libvirt: not started")
        return self._started

    def _remember(self, facts: HostFacts, host: HostContext) -> None:
        """Remember the topology; in the state folder too where CPUs may go offline."""
        if facts.numa is None or not (facts.complete("numa") and facts.complete("cpu")):
            return
        before, self._topology = self._topology, facts.numa
        if (
            self._settings.power_managed_cpus
            and not host.read_only
            and not (before is not None and has_same_cores(before, facts.numa))
        ):
            write_topology(host.state_path, facts.numa)

    def _verify(self, session: Session) -> None:
        """Check a new connection.

        :raises ConfigError: libvirt or QEMU is too old, or knows none of the operator's CPU models.
        """
        capabilities = ask_capabilities(session)
        _verify_versions(session)
        ask_models(session, capabilities, self._settings)

    def _notify(self) -> None:
        if self._started is not None:
            self._changed(self._started.node)

    def _units(self) -> tuple[AssignableUnit, ...]:
        return self._ndctl.call(read_units, self._pmem, deadline=CAPABILITIES) if self._pmem else ()


def _from_options(conf: cfg.ConfigOpts) -> tuple[LibvirtSettings, tuple[Namespace, ...]]:
    """Return the settings and the namespaces of persistent memory.

    :raises ConfigErrors: everything that is wrong with the options.
    """
    errors: list[ConfigError] = []
    with gathering(errors):
        settings = LibvirtSettings.from_options(conf)
    with gathering(errors):
        namespaces = configured_namespaces(conf.libvirt.pmem_namespaces)
    ConfigErrors.raise_if_any(errors)
    return settings, namespaces


def _verify_versions(session: Session) -> None:
    """Check the versions of libvirt and QEMU.

    :raises ConfigError: one of them is too old.
    """
    version, hypervisor, kind = session.ask(
        "asking for versions",
        lambda handle: (handle.getLibVersion(), handle.getVersion(), handle.getType()),
        CHEAP,
    )
    checked = [("libvirt", version, OLDEST_LIBVIRT)] + (
        [(QEMU, hypervisor, OLDEST_QEMU)] if kind == QEMU else []
    )
    for name, found, oldest in checked:
        has = (found // 1_000_000, found // 1_000 % 1_000, found % 1_000)
        if has < oldest:
            shown, needed = (".".join(map(str, numbers)) for numbers in (has, oldest))
            raise ConfigError(
                f"{name} {shown} is too old for the driver libvirt",
                f"install {name} {needed} or newer",
            )
