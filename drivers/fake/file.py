"""``fake.file``: hosts from a YAML file that is read again whenever it has changed, and is checked
as a whole, so that all errors are reported at once.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.driver.interface import HostContext, shared_cpu_warnings
from agent.errors import ConfigError, ConfigErrors
from agent.model.facts import HostFacts
from agent.model.names import normal_uuid, printable
from agent.yaml_files import DocumentSchema, Where, parse, read_bytes, shown
from drivers.fake.base import (
    NODE,
    BaseDriver,
    DescribedFacts,
    ShapesOutright,
    name_on_node,
    unknown_node,
)
from drivers.fake.read_devices import Part
from drivers.fake.read_node import NodeReader

HOST_FILE = DocumentSchema("drivers.fake", "host.schema.json", "etc/hosts/numa.yaml")


@dataclass(frozen=True, slots=True)
class HostFile:
    """A host file without errors."""

    machines: Mapping[str, DescribedFacts]
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
    listed = document.data.get("nodes", ()) if ("nodes",) not in structure else ()
    places: list[Where] = [
        ("nodes", index) for index, data in enumerate(listed) if isinstance(data, Mapping)
    ]
    if "nodes" not in document.data:
        places = [()]
    nodes = [NodeReader(whole.at(*place), structure, host) for place in places]
    machines = [(node, node.machine()) for node in nodes]
    _check_names(machines)
    ConfigErrors.raise_if_any(sorted(errors, key=lambda error: error.data["line"]))
    return HostFile(
        machines={str(node.name): machine for node, machine in machines},
        uuids={
            str(node.name): normal_uuid(node.data["uuid"]) for node in nodes if "uuid" in node.data
        },
        capabilities=document.data.get("capabilities", {}),
        single="nodes" not in document.data,
    )


def _check_names(machines: Collection[tuple[NodeReader, DescribedFacts]]) -> None:
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
                node.part.wrong(
                    ("providers",),
                    f"{shown(name)} is the name of a provider of the node {other.name} too",
                    f"use {NODE} in the provider's name",
                )


class FileDriver(ShapesOutright, BaseDriver):
    """The nodes of ``[fake] host_file``.

    While a changed file has errors, the nodes stay those of the last version without errors, and
    their facts raise the errors: nothing is written for them, and nothing of them is removed.
    """

    _path: Path
    _content: bytes
    """As last read."""
    _good: HostFile
    """The last version without errors."""
    _errors: tuple[ConfigError, ...] = ()
    """What is wrong with the content as last read."""

    def check(self, host: str) -> None:
        """Read the file.

        :raises ConfigErrors: everything that is wrong with it.
        """
        path = self._configured_path()
        read_host_file(_content(path), printable(str(path)), host)

    def option_warnings(self) -> Sequence[str]:
        """Return warnings; see :class:`agent.driver.interface.WarnsOfOptions`."""
        try:
            path = self._configured_path()
            file = read_host_file(_content(path), printable(str(path)), NODE)
        except (ConfigError, ConfigErrors):
            # :meth:`check` says so.
            return ()
        return [
            f"node {printable(name)}: {warning}"
            for name, machine in file.machines.items()
            if machine.numa is not None
            for warning in shared_cpu_warnings(machine.numa.cells)
        ]

    def start(self, host: HostContext) -> None:
        """Read the file.

        :raises ConfigErrors: everything that is wrong with it.
        """
        super().start(host)
        self._path = self._configured_path()
        self._content = _content(self._path)
        self._good = read_host_file(self._content, printable(str(self._path)), host.name)

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 - every call looks at the file
        """Return the nodes of the file, or of its last version without errors: uuid to name.

        A uuid is the one in the file; else the host's identity for an only node; else as in every
        fake driver.
        """
        self._look()
        file = self._good
        return {
            file.uuids.get(name)
            or (self.host.identity if file.single else self.node_uuid(name)): name
            for name in file.machines
        }

    def facts(self, name: str) -> HostFacts:
        """Return the facts of the node in the file as it is now.

        :raises ConfigErrors: what is wrong with the file.
        :raises DriverError: there is no such node in it.
        """
        ConfigErrors.raise_if_any(self._look())
        if name not in self._good.machines:
            raise unknown_node(name)
        return replace(self._good.machines[name], name=name, taken_at=time.time())

    def is_node_deleted(self, name: str) -> bool:
        """Whether the file, as it is now, lacks the node.

        :raises ConfigErrors: the file has errors, so this is unknown.
        """
        ConfigErrors.raise_if_any(self._look())
        return name not in self._good.machines

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities of the file."""
        self._look()
        return self._good.capabilities

    def _configured_path(self) -> Path:
        if not self.conf.fake.host_file:
            raise ConfigError(
                "[fake] host_file is not set, and fake.file needs it",
                "name a YAML file; etc/hosts has examples",
            )
        return Path(self.conf.fake.host_file).expanduser().absolute()

    def _look(self) -> tuple[ConfigError, ...]:
        """Take up the file as it is now, and return what is wrong with it. Contents are compared,
        because two edits within one tick have the same time stamp.
        """
        try:
            content = _content(self._path)
        except ConfigErrors as error:
            return error.errors
        if content != self._content:
            self._errors = ()
            try:
                self._good = read_host_file(content, printable(str(self._path)), self.host.name)
            except ConfigErrors as error:
                self._errors = error.errors
            self._content = content
        return self._errors


def _content(path: Path) -> bytes:
    """Return the file's content.

    :raises ConfigErrors: it cannot be read.
    """
    return read_bytes(path, "check [fake] host_file and the file's permissions")
