"""A bare-metal node as ironic reports it, an immutable record of the relevant fields; its facts
(one unit of a resource class, no CPUs or memory to share) and its provider.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Self

import os_resource_classes as orc

from agent.errors import DriverError
from agent.model.facts import HostFacts
from agent.model.names import is_uuid, normal_uuid, printable
from agent.model.provider_tree import ProviderTree

# Other names of the same architectures.
ARCHITECTURES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "i386": "i686",
    "arm64": "aarch64",
    "ppc64el": "ppc64le",
}
AMOUNTS = ("cpus", "memory_mb", "local_gb")
SHOWN = 40
"""Characters of a value that a message quotes."""


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a node; 0 for an amount that is missing or unusable."""

    cpus: int = 0
    memory_mb: int = 0
    """MiB."""
    local_gb: int = 0
    """GiB."""
    architecture: str | None = None
    capabilities: tuple[tuple[str, str], ...] = ()
    doubts: tuple[str, ...] = ()
    """What could not be read, one line each."""

    @classmethod
    def of(cls, document: Any) -> Self:
        """Return the properties of one node; unusable values are doubts, not errors."""
        if not isinstance(document, Mapping) or not document:
            return cls()
        doubts: list[str] = []
        amounts = {name: _amount(name, document.get(name), doubts) for name in AMOUNTS}
        named = document.get("cpu_arch")
        architecture = named.strip().lower() if isinstance(named, str) else ""
        return cls(
            **amounts,
            architecture=intern(ARCHITECTURES.get(architecture, architecture)) or None,
            capabilities=tuple(sorted(_capabilities(document.get("capabilities"), doubts))),
            doubts=tuple(doubts),
        )


NONE = Properties()


def _amount(name: str, value: Any, doubts: list[str]) -> int:
    if value is None:
        return 0
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if number < 0:
        doubts.append(f"{name} = {_brief(value)} is no number; it counts as 0")
    return max(number, 0)


def _capabilities(value: Any, doubts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``key:value,key:value``; a mapping, as some tools write it, is accepted
    too.
    """
    if value is None or value == "":
        return
    if isinstance(value, Mapping):
        yield from ((intern(str(key)), intern(str(item))) for key, item in value.items())
        return
    if not isinstance(value, str):
        doubts.append(f"capabilities = {_brief(value)} is no list of key:value")
        return
    for item in value.split(","):
        key, colon, setting = item.strip().partition(":")
        if key and colon and setting:
            yield intern(key), intern(setting)
        else:
            doubts.append(f"capability {_brief(item)} is not key:value; it is left out")


def _brief(value: Any) -> str:
    text = printable(repr(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


FIELDS = (
    "uuid",
    "power_state",
    "provision_state",
    "maintenance",
    "properties",
    "instance_uuid",
    "traits",
    "resource_class",
)
"""The fields that ironic is asked for."""


@dataclass(frozen=True, slots=True)
class BareMetalNode:
    """One node; ``None`` where ironic has null.

    Two records are equal as long as nothing that Placement is told has changed, nor a property.
    """

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
        """Return the node of one element of ironic's list.

        :raises DriverError: it is no node, or lacks a field.
        """
        if (
            not isinstance(document, Mapping)
            or not isinstance(uuid := document.get("uuid"), str)
            or not is_uuid(uuid)
        ):
            raise DriverError(
                f"ironic: {printable(str(document))[:200]} is no node",
                "check that [ironic] names a bare-metal service",
            )
        lacks = [
            name
            for name in (
                "power_state",
                "provision_state",
                "maintenance",
                "resource_class",
                "traits",
            )
            if name not in document
        ]
        if lacks:
            raise DriverError(
                f"ironic does not report {', '.join(lacks)} of node {uuid}",
                "let the account in [ironic] read these fields; see its policy",
            )
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
    """Return the text, None for anything else."""
    # Interned, because there may be thousands of nodes with few different values.
    return intern(value) if isinstance(value, str) and value else None


def _traits(value: Any) -> frozenset[str]:
    return (
        frozenset(intern(trait) for trait in value if isinstance(trait, str))
        if isinstance(value, list)
        else frozenset()
    )


# The provision states in which a node can be used. Old nodes that never were taken into service
# have None and are available nevertheless.
OFFERED_IN = frozenset({"available", None})


def unavailable(node: BareMetalNode) -> bool:
    """Whether the node cannot take an instance now. An unknown state counts as unavailable."""
    return (
        node.maintenance
        or node.power_state in ("error", None)
        or node.provision_state not in OFFERED_IN
    )


def reserved(node: BareMetalNode, *, skip_in_use: bool = False) -> int:
    """Return how much of the one unit is reserved: 0 or 1.

    ``skip_in_use``: [workarounds] skip_reserve_in_use_ironic_nodes; then an instance alone does not
    reserve its node.
    """
    in_use = node.instance is not None and not skip_in_use
    return int(unavailable(node) or in_use)


HYPERVISOR = "ironic"
UNIT = {"total": 1, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0}


@dataclass(frozen=True, slots=True)
class BareMetalFacts(HostFacts):
    """The facts of a bare-metal node."""

    resource_class: str = ""
    """As Placement names it."""
    reserved: int = 1
    """1 while the node cannot take an instance."""
    node_traits: frozenset[str] = frozenset()
    properties: Properties = NONE
    """For information only."""


def facts_of(node: BareMetalNode, taken_at: float, *, skip_in_use: bool) -> BareMetalFacts:
    """Return the facts of ``node`` as ironic reported it at ``taken_at``, in seconds since the
    epoch.

    :raises DriverError: it has no resource class, so that no flavor could request it.
    """
    if node.resource_class is None:
        raise DriverError(
            f"node {node.uuid} has no resource class",
            f"openstack baremetal node set {node.uuid} --resource-class <class>",
            node=node.uuid,
        )
    return BareMetalFacts(
        name=node.uuid,
        taken_at=taken_at,
        hypervisor_type=HYPERVISOR,
        hypervisor_version=1,
        exclusive=True,
        resource_class=orc.normalize_name(node.resource_class),
        reserved=reserved(node, skip_in_use=skip_in_use),
        node_traits=node.traits,
        properties=node.properties,
    )


def put_node(tree: ProviderTree, facts: BareMetalFacts) -> None:
    """Give the node's root its one unit, and the traits that ironic has for it."""
    root = tree.provider(facts.name)
    tree.update_inventory(
        root.uuid, {**root.inventory, facts.resource_class: {**UNIT, "reserved": facts.reserved}}
    )
    tree.add_traits(root.uuid, *facts.node_traits)
