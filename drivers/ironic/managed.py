"""Which of ironic's nodes this agent manages, and the list of them for one pass."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from oslo_config import cfg

from agent.driver.interface import Instances
from agent.errors import ConfigError, ConfigErrors
from agent.model.names import ApiVersion
from drivers.ironic.node import BareMetalNode

LEAST = ApiVersion(1, 46)
WITH_SHARDS = ApiVersion(1, 82)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of ironic's nodes that the agent manages."""

    group: str | None = None
    """None: any conductor group; empty: the default one."""
    shard: str | None = None
    """None: any shard."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the scope that [ironic] sets."""
        group, shard = conf.ironic.conductor_group, conf.ironic.shard
        return cls(None if group is None else group.lower(), shard or None)

    @property
    def version(self) -> ApiVersion:
        """The API version that requests to ironic use."""
        return WITH_SHARDS if self.shard else LEAST

    @property
    def filters(self) -> dict[str, str]:
        """The scope as a query."""
        given = {"conductor_group": self.group, "shard": self.shard}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def lease(self) -> str:
        """The name of the lease on this scope."""
        parts = [f"{name}={value}" for name, value in self.filters.items()]
        return f"nodes of ironic with {' and '.join(parts)}" if parts else "all nodes of ironic"

    def check(self, highest: ApiVersion, url: str) -> None:
        """Check that the API knows the filters: it would ignore an unknown one, and nodes of other
        agents would be managed too.

        :raises ConfigErrors: the API is too old.
        """
        errors = []
        if self.shard and highest < WITH_SHARDS:
            errors.append(_too_old(f"[ironic] shard = {self.shard}", WITH_SHARDS, highest, url))
        if self.group is not None and highest < LEAST:
            errors.append(_too_old(f"[ironic] conductor_group = {self.group}", LEAST, highest, url))
        if not errors and highest < LEAST:
            errors.append(_too_old("the driver ironic", LEAST, highest, url))
        if errors:
            raise ConfigErrors(errors)


def _too_old(what: str, needed: ApiVersion, highest: ApiVersion, url: str) -> ConfigError:
    return ConfigError(
        f"{what} needs an ironic API of {needed}, and {url} has no more than {highest}",
        "upgrade ironic, or remove the option",
    )


LOG = logging.getLogger(__name__)

Ask = Callable[[str], BareMetalNode | None]
"""Returns what ironic says about one node now; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The managed nodes, by uuid."""

    nodes: Mapping[str, BareMetalNode] = field(default_factory=dict)
    taken_at: float = 0.0
    """When ironic sent the list, in seconds since the epoch; 0 if it never did."""

    @classmethod
    def of(cls, nodes: Collection[BareMetalNode], taken_at: float) -> Self:
        """Return the list of these nodes."""
        return cls({node.uuid: node for node in nodes}, taken_at)

    @property
    def names(self) -> Mapping[str, str]:
        """Uuid to name, which are the same."""
        return {uuid: uuid for uuid in self.nodes}

    def after(self, before: "NodeList") -> float:
        """Return how many seconds later than ``before`` the list was taken."""
        return self.taken_at - before.taken_at if before.taken_at else 0.0

    def tell_doubts(self, before: "NodeList") -> None:
        """Log the properties that could not be read, once for each change."""
        for uuid, node in self.nodes.items():
            known = before.nodes.get(uuid)
            if node.properties.doubts and (
                known is None or known.properties.doubts != node.properties.doubts
            ):
                LOG.warning("node %s: %s", uuid, "; ".join(node.properties.doubts))


def managed_nodes(
    listed: Collection[BareMetalNode], instances: Instances | None, ask: Ask
) -> list[BareMetalNode]:
    """Return the nodes that this agent manages: those ``listed`` without an instance of another
    host, and those elsewhere that have an instance of this host.

    Without records all listed nodes are managed. An instance that no record knows does not exclude
    its node, because it may have been deployed without any agent, and the node must not look free.
    """
    if instances is None:
        return [*listed]
    foreign = instances.elsewhere([node.instance for node in listed if node.instance is not None])
    own = [node for node in listed if node.instance is None or node.instance not in foreign]
    missing = instances.nodes() - {node.uuid for node in listed}
    return [
        *own,
        *(
            node
            for uuid in sorted(missing)
            if (node := ask(uuid)) is not None and node.instance is not None
        ),
    ]
