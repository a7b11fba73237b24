"""The real ironic on loopback: API and conductor in one process, SQLite, fake hardware, no message
bus.
"""

import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import bcrypt
import requests

from tests.support import stopped
from tests.support.child import Child
from tests.support.ini import Config, Value, write_config

USER, PASSWORD = "agent", "a $ecret % of the tests"
VERSION = "1.109"
FAKES = (
    "bios",
    "boot",
    "console",
    "deploy",
    "firmware",
    "inspect",
    "management",
    "power",
    "raid",
    "rescue",
    "vendor",
)
SOON = 60.0


class Ironic:
    """Started, stopped, killed and held at will; port and database stay. ``page``: the longest page
    that it gives.

    ``basic``: it asks for a user and a password. ``group``: the conductor's group, empty for the
    default one; ironic takes no node of a group without a conductor. ``slow``: deployments and
    cleanings take so many seconds.
    """

    def __init__(
        self, folder: Path, *, basic: bool = False, group: str = "", page: int = 1000, slow: int = 0
    ) -> None:
        self.port = _free_port()
        self._basic, self._folder, self._group = basic, folder, group
        self._database, self._group_file = folder / "ironic.sqlite", folder / "ironic.group"
        self._config = write_config(folder / "ironic.conf", self._options(group, page, slow))
        if basic:
            secret = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
            (folder / "htpasswd").write_text(f"{USER}:{secret}\n")
        self._child = Child("tests.functional.ironic.serve_ironic", folder / "ironic.output")
        self._http = requests.Session()
        self._http.trust_env = False
        self._http.headers["X-OpenStack-Ironic-API-Version"] = VERSION
        if basic:
            self._http.auth = (USER, PASSWORD)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._child.running

    def start(self) -> None:
        """Serve, on the same port as ever."""
        names = {
            "config_file": self._config,
            "database": self._database,
            "group_file": self._group_file,
        }
        self._child.start({**{name: str(path) for name, path in names.items()}, "port": self.port})

    def stop(self) -> None:
        """End it at once, because in order it may take half a minute."""
        if self._child.running:
            self._all(signal.SIGKILL)
            self._child.kill()

    def suspend(self) -> None:
        """Take connections but answer nothing, until ``resume``."""
        with suppress(ProcessLookupError):
            stopped.stop_group(int(self._group_file.read_text()))

    def resume(self) -> None:
        self._all(signal.SIGCONT)

    def credentials(self, url: str | None = None) -> dict[str, Value]:
        """``[ironic]`` of a client, of this server or of a proxy's ``url`` in front of it."""
        endpoint = url or self.url
        if self._basic:
            return {
                "auth_type": "http_basic",
                "username": USER,
                "password": PASSWORD,
                "endpoint_override": endpoint,
            }
        return {"auth_type": "none", "endpoint_override": endpoint}

    # --- what operators and deployers do ----------------------------------------------------------

    def create(self, resource_class: str | None = "baremetal-gold", **fields: Any) -> str:
        """A node that is powered off and enrolled; its uuid."""
        body = {
            "driver": "fake-hardware",
            "uuid": str(uuid.uuid4()),
            "resource_class": resource_class,
            "conductor_group": self._group,
            **fields,
        }
        node: str = self._call("POST", "/nodes", body)["uuid"]
        return node

    def available(self, resource_class: str | None = "baremetal-gold", **fields: Any) -> str:
        """A node that anybody can have."""
        node = self.create(resource_class, **fields)
        self.power(node, "off")
        self.provision(node, "manage", "manageable")
        self.provision(node, "provide", "available")
        return node

    def node(self, uuid: str) -> dict[str, Any]:
        """All of a node."""
        document: dict[str, Any] = self._call("GET", f"/nodes/{uuid}")
        return document

    def set(self, node: str, **fields: Any) -> None:
        """Give fields other values; None takes one away."""
        gone = [
            {"op": "remove", "path": f"/{name}"} for name, value in fields.items() if value is None
        ]
        changes = [
            *gone,
            *(
                {"op": "add", "path": f"/{name}", "value": value}
                for name, value in fields.items()
                if value is not None
            ),
        ]
        self._patiently(lambda: self._call("PATCH", f"/nodes/{node}", changes))

    def set_traits(self, node: str, *traits: str) -> None:
        self._patiently(lambda: self._call("PUT", f"/nodes/{node}/traits", {"traits": [*traits]}))

    def maintenance(self, node: str, *, on: bool) -> None:
        self._patiently(lambda: self._call("PUT" if on else "DELETE", f"/nodes/{node}/maintenance"))

    def power(self, node: str, target: str) -> None:
        """``on`` or ``off``, and wait until it is."""
        self._patiently(
            lambda: self._call("PUT", f"/nodes/{node}/states/power", {"target": f"power {target}"})
        )
        self.wait(node, lambda now: now["power_state"] == f"power {target}")

    def provision(self, node: str, target: str, *until: str) -> None:
        """Ask for a change of state, and wait until it is one of ``until``."""
        self._patiently(
            lambda: self._call("PUT", f"/nodes/{node}/states/provision", {"target": target})
        )
        if until:
            self.wait(node, lambda now: now["provision_state"] in until)

    def deploy(self, node: str, instance: str) -> None:
        """What a deployer does: set the instance, then have it deployed."""
        self.set(node, instance_uuid=instance)
        self.provision(node, "active", "active")

    def delete(self, node: str) -> None:
        """Take it out of ironic for good, whoever has it."""
        self.maintenance(node, on=True)
        if self.node(node)["instance_uuid"]:
            self.set(node, instance_uuid=None)
        self._patiently(lambda: self._call("DELETE", f"/nodes/{node}"))

    def clear(self) -> None:
        """Have no nodes."""
        while nodes := self._call("GET", "/nodes?fields=uuid")["nodes"]:
            for one in nodes:
                self.delete(one["uuid"])

    def wait(self, node: str, reached: Callable[[Mapping[str, Any]], bool]) -> None:
        """Until the node is as it should be, and nobody works on it."""
        end = time.monotonic() + SOON
        while not (reached(now := self.node(node)) and not now["reservation"]):
            assert time.monotonic() < end, (
                f"node {node} stays in {now['provision_state']}, {now['power_state']}: "
                f"{now['last_error']}"
            )
            time.sleep(0.05)

    # --- parts ------------------------------------------------------------------------------------

    def _patiently(self, work: Callable[[], object]) -> None:
        """Again and again while the conductor works on the node."""
        end = time.monotonic() + SOON
        while True:
            try:
                work()
                return
            except requests.HTTPError as error:
                assert error.response.status_code == 409 and time.monotonic() < end, (
                    error.response.text
                )
                time.sleep(0.1)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, f"{self.url}/v1{path}", json=body, timeout=30)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def _all(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(int(self._group_file.read_text()), number)

    def _options(self, group: str, page: int, slow: int) -> Config:
        folder, interfaces = self._folder, {f"enabled_{name}_interfaces": "fake" for name in FAKES}
        return {
            "DEFAULT": {
                "auth_strategy": "http_basic" if self._basic else "noauth",
                "http_basic_auth_user_file": folder / "htpasswd",
                "enabled_hardware_types": "fake-hardware",
                **interfaces,
                "enabled_network_interfaces": "noop",
                "default_network_interface": "noop",
                "enabled_storage_interfaces": "noop",
                "rpc_transport": "none",
                "host": "conductor",
                "my_ip": "127.0.0.1",
                "state_path": folder / "state",
                "log_file": folder / "ironic.log",
            },
            "api": {"host_ip": "127.0.0.1", "port": self.port, "max_limit": page},
            "database": {"connection": f"sqlite:///{self._database}", "sqlite_synchronous": False},
            "conductor": {
                "automated_clean": False,
                "sync_power_state_interval": 60,
                "conductor_group": group,
            },
            "deploy": {"http_root": folder / "http"},
            "pxe": {
                name: folder / name
                for name in ("tftp_root", "images_path", "instance_master_path", "tftp_master_path")
            },
            "oslo_concurrency": {"lock_path": folder / "lock"},
            "service_catalog": {"auth_type": "none", "endpoint_override": self.url},
            "fake": {"deploy_delay": slow},
            "inspector": {"require_managed_boot": False},
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
