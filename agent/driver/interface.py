"""The driver interface and the loading of drivers.

A driver is a class that takes the configuration and implements :class:`Driver`; whatever else it
can do, it says by implementing one of the small protocols below it. Drivers are found by the entry
points of ``NAMESPACE``.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore import exception as stevedore_exception

from agent.errors import DRIVER_FAULT, AgentError, ConfigError
from agent.model.facts import HostFacts
from agent.model.names import printable, printable_traceback
from agent.model.provider_tree import ProviderTree

LOG = logging.getLogger(__name__)

NAMESPACE = "compute_node_agent.drivers"

# The spellings of an existing nova.conf that mean one of ours.
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


@dataclass(frozen=True, slots=True)
class HostContext:
    """What a driver may know of the process it runs in.

    ``name`` is ``[DEFAULT] host``; ``identity`` the uuid of this host's only node, for drivers that
    have just one; ``state_path`` the folder of the store, where a driver may write files of its own
    unless ``read_only``.
    """

    name: str
    identity: str
    state_path: Path
    read_only: bool = False


@runtime_checkable
class Driver(Protocol):
    """What every driver does. Every call may block; callers give each a deadline."""

    def start(self, host: HostContext) -> None:
        """Connect and check versions, within 60 s.

        :raises NotReady: the backend does not answer yet; it is asked again.
        :raises ConfigError: it never will, as configured.
        """

    def stop(self) -> None:
        """Close everything, within 15 s. Harmless when not started."""

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """All nodes managed now, uuid to name. Never empty because of an error.

        :raises NotReady: the backend does not answer.
        """

    def facts(self, name: str) -> HostFacts:
        """One snapshot of the node. What could not be read is named in ``incomplete``, not left
        out.

        :raises NotReady: the backend does not answer.
        """

    def is_node_deleted(self, name: str) -> bool:
        """Whether the backend itself, not a cache, says that the node is gone for good."""


@runtime_checkable
class ChecksConfiguration(Protocol):
    """A driver that can tell whether it could be started as configured."""

    def check(self, host: str) -> None:
        """Look at options, and at the files that they name, for the host of that name; connect to
        nothing, change nothing.

        :raises ConfigError: it could not be started.
        """


@runtime_checkable
class WarnsOfOptions(Protocol):
    """A driver that can tell which of its options can be used, but do something else than they look
    like.
    """

    def option_warnings(self) -> Sequence[str]:
        """One line each, from the options alone; before ``start`` too."""


@runtime_checkable
class ShapesTree(Protocol):
    """A driver with providers or inventories beyond what the core makes of its facts."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:
        """Edit the node's private ``tree`` in place, from ``facts`` alone: no I/O.

        The tree holds what the core shaped and what belongs to others; the driver adds its own each
        time anew. With ``allocations`` None and allocated inventory to move, raise
        :class:`agent.errors.ReshapeNeeded`.
        """


@runtime_checkable
class UpdatesProviderTree(Protocol):
    """A driver in nova's style: it shapes the whole of its tree itself, and may do I/O while it
    does.
    """

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        """Edit the node's private tree, as Placement has it now, in place."""


@runtime_checkable
class ReportsCapabilities(Protocol):
    """A driver that knows capabilities of the compute service."""

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Standard ``COMPUTE_*`` traits: true is set on the root, false removed, others are left
        alone.
        """


@runtime_checkable
class TellsOfChanges(Protocol):
    """A driver that notices by itself when something of a node is different."""

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call ``changed`` with the name of a node of which new facts would differ. After
        ``start``; from any thread, holding no lock.

        ``changed`` returns at once, and may be called often: the core gathers what comes in one
        moment.
        """


@runtime_checkable
class CountsHangingCalls(Protocol):
    """A driver that makes calls of its own with a deadline, and leaves to themselves those that
    pass it.
    """

    @property
    def hanging(self) -> int:
        """How many of those have not come back yet."""


@runtime_checkable
class MarksNodes(Protocol):
    """A driver of many nodes that can tell, without asking anybody, which of them are
    as they were.
    """

    def mark(self, name: str) -> Hashable:
        """What is equal for as long as the node would come to the same tree; as the last ``nodes``
        found it, with no I/O.
        """


@runtime_checkable
class NeedsLease(Protocol):
    """A driver whose nodes other agents see too. Only the one that has the lease manages them; the
    others stand by.
    """

    def lease(self) -> str:
        """The name of the lease. Any text that is the same for all agents that would manage the
        same nodes.
        """


class Instances(Protocol):
    """What the records know of instances."""

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        """Those of ``instances``, by uuid, that are another host's."""

    def nodes(self) -> frozenset[str]:
        """The uuids of the nodes on which this host has instances."""


@runtime_checkable
class LooksAtInstances(Protocol):
    """A driver that must not manage nodes on which another host has instances, and has to manage
    those with instances of this host.
    """

    def with_instances(self, instances: Instances) -> None:
        """Ask ``instances`` from now on, whenever the nodes are listed."""


def canonical_name(name: str) -> str:
    """The driver's own name for one of nova's spellings; other names as they are."""
    return NOVA_SPELLINGS.get(name, name)


def load(name: str, conf: cfg.ConfigOpts) -> Driver:
    """Make the driver called ``name``.

    :raises ConfigError: there is no such driver, its libraries are missing, or it cannot be made.
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
        # Out here, because oslo.log adds the exception that is being handled to the line, as it is.
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
    """The names of all installed drivers."""
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group=NAMESPACE)}
