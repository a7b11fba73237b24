"""What all fake drivers have in common: nodes by name, and a machine for each."""

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
    """A driver that needs to know its host and nothing else of the world."""

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
        """The uuid of a node: the host's identity for the node named after the host, else made from
        it and the name.
        """
        if name == self.host.name:
            return self.host.identity
        return str(uuid.uuid5(uuid.UUID(self.host.identity), name))


class DescribedDriver(BaseDriver):
    """Nodes that are all the same machine. Unless a subclass says otherwise there is one, named
    after the host.
    """

    described: ClassVar[Machine]

    def node_names(self) -> Collection[str]:
        """The names of all nodes."""
        return (self.host.name,)

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 - nothing is cached here
        """All nodes, uuid to name."""
        return {self.node_uuid(name): name for name in self.node_names()}

    def facts(self, name: str) -> HostFacts:
        """A snapshot of the node.

        :raises DriverError: there is no such node.
        """
        if name not in self.node_names():
            raise unknown_node(name)
        return self.described.facts(name)

    def is_node_deleted(self, name: str) -> bool:
        """Whether the node is not one of the driver's."""
        return name not in self.node_names()


def unknown_node(name: str) -> DriverError:
    """The error for a node that the driver does not have."""
    return DriverError(
        f"the fake driver has no node {printable(name)}", "ask for one of the driver's nodes"
    )


class ShapesOutright:
    """For drivers whose machines come with providers described outright."""

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:  # noqa: ARG002 - nothing moves
        """Add the described providers.

        :raises DriverError: one does not fit the tree, or the facts are another driver's.
        """
        if not isinstance(facts, DescribedFacts):
            raise DriverError(
                f"node {facts.name}: the facts do not come from a fake driver",
                "shape with the facts of the same driver",
            )
        add_entries(tree, facts.name, facts.providers)
