"""Parses a host file into machines and checks it as a whole, so that all errors are reported at
once.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import normal_uuid
from agent.yaml_files.document import Document, Where, shown
from agent.yaml_files.parsing import parse
from agent.yaml_files.schema import DocumentSchema
from drivers.fake.machine import NODE, Machine, name_on_node
from drivers.fake.part import Part
from drivers.fake.read_node import NodeReader

HOST_FILE = DocumentSchema("drivers.fake", "host.schema.json", "etc/hosts/numa.yaml")


@dataclass(frozen=True, slots=True)
class HostFile:
    """A host file without errors."""

    machines: Mapping[str, Machine]
    """By node name."""
    uuids: Mapping[str, str]
    """By node name: the uuids that the file has."""
    capabilities: Mapping[str, bool]
    """By trait."""
    single: bool
    """The file describes one node, and not a list."""


def read_host_file(content: bytes, file: str, host: str) -> HostFile:
    """Parse a host file; a node without a name is called ``host``.

    :raises ConfigErrors: everything that is wrong with it.
    """
    document = parse(content, file)
    structure = HOST_FILE.errors(document)
    errors: list[ConfigError] = [
        *document.errors,
        *(error for found in structure.values() for error in found),
    ]
    if () in structure:
        raise ConfigErrors(errors)
    whole = Part(document, (), document.data, errors)
    nodes = [
        NodeReader(whole.at(*place), structure, host) for place in _places(document, structure)
    ]
    machines = [(node, node.machine()) for node in nodes]
    _check_names(machines)
    if errors:
        raise ConfigErrors(sorted(errors, key=lambda error: error.data["line"]))
    return HostFile(
        machines={str(node.name): machine for node, machine in machines},
        uuids={
            str(node.name): normal_uuid(node.data["uuid"]) for node in nodes if "uuid" in node.data
        },
        capabilities=document.data.get("capabilities", {}),
        single="nodes" not in document.data,
    )


def _places(document: Document, broken: Collection[Where]) -> list[Where]:
    """Return the places of the nodes in the document."""
    if "nodes" not in document.data:
        return [()]
    if ("nodes",) in broken:
        return []
    places: list[Where] = [
        ("nodes", index)
        for index, data in enumerate(document.data["nodes"])
        if isinstance(data, Mapping)
    ]
    return places


def _check_names(machines: Collection[tuple[NodeReader, Machine]]) -> None:
    """Note an error for each name or uuid that two nodes share, because both are unique in all of
    Placement.
    """
    owners: dict[str, NodeReader] = {}
    uuids: set[str] = set()
    for node, _ in machines:
        uuid = node.data.get("uuid", "").lower()
        if uuid and uuid in uuids:
            node.part.wrong(("uuid",), "another node has this uuid", "give every node its own uuid")
        uuids.add(uuid)
        if node.name is not None and owners.setdefault(node.name, node) is not node:
            node.part.wrong(
                ("name",),
                f"two nodes are called {shown(node.name)}",
                "give every node its own name",
            )
    for node, machine in machines:
        for entry in machine.providers if node.name is not None else ():
            name = name_on_node(entry.name, str(node.name))
            other = owners.setdefault(name, node)
            if other is not node and name != node.name:
                remedy = f"use {NODE} in the provider's name"
                node.part.wrong(
                    ("providers",),
                    f"{shown(name)} is the name of a provider of the node {other.name} too",
                    remedy,
                )
