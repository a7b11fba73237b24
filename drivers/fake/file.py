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
    """The file as last read: ``good`` is what it said when it last was right, ``errors`` what is
    wrong with it now.
    """

    content: bytes
    good: HostFile
    errors: tuple[ConfigError, ...] = ()


class FileDriver(ShapesOutright, BaseDriver):
    """The nodes of ``[fake] host_file``.

    While a changed file is wrong, the nodes stay those of the last right one, and asking for their
    facts raises what is wrong with it: nothing is written for them, and nothing of theirs is taken
    away.
    """

    _path: Path
    _reading: _FileRead

    def check(self, host: str) -> None:
        """Read the file.

        :raises ConfigErrors: everything that is wrong with it.
        """
        path = self._configured()
        read_host_file(_content(path), printable(str(path)), host)

    def start(self, host: HostContext) -> None:
        """Read the file.

        :raises ConfigErrors: everything that is wrong with it.
        """
        super().start(host)
        self._path = self._configured()
        content = _content(self._path)
        self._reading = _FileRead(content, self._read(content))

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG002 - every call looks at the file
        """The nodes of the file, or of its last version that was right: uuid to name.

        A uuid is the one in the file; else the host's identity for an only node, or as for every
        fake.
        """
        file = self._latest().good
        return {
            file.uuids.get(name)
            or (self.host.identity if file.single else self.node_uuid(name)): name
            for name in file.machines
        }

    def facts(self, name: str) -> HostFacts:
        """What the file says now.

        :raises ConfigErrors: what is wrong with the file.
        :raises DriverError: there is no such node in it.
        """
        file = self._right()
        if name not in file.machines:
            raise unknown_node(name)
        return file.machines[name].facts(name)

    def is_node_deleted(self, name: str) -> bool:
        """Whether the file, as it is now, lacks the node.

        :raises ConfigErrors: the file is wrong and cannot tell.
        """
        return name not in self._right().machines

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """The capabilities of the file."""
        return self._latest().good.capabilities

    def _configured(self) -> Path:
        if not self.conf.fake.host_file:
            raise ConfigError(
                "[fake] host_file is not set, and fake.file needs it",
                "name a YAML file; etc/hosts has examples",
            )
        return Path(self.conf.fake.host_file).expanduser().absolute()

    def _read(self, content: bytes) -> HostFile:
        return read_host_file(content, printable(str(self._path)), self.host.name)

    def _latest(self) -> _FileRead:
        """The file as it is now. Its content is compared: a time stamp can hide a second edit
        within one tick.
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

    def _right(self) -> HostFile:
        latest = self._latest()
        if latest.errors:
            raise ConfigErrors(latest.errors)
        return latest.good


def _content(path: Path) -> bytes:
    """What the file says now.

    :raises ConfigErrors: it cannot be read.
    """
    return read_bytes(path, "check [fake] host_file and the file's permissions")
