"""Which of ironic's nodes are the agent's, and the list of them that a run works with."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from oslo_config import cfg

from agent.driver.interface import Instances
from agent.errors import ConfigError, ConfigErrors
from drivers.ironic.api import ApiVersion
from drivers.ironic.node import BareMetalNode

LEAST = ApiVersion(1, 46)
WITH_SHARDS = ApiVersion(1, 82)


@dataclass(frozen=True, slots=True)
class Scope:
    """``group`` None: any conductor group; empty: the default one. ``shard`` None: any."""

    group: str | None = None
    shard: str | None = None

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """What [ironic] says."""
        group, shard = conf.ironic.conductor_group, conf.ironic.shard
        return cls(None if group is None else group.lower(), shard or None)

    @property
    def version(self) -> ApiVersion:
        """The API version with which ironic is asked."""
        return WITH_SHARDS if self.shard else LEAST

    @property
    def filters(self) -> dict[str, str]:
        """The same as a query."""
        given = {"conductor_group": self.group, "shard": self.shard}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def lease(self) -> str:
        """The name of the lease on this part."""
        parts = [f"{name}={value}" for name, value in self.filters.items()]
        return f"nodes of ironic with {' and '.join(parts)}" if parts else "all nodes of ironic"

    def check(self, highest: ApiVersion, url: str) -> None:
        """Refuse an API that would ignore a filter, because then the nodes of others would be
        managed too.

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
"""What ironic says of one node now."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The managed nodes by uuid. ``taken_at``: when ironic told, in seconds since the epoch, 0 if
    it never did.
    """

    nodes: Mapping[str, BareMetalNode] = field(default_factory=dict)
    taken_at: float = 0.0

    @classmethod
    def of(cls, nodes: Collection[BareMetalNode], taken_at: float) -> Self:
        """The list of these nodes."""
        return cls({one.uuid: one for one in nodes}, taken_at)

    @property
    def names(self) -> Mapping[str, str]:
        """Uuid to name, which are the same."""
        return {uuid: uuid for uuid in self.nodes}

    def after(self, before: "NodeList") -> float:
        """How many seconds later it was taken than ``before``."""
        return self.taken_at - before.taken_at if before.taken_at else 0.0

    def tell_doubts(self, before: "NodeList") -> None:
        """Log what of the properties could not be read, once for each change."""
        for uuid, one in self.nodes.items():
            known = before.nodes.get(uuid)
            if one.properties.doubts and (
                known is None or known.properties.doubts != one.properties.doubts
            ):
                LOG.warning("node %s: %s", uuid, "; ".join(one.properties.doubts))


def managed(
    listed: Collection[BareMetalNode], instances: Instances | None, ask: Ask
) -> list[BareMetalNode]:
    """The agent's own: those ``listed`` unless another agent has an instance there, and those
    elsewhere that have one of ours.

    Without records everything listed is its own. An instance that no record knows is nobody else's,
    because whoever put it there tells no agent, and the node must not look free.
    """
    if instances is None:
        return [*listed]
    foreign = instances.elsewhere([one.instance for one in listed if one.instance is not None])
    own = [one for one in listed if one.instance is None or one.instance not in foreign]
    missing = instances.nodes() - {one.uuid for one in listed}
    return [
        *own,
        *(
            one
            for uuid in sorted(missing)
            if (one := ask(uuid)) is not None and one.instance is not None
        ),
    ]
