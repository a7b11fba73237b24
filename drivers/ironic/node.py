"""A bare-metal node as ironic tells of it: one immutable record of what matters here."""

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Self

from agent.errors import DriverError
from agent.model.names import is_uuid, normal_uuid, printable
from drivers.ironic.properties import NONE, Properties

FIELDS = (
    "uuid", "power_state", "target_power_state", "provision_state", "target_provision_state", "last_error", "maintenance", "properties",
    "instance_uuid", "traits", "resource_class",
)  # fmt: skip
"""What ironic is asked for of each node."""


@dataclass(frozen=True, slots=True)
class BareMetalNode:
    """``None`` where ironic has null. Equal as long as nothing of it that Placement is told has changed, and no property."""

    uuid: str
    power_state: str | None
    provision_state: str | None
    maintenance: bool
    instance: str | None
    resource_class: str | None
    traits: frozenset[str]
    properties: Properties = NONE

    @classmethod
    def of(cls, document: Any) -> Self:
        """The node of one element of ironic's list.

        :raises DriverError: it is no node.
        """
        if not isinstance(document, Mapping) or not isinstance(uuid := document.get("uuid"), str) or not is_uuid(uuid):
            raise DriverError(f"ironic: {printable(str(document))[:200]} is no node", "check that [ironic] names a bare-metal service")
        lacks = [name for name in ("power_state", "provision_state", "maintenance", "resource_class", "traits") if name not in document]
        if lacks:
            raise DriverError(f"ironic does not tell {', '.join(lacks)} of node {uuid}", "let the account in [ironic] read these fields; see its policy")
        instance = document.get("instance_uuid")
        return cls(
            uuid=normal_uuid(uuid),
            power_state=_word(document["power_state"]),
            provision_state=_word(document["provision_state"]),
            maintenance=bool(document["maintenance"]),
            instance=instance if isinstance(instance, str) and instance else None,
            resource_class=_word(document["resource_class"]),
            traits=_traits(document["traits"]),
            properties=Properties.of(document.get("properties")),
        )


def _word(value: Any) -> str | None:
    # One copy of each of the few there are, because there may be thousands of nodes.
    return intern(value) if isinstance(value, str) and value else None


def _traits(value: Any) -> frozenset[str]:
    return frozenset(intern(one) for one in value if isinstance(one, str)) if isinstance(value, list) else frozenset()
