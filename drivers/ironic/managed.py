"""Which of ironic's nodes are the agent's, and the list of them that a run works with."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from agent.driver.interface import Instances
from drivers.ironic.node import BareMetalNode

LOG = logging.getLogger(__name__)

Ask = Callable[[str], BareMetalNode | None]
"""What ironic says of one node now."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The managed nodes by uuid. ``taken_at``: when ironic told, in seconds since the epoch, 0 if it never did."""

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
            if one.properties.doubts and (known is None or known.properties.doubts != one.properties.doubts):
                LOG.warning("node %s: %s", uuid, "; ".join(one.properties.doubts))


def managed(listed: Collection[BareMetalNode], instances: Instances | None, ask: Ask) -> list[BareMetalNode]:
    """The agent's own: those ``listed`` unless another agent has an instance there, and those elsewhere that have one of ours.

    Without records everything listed is its own. An instance that no record knows is nobody else's, because whoever put it
    there tells no agent, and the node must not look free.
    """
    if instances is None:
        return [*listed]
    foreign = instances.elsewhere([one.instance for one in listed if one.instance is not None])
    own = [one for one in listed if one.instance is None or one.instance not in foreign]
    missing = instances.nodes() - {one.uuid for one in listed}
    return [*own, *(one for uuid in sorted(missing) if (one := ask(uuid)) is not None and one.instance is not None)]
