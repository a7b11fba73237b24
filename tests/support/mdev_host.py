"""A host with mediated devices and encrypted memory: its facts, and what Placement has of its
children.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.model.devices import EncryptionFacts, Mdev, MdevParent
from agent.model.facts import Cell, CpuFacts, HostFacts, Topology
from agent.model.names import ConsumerUuid
from tests.support.agent import NAME
from tests.support.placement import PlacementServer

P06, P07 = "0000:06:00.0", "0000:07:00.0"
CHILD_06, CHILD_07 = f"{NAME}_pci_0000_06_00_0", f"{NAME}_pci_0000_07_00_0"
T1, T2 = "nvidia-35", "nvidia-36"
CELLS = Topology((Cell(0, frozenset({0, 1, 2, 3}), 16000), Cell(1, frozenset({4, 5, 6, 7}), 15913)))

Facts = Callable[[str], HostFacts]


def parent(
    name: str,
    available: Mapping[str, int],
    owners: Sequence[str | None] = (),
    mdev_type: str = T1,
    **more: Any,
) -> MdevParent:
    """A parent with a device of ``mdev_type`` for each of ``owners``."""
    devices = tuple(
        Mdev(
            f"{name[5:7]:0>8}-0000-4000-8000-{number:012}",
            mdev_type,
            ConsumerUuid(owner) if owner else None,
        )
        for number, owner in enumerate(owners)
    )
    return MdevParent(name, available=available, mdevs=devices, **more)


def host_of(*parents: MdevParent, **sections: Any) -> Facts:
    """The facts of a host with these parents. ``contexts``: of encrypted memory, by technique;
    ``incomplete``: a list of sections.
    """
    contexts, incomplete = (
        sections.pop("contexts", None),
        dict.fromkeys(sections.pop("incomplete", ()), "it broke"),
    )
    return lambda name: HostFacts(
        name,
        time.time(),
        "QEMU",
        cpu=CpuFacts(frozenset(range(8))),
        memory_mib=31913,
        disk_gib=439,
        numa=CELLS,
        incomplete=incomplete,
        **{
            "mdev": parents,
            "encryption": None if contexts is None else EncryptionFacts(contexts),
            **sections,
        },
    )


def counted(
    placement: PlacementServer, *classes: str
) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Total, reserved and max_unit of the classes, by provider; those that have none
    are left out.
    """
    providers = placement.dump()["providers"].values()
    found = {
        one["name"]: {
            name: (record["total"], record["reserved"], record["max_unit"])
            for name, record in one["inventories"].items()
            if name in classes
        }
        for one in providers
    }
    return {name: records for name, records in found.items() if records}


def names(placement: PlacementServer) -> set[str]:
    """What the node's children are called, but the cells."""
    return {one["name"] for one in placement.dump()["providers"].values()} - {
        NAME,
        f"{NAME}_NUMA0",
        f"{NAME}_NUMA1",
    }
