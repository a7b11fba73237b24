"""What a driver reported is a copy of ours wherever the driver could change it afterwards."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any, cast

from agent.driver.answers import own_copy
from agent.model.devices import PciAddress, PciDevice
from agent.model.facts import CpuFacts, Domain, HostFacts
from agent.model.host_units import AssignableUnit, EncryptionFacts, MdevParent
from agent.model.instance import GuestCell, PlacedCell
from agent.model.names import ConsumerUuid
from agent.model.topology import Cell, Topology


def changeable(*members: int) -> frozenset[int]:
    """A set that can be changed, where one is expected that cannot."""
    return cast(frozenset[int], set(members))


def _facts() -> HostFacts:
    cell = Cell(
        0, changeable(0, 1), 1024, (), {0: 10}, (changeable(0, 1), frozenset({2})), changeable(0)
    )
    guest = GuestCell(changeable(0), changeable(1), 64)
    return HostFacts(
        "node-a",
        1.0,
        "test",
        cpu=CpuFacts(changeable(0, 1), sleeping=changeable(2)),
        memory_mib=1024,
        disk_gib=10,
        numa=Topology((cell,)),
        pci=(PciDevice(PciAddress(0, 1, 2, 3), "8086", "1521"),),
        mdev=(MdevParent("0000:01:00.0", available={"nvidia-11": 4}),),
        encryption=EncryptionFacts({"sev": 4}),
        domains=(
            Domain(
                ConsumerUuid("11111111-2222-4333-8444-555555555555"),
                "guest",
                64,
                cells=(PlacedCell(guest, 0, pins={1: 1}, reserved=changeable(2)),),
            ),
        ),
        units=(AssignableUnit("CUSTOM_UNIT", "unit-1", metadata={"slot": "1"}),),
        traits={"HW_CPU_X86_AVX": True},
        incomplete={"mdev": "one is unreadable"},
    )


def _parts(value: Any, path: str = "facts") -> Iterator[tuple[str, Any]]:
    yield path, value
    if is_dataclass(value):
        for field in fields(value):
            yield from _parts(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from _parts(part, f"{path}[{number}]")


def test_mappings_and_sets_are_copies_and_equal():
    reported = _facts()
    before = dict(_parts(reported))
    after = dict(_parts(own_copy(reported)))
    assert after == before
    copied = [path for path, part in before.items() if isinstance(part, Mapping | Set)]
    assert len(copied) >= 16
    for path in copied:
        can_change = not isinstance(before[path], frozenset)
        assert (after[path] is not before[path]) == can_change, path
        assert type(after[path]) in (dict, frozenset), path


def test_what_cannot_be_changed_is_not_copied():
    reported = _facts()
    assert own_copy(reported).pci is reported.pci
