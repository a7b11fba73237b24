"""Base classes of the fake drivers: nodes by name, with a machine for each."""

import uuid
from collections.abc import Collection, Mapping
from typing import ClassVar

from oslo_config import cfg

from agent.driver.interface import Allocations, HostContext
from agent.errors import DriverError, NotReady
from agent.model.facts import HostFacts
from agent.model.names import printable
from agent.model.provider_tree import ProviderTree
from drivers.fake.machine import DescribedFacts, Machine, add_entries


class BaseDriver:
    """A driver that needs to know its host and nothing else."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self._host: HostContext | None = None

    @property
    def host(self) -> HostContext:
        """The host the driver was started for.

        :raises NotReady: it was not started.
        """
        if self._host is None:
            raise NotReady("the fake driver has not been started", "start it first")
        return self._host

    def start(self, host: HostContext) -> None:
        """Remember the host; there is nothing to connect to."""
        self._host = host

    def stop(self) -> None:
        """Forget the host."""
        self._host = None

    def node_uuid(self, name: str) -> str:
        """Return the uuid of a node: the host's identity for the node named after the host, else
        derived from the identity and the name.
        """
        if name == self.host.name:
            return self.host.identity
        return str(uuid.uuid5(uuid.UUID(self.host.identity), name))


class DescribedDriver(BaseDriver):
    """A driver whose nodes are all the same machine. By default there is one node, named after the
    host.
    """

    described: ClassVar[Machine]
    """The machine of every node."""

    def node_names(self) -> Collection[str]:
        """Return the names of all nodes."""
        return (self.host.name,)

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 - nothing is cached here
        """Return all nodes, uuid to name."""
        return {self.node_uuid(name): name for name in self.node_names()}

    def facts(self, name: str) -> HostFacts:
        """Return a snapshot of the node.

        :raises DriverError: there is no such node.
        """
        if name not in self.node_names():
            raise unknown_node(name)
        return self.described.facts(name)

    def is_node_deleted(self, name: str) -> bool:
        """Whether the node is not one of the driver's."""
        return name not in self.node_names()


def unknown_node(name: str) -> DriverError:
    """Return the error for a node that the driver does not have."""
    return DriverError(
        f"the fake driver has no node {printable(name)}", "ask for one of the driver's nodes"
    )


class ShapesOutright:
    """Mixin for drivers whose machines list providers beside the facts."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:  # noqa: ARG002 - nothing moves
        """Add the listed providers.

        :raises DriverError: one does not fit the tree, or the facts are another driver's.
        """
        if not isinstance(facts, DescribedFacts):
            raise DriverError(
                f"node {facts.name}: the facts do not come from a fake driver",
                "shape with the facts of the same driver",
            )
        add_entries(tree, facts.name, facts.providers)
