"""A report built by hand, as an audit of one host with two NUMA cells would give it."""

from agent.model.finding import Drift, Problem
from agent.model.inventory import Allocation, completed
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import (
    CreateProvider,
    DeleteAllocations,
    DeleteProvider,
    EnsureTrait,
    ProviderRef,
    RenameProvider,
    ReparentProvider,
    Reshape,
    SetAggregates,
    SetAllocations,
    SetInventory,
    SetTraits,
)
from agent.model.provider_tree import SHARING_TRAIT, ProviderTree
from agent.model.report import NodeReport, Outcome, Report, Usage
from agent.render.json_report import StoredTree

ROOT = ProviderUuid("2f0c1a5e-9b1d-4a9c-8a0e-0d6b6c1f7a11")
CELL = ProviderUuid("663e183e-9bd4-510f-bebf-c8f559338776")
GONE = ProviderUuid("1cf9c729-965e-54d5-9741-89f3f37e572b")
FOREIGN = ProviderUuid("e5591d63-91ab-5b18-b087-83b388d8de1c")
SHARED = ProviderUuid("f1572d6e-ec8a-56ba-91b6-f280d9840406")
AGGREGATE = "aaaaaaaa-9b1d-4a9c-8a0e-0d6b6c1f7a11"
CONSUMER = ConsumerUuid("bbbbbbbb-9b1d-4a9c-8a0e-0d6b6c1f7a11")
ELSEWHERE = ProviderUuid("cccccccc-9b1d-4a9c-8a0e-0d6b6c1f7a11")

ROOT_REF = ProviderRef(ROOT, "node-1")
CELL_REF = ProviderRef(CELL, "node-1_NUMA0")
OLD_VCPU = completed({"total": 32, "allocation_ratio": 4.0})
NEW_VCPU = completed({"total": 64, "reserved": 2, "allocation_ratio": 4.0})
PCPU = completed({"total": 24, "max_unit": 24})


def tree() -> ProviderTree:
    made = ProviderTree()
    made.new_root("node-1", ROOT, 4)
    made.update_inventory(
        ROOT,
        {
            "VCPU": {"total": 64, "reserved": 2, "allocation_ratio": 4.0},
            "MEMORY_MB": {"total": 257000},
            "DISK_GB": {"total": 0},
        },
    )
    made.update_traits(ROOT, ["OWNER_NOVA", "COMPUTE_NODE"])
    made.update_aggregates(ROOT, [AGGREGATE])
    made.new_child("node-1_NUMA0", ROOT, CELL)
    made.update_inventory(CELL, {"PCPU": PCPU})
    made.new_child("accelerator", ROOT, FOREIGN, 7)
    made.new_root("share", SHARED, 3)
    made.update_traits(SHARED, [SHARING_TRAIT])
    return made


def outcomes() -> tuple[Outcome, ...]:
    moved = Allocation(CONSUMER, {CELL: {"PCPU": 2}}, "project", "user", 1)
    held = Allocation(
        CONSUMER, {ROOT: {"VCPU": 2, "MEMORY_MB": 2048}, CELL: {"PCPU": 1}}, "project", "user", 1
    )
    both = Allocation(CONSUMER, {ROOT: {"VCPU": 2}, ELSEWHERE: {"VCPU": 2}}, "project", "user", 1)
    return (
        Outcome(EnsureTrait(name="CUSTOM_GOLD", reason="the driver wants it"), "done"),
        Outcome(CreateProvider(provider=CELL_REF, parent=ROOT, reason="new cell"), "done"),
        Outcome(RenameProvider(provider=ROOT_REF, old_name="old-1", reason="renamed"), "done"),
        Outcome(
            ReparentProvider(provider=CELL_REF, old_parent=None, parent=ROOT, reason="moved"),
            "done",
        ),
        Outcome(
            Reshape(
                reason="PCPU belongs to the cell",
                old_inventories={ROOT: {"PCPU": PCPU}, CELL: {}},
                inventories={ROOT: {}, CELL: {"PCPU": PCPU}},
                old_allocations={},
                allocations={CONSUMER: moved},
            ),
            "done",
        ),
        Outcome(
            SetInventory(
                provider=ROOT_REF,
                old={"VCPU": OLD_VCPU, "FPGA": PCPU},
                new={"VCPU": NEW_VCPU, "PCPU": PCPU},
                reason="facts differ",
            ),
            "done",
        ),
        Outcome(
            SetTraits(
                provider=ROOT_REF,
                old=frozenset({"OLD"}),
                new=frozenset({"NEW"}),
                reason="facts differ",
            ),
            "failed",
            "409 from\nPlacement",
        ),
        Outcome(
            SetAggregates(
                provider=ROOT_REF, old=frozenset(), new=frozenset({AGGREGATE}), reason="shares"
            ),
            "skipped",
        ),
        Outcome(
            DeleteProvider(
                provider=ProviderRef(GONE, "node-1_NUMA1"),
                inventory={"PCPU": PCPU},
                reason="cell is gone",
            ),
            "planned",
        ),
        Outcome(DeleteAllocations(old=held, reason="the instance is deleted"), "done"),
        Outcome(
            SetAllocations(old=both, new={ELSEWHERE: {"VCPU": 2}}, reason="it was evacuated"),
            "done",
        ),
    )


def node(**changes: object) -> NodeReport:
    values: dict[str, object] = {
        "name": "node-1",
        "uuid": ROOT,
        "driver": "fake",
        "state": "degraded",
        "attempts": 2,
        "outcomes": outcomes(),
        "drift": (
            Drift(
                "orphaned-allocation", "warning", "nobody knows it", "delete it", consumer=CONSUMER
            ),
            Drift("foreign-provider", "info", "is kept", "", provider=FOREIGN),
        ),
        "tree": tree(),
        "owned": frozenset({ROOT, CELL}),
        "used": {ROOT: {"VCPU": 12}},
        "usage": Usage(vcpus_used=2, memory_mb_used=512),
        "requests": {"GET": 3, "PUT": 2},
        "seconds": {"facts": 0.25, "total": 1.5},
        "errors": (Problem("placement.conflict", "somebody else wrote", "run again"),),
    }
    return NodeReport(**{**values, **changes})  # type: ignore[arg-type]


def stored(made: ProviderTree) -> StoredTree:
    return StoredTree("node-1", ROOT, "http://placement", made, frozenset({ROOT, CELL}))


def report(**changes: object) -> Report:
    values: dict[str, object] = {
        "version": "1.2.3",
        "host": "host-1",
        "mode": "http",
        "endpoint": "http://placement",
        "max_version": "1.39",
        "dry_run": False,
        "nodes": (node(),),
        "requests": {"GET": 1},
        "exit_code": 3,
        "seconds": 1.75,
    }
    return Report(**{**values, **changes})  # type: ignore[arg-type]
