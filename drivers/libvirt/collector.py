"""Collects the raw answers of libvirt and the kernel for one snapshot of the host."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, TypeVar

from agent.driver.worker import DriverWorker
from agent.errors import ConfigError, DriverError, DriverTimeout, NotReady
from agent.model.facts import DomainState, Section
from agent.model.names import printable
from drivers.libvirt.binding import Handle, LibvirtRefused, as_driver_error, binding
from drivers.libvirt.connection import CAPABILITIES, CHEAP, LISTING, Session
from drivers.libvirt.host import (
    ask_cpus,
    ask_kernel,
    ask_ports,
    read_disk_gib,
    read_image_cache_gib,
)
from drivers.libvirt.raw_capabilities import (
    DeviceAnswer,
    DomainAnswer,
    EmulatedMachine,
    KernelCpus,
    RawCapabilities,
    capability_queries,
    host_architecture,
)
from drivers.libvirt.settings import LibvirtSettings

DEVICES: tuple[Section, ...] = ("pci", "mdev")
NO_NODE_DEVICES = (
    "libvirtd lists no devices, because it runs without its node device driver: install "
    "libvirt_driver_nodedev.so (often the package libvirt-daemon-driver-nodedev) and restart "
    "libvirtd"
)

T = TypeVar("T")
Faults = dict[Section, tuple[str, ...]]
Listed = tuple[tuple[Any, ...], tuple[str, ...]]
"""The objects listed, and the faults of those that could not be read."""


HypervisorAbilities = tuple[tuple[str, ...], Mapping[tuple[str, str], str]]
"""Answers that change only with libvirt, QEMU or the CPU: the expanded CPUs, and the domain
capabilities by architecture and machine.
"""
Key = tuple[int, int, str]
"""The version of libvirt, that of the hypervisor, and a hash of the capabilities."""


class Collector:
    """Queries libvirt and the kernel.

    ``disk``: the worker that reads the disk; apart from libvirt's, because either may hang alone.
    """

    def __init__(self, settings: LibvirtSettings, disk: DriverWorker) -> None:
        self._settings, self._disk = settings, disk
        self._lock = Lock()
        self._known: tuple[Session, Key, HypervisorAbilities] | None = None

    def ask(self, session: Session) -> RawCapabilities:
        """Return all answers. What cannot be asked is among the faults.

        :raises NotReady: the connection is broken.
        :raises DriverError: not even the essential answers can be had.
        """
        faults: Faults = {}
        capabilities = ask_capabilities(session)
        basics = session.ask(
            "asking for versions, memory and CPUs",
            lambda handle: ask_basics(handle, capabilities),
            CHEAP,
        )
        expanded, domain_capabilities = self._abilities(session, basics, faults)
        devices = _list_or_fault(
            faults, DEVICES, lambda: session.ask("listing the devices", list_devices, LISTING)
        )
        domains = _list_or_fault(
            faults, ("domains",), lambda: session.ask("listing the guests", list_domains, LISTING)
        )
        place = self._settings.disk
        disk = _answer_or_fault(
            faults, "disk", lambda: self._disk.call(read_disk_gib, place, deadline=CAPABILITIES)
        )
        cache = (
            _answer_or_fault(
                faults,
                "disk",
                lambda: self._disk.call(read_image_cache_gib, place, deadline=CAPABILITIES),
            )
            if disk is not None
            else None
        )
        kernel = _answer_or_fault(faults, "encryption", lambda: ask_kernel(self._settings.sysfs))
        # libvirt writes this text itself, always in this form.
        without_cells = "<cell id=" not in capabilities
        cpus = (
            ask_cpus(self._settings.sysfs)
            if self._settings.power_managed_cpus or without_cells
            else KernelCpus()
        )
        return replace(
            basics,
            expanded=expanded,
            domain_capabilities=domain_capabilities,
            devices=devices,
            domains=domains,
            disk_gib=disk,
            kernel_cpus=cpus,
            ports=ask_ports(self._settings.sysfs),
            disk_shared=place.kind == "rbd",
            image_cache_gib=cache or 0,
            kernel=kernel or basics.kernel,
            faults=faults,
        )

    def _abilities(
        self, session: Session, basics: RawCapabilities, faults: Faults
    ) -> HypervisorAbilities:
        """Return the abilities; without queries if nothing has changed since this connection last
        gave them.
        """
        key = (
            basics.libvirt_version,
            basics.hypervisor_version,
            hashlib.sha256(basics.capabilities.encode()).hexdigest(),
        )
        with self._lock:
            if self._known is not None and self._known[:2] == (session, key):
                return self._known[2]
        found = _answer_or_fault(
            faults, "traits", lambda: _ask_abilities(session, basics.capabilities, self._settings)
        )
        if found is None:
            return (), {}
        with self._lock:
            self._known = (session, key, found)
        return found


def ask_capabilities(session: Session) -> str:
    """Return the capabilities. They are asked before the version of QEMU, because only they make
    libvirtd look anew for a QEMU that it did not find as it started.
    """
    return session.ask(
        "getCapabilities", lambda handle: str(handle.getCapabilities()), CAPABILITIES
    )


def ask_models(session: Session, capabilities: str, settings: LibvirtSettings) -> tuple[str, ...]:
    """Return the operator's CPU models as libvirt writes them; the option may have them in upper or
    lower case.

    :raises ConfigError: libvirt knows no such model.
    """
    if not settings.cpu_models:
        return ()
    architecture = host_architecture(capabilities)
    known = _answer_if_supported(
        "getCPUModelNames",
        session,
        lambda handle: tuple(map(str, handle.getCPUModelNames(architecture))),
    )
    if not known:
        # For an architecture without such a list any model may be right.
        return settings.cpu_models
    names = {model.lower(): model for model in known}
    if unknown := [model for model in settings.cpu_models if model.lower() not in names]:
        what = printable(
            f"[libvirt] cpu_models: libvirt knows no {', '.join(unknown)} on {architecture}"
        )
        raise ConfigError(what, f"it knows {', '.join(sorted(known))}")
    return tuple(names[model.lower()] for model in settings.cpu_models)


def _ask_abilities(
    session: Session, capabilities: str, settings: LibvirtSettings
) -> HypervisorAbilities:
    """Query the expanded CPUs and the domain capabilities."""
    queries = capability_queries(
        capabilities, replace(settings, cpu_models=ask_models(session, capabilities, settings))
    )

    def expand(handle: Handle) -> tuple[str, ...]:
        return tuple(
            handle.baselineCPU([cpu], binding().VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
            for cpu in queries.cpus
        )

    expanded = _answer_if_supported("baselineCPU", session, expand)
    described = (
        (machine, _description(session, machine, settings.virt_type))
        for machine in queries.machines
    )
    return (
        expanded or (),
        {(machine.architecture, machine.name or ""): xml for machine, xml in described if xml},
    )


def _description(session: Session, machine: EmulatedMachine, virt_type: str) -> str | None:
    def describe(handle: Handle) -> str:
        return str(
            handle.getDomainCapabilities(
                machine.emulator, machine.architecture, machine.name, virt_type, 0
            )
        )

    return _answer_if_supported(
        f"getDomainCapabilities of {machine.architecture} {machine.name or 'by default'}",
        session,
        describe,
    )


def _answer_if_supported(what: str, session: Session, question: Callable[[Handle], T]) -> T | None:
    """Return the answer; None from a backend that does not support the query."""
    try:
        return session.ask(what, question, CAPABILITIES)
    except LibvirtRefused as error:
        if error.number != binding().VIR_ERR_NO_SUPPORT:
            raise
        return None


def _answer_or_fault(faults: Faults, section: Section, ask: Callable[[], T]) -> T | None:
    """Return the answer; None if there is none, with the reason as a fault of the section.

    :raises NotReady: libvirtd is gone, so further queries are useless.
    """
    try:
        return ask()
    except NotReady:
        raise
    except DriverError as error:
        faults[section] = (error.message,)
        return None


def _list_or_fault(
    faults: Faults, sections: tuple[Section, ...], ask: Callable[[], Listed]
) -> tuple[Any, ...] | None:
    """Return what was listed; None if the listing failed."""
    try:
        found, unreadable = ask()
    except (LibvirtRefused, DriverTimeout) as error:
        found, unreadable = None, (error.message,)
    faults.update(dict.fromkeys(sections, unreadable) if unreadable else {})
    return found


# --- queries, run in a worker ---------------------------------------------------------------------


def ask_basics(handle: Handle, capabilities: str) -> RawCapabilities:
    """Return the answers that cost libvirtd nothing: versions, memory and which CPUs are online."""
    info, running = _answer_or_none(handle.getInfo), _answer_or_none(handle.getCPUMap)
    return RawCapabilities(
        capabilities=capabilities,
        libvirt_version=handle.getLibVersion(),
        hypervisor_version=handle.getVersion(),
        hypervisor_type=handle.getType(),
        info=None if info is None else (str(info[0]), *(int(number) for number in info[1:8])),  # type: ignore[arg-type]
        present=frozenset() if running is None else frozenset(range(running[0])),
        online=None
        if running is None
        else frozenset(cpu for cpu, runs in enumerate(running[1]) if runs),
    )


def _answer_or_none(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except binding().libvirtError as error:
        if isinstance(as_driver_error("", error), NotReady):
            raise
        return None


def list_devices(handle: Handle) -> Listed:
    """Return all node devices of the relevant kinds, in one listing."""
    libvirt = binding()
    kinds = (
        libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_VDPA
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
    )
    try:
        # Only active ones, because a mediated device can be defined and not exist.
        devices = handle.listAllDevices(kinds | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            # No answer, because a libvirtd without that driver knows nothing of the host's devices.
            raise LibvirtRefused(NO_NODE_DEVICES, number=libvirt.VIR_ERR_NO_SUPPORT) from error
        if error.get_error_code() != libvirt.VIR_ERR_INVALID_ARG:
            raise
        # libvirt's test backend does not know this flag.
        devices = handle.listAllDevices(kinds)
    return _read_all(
        devices,
        "device",
        lambda device: DeviceAnswer(device.name(), device.parent(), device.XMLDesc(0)),
        libvirt.VIR_ERR_NO_NODE_DEVICE,
    )


def list_domains(handle: Handle) -> Listed:
    """Return all guests, stopped ones too."""
    libvirt = binding()
    states = _states()

    def answer(domain: Any) -> DomainAnswer:
        return DomainAnswer(
            domain.UUIDString(),
            domain.name(),
            states.get(domain.state()[0], "running"),
            domain.XMLDesc(0),
        )

    return _read_all(handle.listAllDomains(0), "guest", answer, libvirt.VIR_ERR_NO_DOMAIN)


def _states() -> Mapping[int, DomainState]:
    """Return the states other than running; blocked guests and those shutting down count as
    running.
    """
    libvirt = binding()
    return {
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "paused",
        libvirt.VIR_DOMAIN_SHUTOFF: "stopped",
        libvirt.VIR_DOMAIN_CRASHED: "stopped",
    }


def _read_all(objects: list[Any], kind: str, answer: Callable[[Any], object], gone: int) -> Listed:
    """Return the answer for each object. An object that has gone since the listing is left out; any
    other that cannot be read is a fault that names it.

    :raises libvirtError: the connection is broken.
    """
    found, faults = [], []
    for item in objects:
        try:
            found.append(answer(item))
        except binding().libvirtError as error:
            failure = as_driver_error(f"{kind} {item.name()}", error)
            if isinstance(failure, NotReady):
                raise
            if error.get_error_code() != gone:
                faults.append(failure.message)
        except UnicodeDecodeError as error:
            # The binding takes only UTF-8, and the vital product data of a card may be any bytes.
            faults.append(
                printable(
                    f"{kind} {item.name()}: its XML is not UTF-8: {error.reason} at {error.start}"
                )
            )
    return tuple(found), tuple(faults)
