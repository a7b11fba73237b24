"""Drivers that break one promise each, by the name of the check that must find it. Some promises
can be broken in several ways.
"""

import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agent.driver.interface import HostContext, Instances
from agent.errors import ConfigError, NotReady, ReshapeNeeded
from agent.model.facts import CpuFacts, HostFacts
from tests.support.sound_driver import NAMES, SoundDriver

BROKEN: dict[str, list[type[SoundDriver]]] = {}


def breaks(check: str) -> Callable[[type[SoundDriver]], type[SoundDriver]]:
    def listed(driver: type[SoundDriver]) -> type[SoundDriver]:
        BROKEN.setdefault(check, []).append(driver)
        return driver

    return listed


def raising(name: str) -> type[SoundDriver]:
    """A driver whose method ``name`` raises KeyError while it should work."""

    def method(self: SoundDriver, *_args: Any, **_more: Any) -> Any:
        if name in ("nodes", "facts", "is_node_deleted"):
            assert self.started
        raise KeyError(name)

    return type(f"Raising_{name}", (SoundDriver,), {name: method})


for _name in (
    "start",
    "nodes",
    "facts",
    "is_node_deleted",
    "check",
    "option_warnings",
    "shape",
    "update_provider_tree",
    "capabilities_as_traits",
    "subscribe",
    "mark",
    "lease",
    "with_instances",
):
    breaks(_name)(raising(_name))


@breaks("hanging")
class HangingRaises(SoundDriver):
    @property
    def hanging(self) -> int:
        raise RuntimeError("not counted")


@breaks("stop")
class StopRaises(SoundDriver):
    def stop(self) -> None:
        started, self.host = self.host, None
        if started:
            raise OSError("the connection was closed already")


@breaks("ready")
class NotAlwaysReady(SoundDriver):
    calls = 0

    def is_node_deleted(self, name: str) -> bool:
        self.calls += 1
        if self.calls % 2:
            raise NotReady("busy")
        return super().is_node_deleted(name)


@breaks("stop-unstarted")
class StopsWhatIsNotThere(SoundDriver):
    connection: Any = None

    def start(self, host: HostContext) -> None:
        super().start(host)
        self.connection = socket

    def stop(self) -> None:
        super().stop()
        assert self.connection.__name__


@breaks("stop-again")
class StopsOnce(SoundDriver):
    stopped = False

    def stop(self) -> None:
        if self.host is None and self.stopped:
            raise RuntimeError("stopped twice")
        self.stopped = self.host is not None
        super().stop()


@breaks("after-stop")
class FailsAfterStop(SoundDriver):
    def facts(self, name: str) -> HostFacts:
        if self.host is None:
            raise AttributeError("no connection")
        return super().facts(name)


@breaks("read-only")
class Writes(SoundDriver):
    def start(self, host: HostContext) -> None:
        super().start(replace(host, read_only=False))


@breaks("restart")
class NewUuids(SoundDriver):
    def start(self, host: HostContext) -> None:
        super().start(replace(host, identity=str(uuid.uuid4())))


@breaks("threads")
class OneThreadAtATime(SoundDriver):
    busy = False

    def __init__(self, conf: Any = None) -> None:
        super().__init__(conf)
        self.met = threading.Event()

    def subscribe(self, changed: Callable[[str], None]) -> None:
        pass

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        if self.busy:
            self.met.set()
            raise RuntimeError("another thread is in here")
        self.busy = True
        # Until another thread comes, while the suite has several.
        threads = [thread.name for thread in threading.enumerate()]
        if any(name.startswith("ThreadPoolExecutor") for name in threads):
            self.met.wait(60)
        self.busy = False
        return super().nodes(refresh)


@breaks("nodes-mapping")
class NoUuid(SoundDriver):
    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        return {**super().nodes(refresh), "third": "node-3"}


@breaks("nodes-mapping")
class NoMapping(SoundDriver):
    def nodes(self, refresh: bool = False) -> Any:
        return list(super().nodes(refresh).items())


@breaks("nodes-names")
class SameName(SoundDriver):
    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        return dict.fromkeys(super().nodes(refresh), NAMES[0])


@breaks("nodes-names")
class LongName(SoundDriver):
    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        third = str(uuid.uuid5(uuid.UUID(self.started.identity), "long"))
        return {**super().nodes(refresh), third: "n" * 201}

    def is_node_deleted(self, name: str) -> bool:
        return not self.started

    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        pass


@breaks("nodes-stable")
class ForgetsNodes(SoundDriver):
    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        found = super().nodes(refresh)
        return found if refresh else dict(list(found.items())[:1])


@breaks("deleted-listed")
class SaysDeleted(SoundDriver):
    def is_node_deleted(self, name: str) -> bool:
        return bool(self.started)


@breaks("deleted-listed")
class SaysNone(SoundDriver):
    def is_node_deleted(self, name: str) -> Any:
        assert self.started


@breaks("mark-stable")
class MarksTheList(SoundDriver):
    lists = 0

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        self.lists += 1
        return super().nodes(refresh)

    def mark(self, name: str) -> int:
        return self.lists


@breaks("mark-stable")
class MarkIsAList(SoundDriver):
    def mark(self, name: str) -> Any:
        return [name]


@breaks("facts-node")
class OtherNode(SoundDriver):
    def facts(self, name: str) -> HostFacts:
        return self.described("node-9")


def describing(**fields: Any) -> type[SoundDriver]:
    """A driver with these fields in its facts."""

    def facts(self: SoundDriver, name: str) -> HostFacts:
        return self.described(name, **fields)

    return type(f"Describing_{next(iter(fields))}", (SoundDriver,), {"facts": facts})


for _name, _fields in (
    ("facts-types", {"memory_mib": -1}),
    ("facts-incomplete", {"incomplete": {"gpu": "it does not answer"}}),
    ("facts-incomplete", {"incomplete": {"pci": ""}}),
    ("facts-sections", {"memory_mib": None}),
    ("facts-time", {"taken_at": time.monotonic()}),
    ("facts-traits", {"traits": {"HW_CPU_X86_AVX9000": True}}),
    ("facts-immutable", {"cpu": CpuFacts({0, 1, 2, 3})}),  # type: ignore[arg-type]
):
    breaks(_name)(describing(**_fields))


@breaks("facts-types")
class NoFacts(SoundDriver):
    def facts(self, name: str) -> Any:
        return {"name": name} if self.started else None


@breaks("facts-immutable")
class GivesItsOwnMapping(SoundDriver):
    traits: dict[str, bool]

    def facts(self, name: str) -> HostFacts:
        self.traits = getattr(self, "traits", {})
        self.traits[f"CUSTOM_T{len(self.traits)}"] = True
        return self.described(name, traits=self.traits)


@breaks("capabilities-names")
class UnknownCapability(SoundDriver):
    def capabilities_as_traits(self) -> Mapping[str, bool]:
        return {"COMPUTE_MAGIC": True}


@breaks("capabilities-names")
class CapabilityIsANumber(SoundDriver):
    def capabilities_as_traits(self) -> Any:
        return {"COMPUTE_DEVICE_TAGGING": 1}


@breaks("tree-own")
class ReplacesTraits(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        tree.update_traits(tree.roots[0].uuid, ["CUSTOM_OWN"])


@breaks("tree-own")
class RemovesChildren(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        for child in tree.children(tree.roots[0].uuid):
            tree.remove(child)


@breaks("tree-own")
class ReplacesInventory(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        tree.update_inventory(tree.roots[0].uuid, {"CUSTOM_OWN": {"total": 1}})


@breaks("tree-valid")
class UnknownClass(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        tree.update_inventory(self.put_licences(tree, 5), {"LICENCE": {"total": 5}})


@breaks("tree-valid")
class ReservesTooMuch(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        record = {"total": 5, "reserved": 6}
        tree.update_inventory(self.put_licences(tree, 5), {"CUSTOM_LICENCE": record})


@breaks("tree-again")
class DoesNotAsk(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        if allocations is None:
            tree.new_child(f"{tree.roots[0].name}_licences", tree.roots[0].uuid)


@breaks("tree-again")
class AddsUp(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        name = f"{tree.roots[0].name}_licences"
        there = tree.data(name).inventory if tree.exists(name) else {}
        if allocations is None:
            self.put_licences(tree, 5 + there.get("CUSTOM_LICENCE", {}).get("total", 0))


@breaks("tree-allocations")
class EditsAllocations(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        self.put_licences(tree, 5)
        for consumer in allocations or ():
            allocations[consumer]["allocations"] = {}


@breaks("tree-allocations")
class AlwaysReshapes(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        if allocations is None:
            raise ReshapeNeeded


@breaks("shape-pure")
class ShapesFromMemory(SoundDriver):
    calls = 0

    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        self.calls += 1
        if not tree.exists(f"{tree.roots[0].name}_licences"):
            self.put_licences(tree, self.calls)


@breaks("option-warnings-lines")
class WarnsInOneText(SoundDriver):
    def option_warnings(self) -> str:
        return "one text"


@breaks("hanging-count")
class NegativeCount(SoundDriver):
    @property
    def hanging(self) -> int:
        return -1


@breaks("lease-name")
class NoLease(SoundDriver):
    def lease(self) -> str:
        return ""


@breaks("lease-shared")
class LeaseOfTheHost(SoundDriver):
    def lease(self) -> str:
        return f"nodes of {self.started.name}"


@breaks("subscribe-names")
class TellsNoName(SoundDriver):
    def subscribe(self, changed: Callable[[Any], None]) -> None:
        changed(None)


@breaks("subscribe-names")
class TellsAUuid(SoundDriver):
    def subscribe(self, changed: Callable[[str], None]) -> None:
        changed(next(iter(self.nodes())))


@breaks("subscribe-lock")
class HoldsALock(SoundDriver):
    def __init__(self, conf: Any = None) -> None:
        super().__init__(conf)
        self.lock = threading.Lock()

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        with self.lock:
            return super().nodes(refresh)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        with self.lock:
            changed(NAMES[0])


@breaks("instances-nodes")
class TakesOthersNodes(SoundDriver):
    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        found = dict(super().nodes(refresh))
        held: Instances | None = self.instances
        if held is not None and held.elsewhere(["instance"]):
            found[str(uuid.uuid5(uuid.UUID(self.started.identity), "third"))] = "node-3"
        return found


@breaks("constructor")
class MadeOnce(SoundDriver):
    made = False

    def __init__(self, conf: Any = None) -> None:
        if MadeOnce.made:
            raise ConfigError("the socket is bound already")
        MadeOnce.made = True
        super().__init__(conf)
