"""States of nodes for tests of the pure plans, made of records."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

from agent.model.instance import Amounts, GuestCell, PlacedCell, TaskState, VmState
from agent.model.names import ProviderUuid
from agent.model.node_records import Claim, ComputeNode, MigrationStatus, MigrationType, NodeRecords
from agent.numa.host import HostCell
from agent.tracker.node_record import HostCapacity
from agent.tracker.node_state import NodeState
from tests.unit.store.record_samples import device, instance, node

TYPES = sorted(get_args(MigrationType))
STATUSES = sorted(get_args(MigrationStatus))
VM_STATES = sorted(get_args(VmState))
TASK_STATES = sorted(get_args(TaskState))
RESERVED = Amounts(512, 1, 2048)
# Always the same, because they are in the names of tests.
HERE = replace(node("n1", "HA"), uuid=ProviderUuid("5d1c9d7e-8b0a-4a52-9f63-000000000001"))
ELSEWHERE = replace(node("n2", "HB"), uuid=ProviderUuid("5d1c9d7e-8b0a-4a52-9f63-000000000002"))


def host_cells() -> tuple[HostCell, ...]:
    """Two cells of 4 dedicated and 4 shared CPUs and 16 GiB each."""
    return tuple(
        HostCell(
            number,
            frozenset(range(8 * number, 8 * number + 4)),
            frozenset(range(8 * number + 4, 8 * number + 8)),
            16384,
        )
        for number in range(2)
    )


HOST = HostCapacity(RESERVED, host_cells(), cells_known=True, mdevs=())


def pinned(cell: int, *cpus: int, memory_mib: int = 1024) -> PlacedCell:
    """A guest cell whose CPUs are pinned to these ones of the host."""
    return PlacedCell(
        GuestCell(frozenset(), frozenset(range(len(cpus))), memory_mib),
        cell,
        None,
        dict(enumerate(cpus)),
    )


def state(
    *, on: ComputeNode = HERE, host: HostCapacity = HOST, **records: Iterable[Any]
) -> NodeState:
    """The state of a node with these records."""
    return NodeState.of(
        NodeRecords(on, **{name: tuple(some) for name, some in records.items()}), host
    )


def gpus(count: int, **fields: Any) -> list[Any]:
    """So many free devices of one kind."""
    return [
        device(HERE, f"0000:{number:02x}:00.0", tags={"kind": "gpu"}, **fields)
        for number in range(count)
    ]


def guest_here(**fields: Any) -> Any:
    """An instance that the node has."""
    return instance(host=HERE.host, node=HERE.uuid, **fields)


def holder(claim: Claim) -> dict[str, str]:
    """The fields of a device that the claim has."""
    return {"holder": claim.id, "state": "allocated"}
