"""The driver interface, the loading of drivers, and what drivers of real hosts share.

A driver is a class that takes the configuration and implements :class:`Driver`; further abilities
are declared by implementing the small protocols below it. Drivers are found by the entry points of
``NAMESPACE``.
"""

import logging
import re
import shutil
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore import exception as stevedore_exception

from agent.errors import DRIVER_FAULT, AgentError, ConfigError, DriverError
from agent.model.facts import Cell, HostFacts, parse_cpu_list
from agent.model.names import format_cpu_list, name_first, printable, printable_traceback
from agent.model.provider_tree import ProviderTree

LOG = logging.getLogger(__name__)

NAMESPACE = "compute_node_agent.drivers"

STOP_DEADLINE = 15.0
"""Seconds that a driver may take to stop."""

# The names in an existing nova.conf that stand for one of our drivers.
NOVA_SPELLINGS: Mapping[str, str] = {
    "libvirt.LibvirtDriver": "libvirt",
    "ironic.IronicDriver": "ironic",
    "fake.FakeDriver": "fake",
    "fake.SmallFakeDriver": "fake.small",
    "fake.MediumFakeDriver": "fake.medium",
    "fake.MediumFakeDriverWithNestedCustomResources": "fake.medium_nested",
    "fake.PredictableNodeUUIDDriver": "fake.predictable_uuid",
    "fake.FakeDriverWithPciResources": "fake.pci",
    "fake.FakeDriverWithoutFakeNodes": "fake.local_identity",
    "fake.FakeDriverWithCaching": "fake.caching",
    "fake.SameHostColdMigrateDriver": "fake.same_host_migrate",
    "fake.RescueBFVDriver": "fake.bfv_rescue",
    "fake.PowerUpdateFakeDriver": "fake.power_event",
    "fake.EphEncryptionDriver": "fake.ephemeral_encryption",
    "fake.EphEncryptionDriverLUKS": "fake.ephemeral_encryption_luks",
    "fake.EphEncryptionDriverPLAIN": "fake.ephemeral_encryption_plain",
}

Allocations = MutableMapping[str, dict[str, Any]]
"""Allocations by consumer, as Placement's API has them; a driver edits them in place."""


@dataclass(frozen=True, slots=True)
class HostContext:
    """What a driver may know of the process it runs in."""

    name: str
    """``[DEFAULT] host``."""
    identity: str
    """The uuid of this host's only node, for drivers that have just one."""
    state_path: Path
    """The folder of the store, where a driver may write files of its own."""
    read_only: bool = False
    """The driver must not write files."""


@runtime_checkable
class Driver(Protocol):
    """What every driver implements. The package agent.conformance checks these promises.

    Every call may block; callers give each a deadline. Several threads may call at the same time. A
    method raises nothing but errors of :mod:`agent.errors`. After ``stop`` a call answers or raises
    an error; it does not hang.
    """

    def start(self, host: HostContext) -> None:
        """Connect and check versions, within 60 s.

        :raises NotReady: the backend does not answer yet; the start is tried again.
        :raises ConfigError: it cannot be started as configured.
        """

    def stop(self) -> None:
        """Close everything, within 15 s. Does nothing when not started, nor the second time."""

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return all nodes managed now, uuid to name. Never empty because of an error. The uuids
        stay the same, also after a restart.

        :raises NotReady: the backend does not answer.
        """

    def facts(self, name: str) -> HostFacts:
        """Return one snapshot of the node. Sections that could not be read are named in
        ``incomplete``, not left out.

        :raises NotReady: the backend does not answer.
        """

    def is_node_deleted(self, name: str) -> bool:
        """Whether the backend itself, not a cache, says that the node is gone for good."""


@runtime_checkable
class ChecksConfiguration(Protocol):
    """A driver that can check whether it could be started as configured."""

    def check(self, host: str) -> None:
        """Check the options, and the files that they name, for the host of that name; connect to
        nothing, change nothing.

        :raises ConfigError: it could not be started.
        """


@runtime_checkable
class WarnsOfOptions(Protocol):
    """A driver that can warn of options that are valid but do something else than they seem to."""

    def option_warnings(self) -> Sequence[str]:
        """Return one line for each warning, from the options and what the kernel or a file says of
        the host, connected to nothing; works before ``start`` too.
        """


@runtime_checkable
class ShapesTree(Protocol):
    """A driver with providers or inventories beyond what the core derives from its facts."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:
        """Edit the node's private ``tree`` in place, from ``facts`` alone: no I/O.

        The tree holds what the core shaped and what belongs to others; the driver adds its own part
        each time anew, so that a second call changes nothing. With ``allocations`` None and
        allocated inventory to move, raise :class:`agent.errors.ReshapeNeeded`.
        """


@runtime_checkable
class UpdatesProviderTree(Protocol):
    """A driver in nova's style: it shapes its whole tree itself, and may do I/O meanwhile."""

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        """Edit the node's private tree, as Placement has it now, in place."""


@runtime_checkable
class ReportsCapabilities(Protocol):
    """A driver that knows capabilities of the compute service."""

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return standard ``COMPUTE_*`` traits: true is set on the root, false removed, others are
        left alone.
        """


@runtime_checkable
class TellsOfChanges(Protocol):
    """A driver that notices changes of a node by itself."""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call ``changed`` with the name of a node whose facts have changed. After ``start``; from
        any thread, holding no lock.

        ``changed`` returns at once, and may be called often: the core gathers calls that come close
        together.
        """


@runtime_checkable
class CountsHangingCalls(Protocol):
    """A driver that makes calls of its own with a deadline, and abandons calls that pass it."""

    @property
    def hanging(self) -> int:
        """How many abandoned calls have not returned yet."""


@runtime_checkable
class MarksNodes(Protocol):
    """A driver of many nodes that can tell without I/O which of them are unchanged."""

    def mark(self, name: str) -> Hashable:
        """Return a value that stays equal as long as the node leads to the same tree, as the last
        ``nodes`` found it; no I/O.
        """


@runtime_checkable
class NeedsLease(Protocol):
    """A driver whose nodes other agents see too. Only the agent that holds the lease manages them;
    the others stand by.
    """

    def lease(self) -> str:
        """Return the name of the lease: a text that is the same for all agents that would manage
        the same nodes.
        """


class Instances(Protocol):
    """What the records know of instances."""

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of ``instances``, by uuid, that are on another host."""

    def nodes(self) -> frozenset[str]:
        """Return the uuids of the nodes on which this host has instances."""


@runtime_checkable
class LooksAtInstances(Protocol):
    """A driver that must not manage nodes on which another host has instances, and has to manage
    those with instances of this host.
    """

    def with_instances(self, instances: Instances) -> None:
        """Ask ``instances`` from now on, whenever the nodes are listed."""


def canonical_name(name: str) -> str:
    """Return the driver's own name for one of nova's names; other names as they are."""
    return NOVA_SPELLINGS.get(name, name)


def load(name: str, conf: cfg.ConfigOpts) -> Driver:
    """Load and construct the driver called ``name``.

    :raises ConfigError: there is no such driver, its libraries are missing, or its construction
        fails.
    """
    option, failure = printable(f"[DEFAULT] compute_driver = {name}"), None
    try:
        manager: Any = stevedore_driver.DriverManager(
            NAMESPACE, canonical_name(name), invoke_on_load=True, invoke_args=(conf,)
        )
    except stevedore_exception.NoMatches as error:
        raise ConfigError(
            f"{option}: no such driver", f"installed: {', '.join(sorted(available())) or 'none'}"
        ) from error
    except AgentError:
        raise
    except ImportError as error:
        raise ConfigError(
            f"{option}: it cannot be imported: {printable(str(error))}", "install what it needs"
        ) from error
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody else's driver raises
        failure = error
    if failure is not None:
        # Outside of the except block, because oslo.log adds the exception being handled to the
        # line, unescaped.
        what = f"it failed with {type(failure).__name__}"
        LOG.error("%s: %s:\n%s", option, what, printable_traceback(failure))
        raise ConfigError(f"{option}: {what}: {printable(str(failure))}", DRIVER_FAULT) from failure
    if not isinstance(manager.driver, Driver):
        raise ConfigError(
            f"{option}: it is no driver, because it lacks {', '.join(_lacks(manager.driver))}",
            DRIVER_FAULT,
        )
    return manager.driver


def _lacks(candidate: object) -> list[str]:
    return [
        name
        for name in ("start", "stop", "nodes", "facts", "is_node_deleted")
        if not hasattr(candidate, name)
    ]


def available() -> set[str]:
    """Return the names of all installed drivers."""
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group=NAMESPACE)}


GIB = 1024**3


def read_total_gib(folder: Path) -> int:
    """Return the size in GiB, rounded down, of the file system of ``folder``, or of its nearest
    parent that exists.

    The parent stands in because the folder is created with the first guest.

    :raises DriverError: the file system does not answer.
    """
    for place in (folder, *folder.parents):
        try:
            return int(shutil.disk_usage(place).total) // GIB
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DriverError(
                printable(f"{folder}: the size of its file system cannot be read: {error.strerror}")
            ) from error
    raise DriverError(printable(f"{folder}: no parent of it exists"))


# --- NUMA nodes that share CPUs -------------------------------------------------------------------

FOLDER = "devices/system/node"


def shared_cpu_warnings(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the warning that ``cells``, as the host shows them, share CPUs; empty if each CPU is
    in one of them.
    """
    seen: set[int] = set()
    twice: set[int] = set()
    found = [*cells]
    for cell in found:
        twice |= seen & cell.cpus
        seen |= cell.cpus
    sharing = [str(cell.id) for cell in found if cell.cpus & twice]
    if not sharing:
        return ()
    return (
        f"NUMA nodes {name_first(sharing)} share CPUs {format_cpu_list(twice)}, as emulated "
        "nodes do (numa=fake): all of the host is counted as cell 0, so that each CPU counts once",
    )


def kernel_warnings(sysfs: Path) -> tuple[str, ...]:
    """Return the same of the NUMA nodes below ``sysfs``, which is /sys or stands for it. Nodes that
    cannot be read are left out: the facts name them.
    """
    return shared_cpu_warnings(_kernel_cells(sysfs / FOLDER))


def _kernel_cells(folder: Path) -> Iterable[Cell]:
    for node in sorted(folder.glob("node*")):
        if re.fullmatch(r"node[0-9]{1,5}", node.name) is None:
            continue
        try:
            cpus = parse_cpu_list((node / "cpulist").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        yield Cell(int(node.name.removeprefix("node")), cpus, 0)
