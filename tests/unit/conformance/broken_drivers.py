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


@breaks("facts-immutable")
class GivesItsOwnMapping(SoundDriver):
    traits: dict[str, bool]

    def facts(self, name: str) -> HostFacts:
        self.traits = getattr(self, "traits", {})
        self.traits[f"CUSTOM_T{len(self.traits)}"] = True
        return self.described(name, traits=self.traits)


@breaks("tree-own")
class RemovesChildren(SoundDriver):
    def shape(self, tree: Any, facts: HostFacts, allocations: Any) -> None:
        for child in tree.children(tree.roots[0].uuid):
            tree.remove(child)


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


# Those whose one method gives something else than it should.
for _check, _name, _method, _gives in (
    (
        "read-only",
        "Writes",
        "start",
        lambda self, host: SoundDriver.start(self, replace(host, read_only=False)),
    ),
    (
        "restart",
        "NewUuids",
        "start",
        lambda self, host: SoundDriver.start(self, replace(host, identity=str(uuid.uuid4()))),
    ),
    (
        "nodes-mapping",
        "NoUuid",
        "nodes",
        lambda self, refresh=False: {**SoundDriver.nodes(self, refresh), "third": "node-3"},
    ),
    (
        "nodes-mapping",
        "NoMapping",
        "nodes",
        lambda self, refresh=False: list(SoundDriver.nodes(self, refresh).items()),
    ),
    (
        "nodes-names",
        "SameName",
        "nodes",
        lambda self, refresh=False: dict.fromkeys(SoundDriver.nodes(self, refresh), NAMES[0]),
    ),
    ("deleted-listed", "SaysDeleted", "is_node_deleted", lambda self, name: bool(self.started)),
    ("mark-stable", "MarkIsAList", "mark", lambda self, name: [name]),
    ("facts-node", "OtherNode", "facts", lambda self, name: self.described("node-9")),
    (
        "facts-types",
        "NoFacts",
        "facts",
        lambda self, name: {"name": name} if self.started else None,
    ),
    (
        "capabilities-names",
        "UnknownCapability",
        "capabilities_as_traits",
        lambda self: {"COMPUTE_MAGIC": True},
    ),
    (
        "capabilities-names",
        "CapabilityIsANumber",
        "capabilities_as_traits",
        lambda self: {"COMPUTE_DEVICE_TAGGING": 1},
    ),
    (
        "tree-own",
        "ReplacesTraits",
        "shape",
        lambda self, tree, facts, allocations: tree.update_traits(
            tree.roots[0].uuid, ["CUSTOM_OWN"]
        ),
    ),
    (
        "tree-own",
        "ReplacesInventory",
        "shape",
        lambda self, tree, facts, allocations: tree.update_inventory(
            tree.roots[0].uuid, {"CUSTOM_OWN": {"total": 1}}
        ),
    ),
    (
        "tree-valid",
        "UnknownClass",
        "shape",
        lambda self, tree, facts, allocations: tree.update_inventory(
            self.put_licences(tree, 5), {"LICENCE": {"total": 5}}
        ),
    ),
    ("option-warnings-lines", "WarnsInOneText", "option_warnings", lambda self: "one text"),
    ("hanging-count", "NegativeCount", "hanging", property(lambda self: -1)),
    ("lease-name", "NoLease", "lease", lambda self: ""),
    ("lease-shared", "LeaseOfTheHost", "lease", lambda self: f"nodes of {self.started.name}"),
    ("subscribe-names", "TellsNoName", "subscribe", lambda self, changed: changed(None)),
    (
        "subscribe-names",
        "TellsAUuid",
        "subscribe",
        lambda self, changed: changed(next(iter(self.nodes()))),
    ),
):
    breaks(_check)(type(_name, (SoundDriver,), {_method: _gives}))
