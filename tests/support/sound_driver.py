"""A driver that has every ability of the interface and keeps every promise, for tests that break one
of them.
"""

import time
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from agent.driver.interface import Allocations, HostContext, Instances
from agent.errors import NotReady
from agent.model.facts import CpuFacts, HostFacts
from agent.model.provider_tree import ProviderTree

NAMES = ("node-1", "node-2")


class SoundDriver:
    """Two nodes, each with a child that counts licences."""

    def __init__(self, _conf: Any = None) -> None:
        self.host: HostContext | None = None
        self.instances: Instances | None = None

    def check(self, host: str) -> None:
        pass

    def option_warnings(self) -> Sequence[str]:
        return ["[sound] option: it does something else than it seems to"]

    def start(self, host: HostContext) -> None:
        self.host = host
        if not host.read_only:
            (host.state_path / "sound-driver").write_text("started")

    def stop(self) -> None:
        self.host = None

    @property
    def started(self) -> HostContext:
        if self.host is None:
            raise NotReady("the sound driver is not started")
        return self.host

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        namespace = uuid.UUID(self.started.identity)
        return {str(uuid.uuid5(namespace, name)): name for name in NAMES}

    def facts(self, name: str) -> HostFacts:
        return self.described(name)

    def described(self, name: str, **fields: Any) -> HostFacts:
        assert self.started
        given: dict[str, Any] = {
            "name": name,
            "taken_at": time.time(),
            "hypervisor_type": "sound",
            "cpu": CpuFacts(frozenset(range(4))),
            "memory_mib": 4096,
            "disk_gib": 100,
            "traits": {"HW_CPU_X86_AVX": True},
        }
        return HostFacts(**{**given, **fields})

    def is_node_deleted(self, name: str) -> bool:
        assert self.started
        return name not in NAMES

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:
        self.put_licences(tree, 5)

    def put_licences(self, tree: ProviderTree, total: int) -> str:
        root = tree.roots[0]
        name = f"{root.name}_licences"
        if not tree.exists(name):
            tree.new_child(name, root.uuid)
        tree.update_inventory(name, {"CUSTOM_LICENCE": {"total": total, "max_unit": total}})
        tree.add_traits(name, "CUSTOM_LICENCES")
        return name

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        return {"COMPUTE_DEVICE_TAGGING": True, "COMPUTE_RESCUE_BFV": False}

    def subscribe(self, changed: Callable[[str], None]) -> None:
        changed(NAMES[0])

    @property
    def hanging(self) -> int:
        return 0

    def mark(self, name: str) -> Hashable:
        return (name, 5)

    def lease(self) -> str:
        return "sound nodes"

    def with_instances(self, instances: Instances) -> None:
        self.instances = instances
