"""The daemon on a real libvirtd, as a process of its own."""

from pathlib import Path
from typing import Any

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.support.http_placement import HttpPlacement
from tests.support.libvirtd import Libvirtd
from tests.support.service_manager import Service
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentCommand
from tests.support.tracking import F1, uuid_of

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
