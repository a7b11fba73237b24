"""A hypervisor with a real libvirtd, its guests, and the driver as the agent would make it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from agent.conf import options
from agent.driver.interface import HostContext
from drivers.libvirt import LibvirtDriver
from tests.support.http_placement import HttpPlacement
from tests.support.libvirtd import Libvirtd, module
from tests.support.service_manager import Service
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentCommand
from tests.support.tracking import F1, uuid_of

KNOWN_MEMORY = {"file_backed_memory": 4096}
"""Options of [libvirt] for a host whose tree is compared with that of later: a kernel that takes its
memory into use block by block has more of it from minute to minute.
"""
IDENTITY = "5f1c3f9e-6b1a-4d38-9d5e-0d6f2f4d7d10"

GUEST = """\
<domain type='qemu'>
  <name>{name}</name><uuid>{uuid}</uuid>
  {metadata}
  <memory unit='MiB'>{memory}</memory><vcpu>{vcpus}</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  {more}
  <devices><controller type='usb' model='none'/><memballoon model='none'/></devices>
</domain>
"""

METADATA = """\
<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
  <nova:name>{name}</nova:name>
  <nova:flavor name="small" id="{flavor}"><nova:memory>{memory}</nova:memory><nova:disk>0</nova:disk><nova:swap>0</nova:swap>
    <nova:ephemeral>0</nova:ephemeral><nova:vcpus>{vcpus}</nova:vcpus></nova:flavor>
  <nova:owner><nova:user uuid="{user}">admin</nova:user><nova:project uuid="{project}">admin</nova:project></nova:owner>
  <nova:root type="image" uuid="{image}"/>
</nova:instance></metadata>
"""


def guest_uuid(name: str) -> str:
    """The uuid of the guest called ``name``."""
    return uuid_of(name)


def guest_xml(
    name: str, memory: int = 16, vcpus: int = 1, *, nova: bool = False, more: str = ""
) -> str:
    """A guest with so many MiB; ``nova``: with what nova writes beside it; ``more``:
    XML within it.
    """
    values: Mapping[str, Any] = {"name": name, "memory": memory, "vcpus": vcpus}
    ids = {one: uuid_of(one) for one in ("flavor", "user", "project", "image")}
    return GUEST.format(
        **values,
        uuid=guest_uuid(name),
        metadata=METADATA.format(**values, **ids) if nova else "",
        more=more,
    )


def libvirt_conf(uri: str, **overrides: Any) -> cfg.ConfigOpts:
    """The agent's options for this libvirt, with no file read; ``overrides`` are of [libvirt]."""
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    conf.set_override("instances_path", "/")
    for name, value in {"connection_uri": uri, "virt_type": "qemu", **overrides}.items():
        conf.set_override(name, value, "libvirt")
    return conf


@contextmanager
def started(
    uri: str, changed: Callable[[str], None] = lambda _node: None, **overrides: Any
) -> Iterator[LibvirtDriver]:
    """A driver that has passed ``start``, and is stopped at the end."""
    driver = LibvirtDriver(libvirt_conf(uri, **overrides))
    driver.start(HostContext("compute-1", IDENTITY, Path("state")))
    driver.subscribe(changed)
    try:
        yield driver
    finally:
        driver.stop()


def node_of(driver: LibvirtDriver) -> str:
    """The name of its only node."""
    (name,) = driver.nodes().values()
    return name


class Operator:
    """Somebody else who uses the libvirtd of ``uri``."""

    def __init__(self, uri: str) -> None:
        self._libvirt, self._uri = module(), uri
        self.connection = self._libvirt.open(self._uri)

    def define(self, name: str, **guest: Any) -> Any:
        """A guest that is off."""
        return self.connection.defineXML(guest_xml(name, **guest))

    def start(self, name: str, *, paused: bool = False, **guest: Any) -> Any:
        """A guest that runs, or that is paused before its first instruction."""
        domain = self.define(name, **guest)
        domain.createWithFlags(self._libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
        return domain

    def clear(self) -> None:
        """Remove all guests."""
        with suppress(self._libvirt.libvirtError):
            self.connection.close()
        self.connection = self._libvirt.open(self._uri)
        for domain in self.connection.listAllDomains():
            with suppress(self._libvirt.libvirtError):
                domain.destroy()
            with suppress(self._libvirt.libvirtError):
                domain.undefine()

    def close(self) -> None:
        """Go away."""
        with suppress(self._libvirt.libvirtError):
            self.connection.close()


# ---
# The daemon on a real libvirtd, as a process of its own.


SOON = 60.0
"""Within so many seconds what has happened on the host is seen, on a machine that is very busy."""


class LibvirtDaemon:
    """A daemon for ``libvirtd`` that audits by itself every ``interval`` seconds, -1 for once."""

    def __init__(
        self, folder: Path, libvirtd: Libvirtd, placement: HttpPlacement, interval: int
    ) -> None:
        self.placement = placement
        self.config: dict[str, dict[str, Any]] = {
            "DEFAULT": {
                "compute_driver": "libvirt.LibvirtDriver",
                "state_path": folder / "nova",
                "instances_path": "/",
                "log_file": folder / "agent.log",
                "update_resources_interval": interval,
            },
            "libvirt": {"connection_uri": libvirtd.uri, "virt_type": "qemu"},
            "placement": {
                "auth_type": "admin_token",
                "endpoint": placement.url,
                "token": "a-token",
                "max_in_flight": 1,
            },
        }
        self.command = AgentCommand(folder, self.config)
        self.service, self.client = Service(self.command), ApiClient(self.command.socket)

    @property
    def node(self) -> dict[str, Any]:
        """What the API says of its only node."""
        node: dict[str, Any]
        (node,) = self.client.nodes()
        return node

    def drift(self) -> set[tuple[str, str | None]]:
        """Kinds and consumers."""
        return {
            (one["kind"], one.get("consumer"))
            for one in self.client.node(self.node["uuid"])["drift"]
        }

    def ready(self) -> bool:
        """Whether every node has been audited and is well."""
        try:
            self.client.readiness()
        except (ApiProblem, ApiUnreachable):
            return False
        return True

    def claim(self, name: str) -> dict[str, Any]:
        """Claim room for a guest."""
        body = {
            "id": uuid_of(f"claim-{name}"),
            "node": self.node["uuid"],
            "instance": instance_body(name),
            "flavor": flavor_body(F1),
        }
        return dict(self.client.create_claim(body))
