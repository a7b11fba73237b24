"""``fake.file``: hosts from a YAML file that is read again whenever it has changed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.driver.interface import HostContext
from agent.errors import ConfigError, ConfigErrors
from agent.model.facts import HostFacts
from agent.model.names import printable
from agent.yaml_files.document import read_bytes
from drivers.fake.base import BaseDriver, ShapesOutright, unknown_node
from drivers.fake.host_file import HostFile, read_host_file


@dataclass(frozen=True, slots=True)
class _FileRead:
    """The file as last read."""

    content: bytes
    good: HostFile
    """The last version without errors."""
    errors: tuple[ConfigError, ...] = ()
    """What is wrong with the present version."""


class FileDriver(ShapesOutright, BaseDriver):
    """The nodes of ``[fake] host_file``.

    While a changed file has errors, the nodes stay those of the last version without errors, and
    their facts raise the errors: nothing is written for them, and nothing of them is removed.
    """

    _path: Path
    _reading: _FileRead

    def check(self, host: str) -> None:
        """Read the file.

        :raises ConfigErrors: everything that is wrong with it.
        """
        path = self._configured_path()
        read_host_file(_content(path), printable(str(path)), host)

    def start(self, host: HostContext) -> None:
        """Read the file.

        :raises ConfigErrors: everything that is wrong with it.
        """
        super().start(host)
        self._path = self._configured_path()
        content = _content(self._path)
        self._reading = _FileRead(content, self._read(content))

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 - every call looks at the file
        """Return the nodes of the file, or of its last version without errors: uuid to name.

        A uuid is the one in the file; else the host's identity for an only node; else as in every
        fake driver.
        """
        file = self._latest().good
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
        file = self._require_valid()
        if name not in file.machines:
            raise unknown_node(name)
        return file.machines[name].facts(name)

    def is_node_deleted(self, name: str) -> bool:
        """Whether the file, as it is now, lacks the node.

        :raises ConfigErrors: the file has errors, so this is unknown.
        """
        return name not in self._require_valid().machines

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities of the file."""
        return self._latest().good.capabilities

    def _configured_path(self) -> Path:
        if not self.conf.fake.host_file:
            raise ConfigError(
                "[fake] host_file is not set, and fake.file needs it",
                "name a YAML file; etc/hosts has examples",
            )
        return Path(self.conf.fake.host_file).expanduser().absolute()

    def _read(self, content: bytes) -> HostFile:
        return read_host_file(content, printable(str(self._path)), self.host.name)

    def _latest(self) -> _FileRead:
        """Return the file as it is now. Contents are compared, because two edits within one tick
        have the same time stamp.
        """
        before = self._reading
        try:
            content = _content(self._path)
        except ConfigErrors as error:
            return replace(before, errors=error.errors)
        if content == before.content:
            return before
        try:
            now = _FileRead(content, self._read(content))
        except ConfigErrors as error:
            now = _FileRead(content, before.good, error.errors)
        self._reading = now
        return now

    def _require_valid(self) -> HostFile:
        """Return the file as it is now.

        :raises ConfigErrors: what is wrong with it.
        """
        latest = self._latest()
        if latest.errors:
            raise ConfigErrors(latest.errors)
        return latest.good


def _content(path: Path) -> bytes:
    """Return the file's content.

    :raises ConfigErrors: it cannot be read.
    """
    return read_bytes(path, "check [fake] host_file and the file's permissions")
