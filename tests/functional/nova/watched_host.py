"""A host that another program manages, on the real Placement, and an agent that observes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.functional.cli.setups import host_file, merged, on
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000b001"
GPU = "0000:3b:00.0"
SMALL = {"id": "7", "name": "m1.small", "vcpus": 1, "memory_mb": 2048, "root_gb": 20}
HELD = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
ALLOCATION = "openstack --os-placement-api-version 1.28 resource provider allocation"
HEAL = "nova-manage placement heal_allocations --instance"
MARKS = {"OWNER_NOVA", "CUSTOM_COMPUTE_NODE_AGENT_NODE_A"}


def a_guest(uuid: str, name: str, **more: Any) -> dict[str, Any]:
    origin = {"flavor": SMALL, "project_id": "project", "user_id": "user"}
    return {"uuid": uuid, "name": name, "memory_mib": 2048, "vcpus": 1, "origin": origin, **more}


def at_rest(uuid: str, node: str = "node-a") -> str:
    """The condition that nova has a server on ``node`` and does nothing to it."""
    statuses = "ACTIVE|ERROR|PAUSED|RESCUE|SHELVED|SHELVED_OFFLOADED|SHUTOFF|SUSPENDED"
    shown = "-c OS-EXT-STS:task_state -c status -c OS-EXT-SRV-ATTR:host"
    return f"openstack server show -f value {shown} {uuid} | xargs | grep -xE '{node} None ({statuses})' && "


def unknown(uuid: str) -> str:
    """The condition that nova knows no such server."""
    return f"openstack server show {uuid} 2>&1 | grep -i '^no server' && "


def host(*guests: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "uuid": ROOT,
        "disk_gib": 500,
        "cells": [
            {"id": cell, "cpus": f"{8 * cell}-{8 * cell + 7}", "memory_mib": 16384}
            for cell in range(2)
        ],
        "pci": [{"address": GPU, "vendor_id": "10de", "product_id": "1db4", "numa_node": 0}],
        "guests": list(guests),
    }


class Watched:
    """A host that another program manages, and an agent that observes it."""

    def __init__(self, folder: Path, placement: HttpPlacement) -> None:
        self.folder, self.placement, self.other = folder, placement, placement.other
        self.agent = AgentHere(folder / "agent")

    def has(self, *guests: Mapping[str, Any], **options: Any) -> None:
        self.is_host(host(*guests), **options)

    def is_host(self, described: Mapping[str, Any], **options: Any) -> None:
        self.agent.configure(self.config(self.agent, described, options))

    def config(
        self, agent: AgentHere, described: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any:
        # As nova writes it beside its instances.
        identity = agent.folder / "nova"
        identity.mkdir(exist_ok=True)
        (identity / "compute_id").write_text(ROOT)
        own = {
            "DEFAULT": {"state_path": identity},
            "fake": {"host_file": host_file(agent, described)},
            "compute": {"tree_layout": "flat"},
        }
        return merged(on(self.placement, "fake.file"), own, options)

    def as_nova_has_it(self, described: Mapping[str, Any] | None = None, **options: Any) -> None:
        """Bring the node into Placement as the host is, without the marks of an agent."""
        manager = AgentHere(self.folder / "manager")
        manager.configure(self.config(manager, described or host(), options))
        assert manager.run("--once").code == 0
        self.other.set_traits(ROOT, self.other.traits(ROOT) - MARKS)
        self.placement.clear()

    def provider(self, name: str) -> str:
        """The uuid of the provider called ``name`` below the root."""
        return next(row["uuid"] for row in self.other.tree(ROOT) if row["name"] == f"node-a_{name}")

    def observe(self, *arguments: str) -> Any:
        """What an audit finds of the node. Nothing was written."""
        before = self.placement.dump()
        found = self.agent.run("--once", "--observe", "--format", "json", *arguments)
        assert {request.method for request in self.placement.requests} <= {"GET"}
        assert self.placement.dump() == before
        assert not self.agent.store.exists()
        (node,) = found.json["nodes"]
        return node
