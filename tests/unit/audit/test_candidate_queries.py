"""The queries that explain a request: a variant that takes too long ends the search, and so does the
time of the whole.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import pytest

from agent.audit import suggesting
from agent.audit.suggesting import CandidateQueries
from agent.driver.answers import faults_of, own_copy
from agent.errors import PlacementUnreachable
from agent.explain.host_answer import BudgetSpent
from agent.model.devices import AssignableUnit, EncryptionFacts, MdevParent, PciAddress, PciDevice
from agent.model.facts import Cell, CpuFacts, Domain, HostFacts, Topology
from agent.model.instance import GuestCell, PlacedCell
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.placement.allocations.candidates import CandidateQuery, Candidates, parse_query

QUERY = parse_query(["resources=VCPU:1"])


def asking(monkeypatch: pytest.MonkeyPatch, kind: str) -> tuple[CandidateQueries, list[Any]]:
    """Queries of which the second fails, and what was asked."""
    asked: list[Any] = []

    def answer(_client: Any, query: CandidateQuery) -> Candidates:
        asked.append(query)
        if len(asked) == 2:
            raise PlacementUnreachable("no answer", kind=kind)
        return Candidates((), {}, "")

    monkeypatch.setattr(suggesting, "candidates", answer)
    client: Any = None
    return CandidateQueries(client, ProviderUuid("root")), asked


@pytest.mark.parametrize("kind", ["slow", "timeout"])
def test_a_variant_that_takes_too_long_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    queries, asked = asking(monkeypatch, kind)
    assert not queries.has_candidates(QUERY)
    for _ in range(3):
        with pytest.raises(BudgetSpent):
            queries.has_candidates(QUERY)
    assert len(asked) == queries.asked == 2


def test_another_failure_is_no_end_of_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, _asked = asking(monkeypatch, "connect")
    queries.has_candidates(QUERY)
    with pytest.raises(PlacementUnreachable):
        queries.has_candidates(QUERY)


def test_no_further_query_is_sent_after_the_time_of_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suggesting, "LONGEST_SEARCH", 0.0)
    queries, asked = asking(monkeypatch, "connect")
    queries.ask(QUERY)
    with pytest.raises(BudgetSpent):
        queries.has_candidates(QUERY)
    assert len(asked) == 1


# --- what a driver reported is a copy of ours wherever the driver could change it afterwards ---


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
    after = dict(_parts(own_copy(reported, HostFacts, "the facts")))
    assert after == before
    copied = [path for path, part in before.items() if isinstance(part, Mapping | Set)]
    assert len(copied) >= 16
    for path in copied:
        can_change = not isinstance(before[path], frozenset)
        assert (after[path] is not before[path]) == can_change, path
        assert type(after[path]) in (dict, frozenset), path


def test_what_cannot_be_changed_is_not_copied():
    reported = _facts()
    assert own_copy(reported, HostFacts, "the facts").pci is reported.pci


def test_a_text_is_no_set_and_no_mapping():
    facts = _facts()
    assert facts.cpu is not None and facts.mdev is not None and facts.domains is not None
    wrong = [
        (replace(facts, incomplete=cast(Any, "numa")), HostFacts),
        (replace(facts.cpu, features=cast(Any, "vmx")), CpuFacts),
        (replace(facts.domains[0], image_properties=cast(Any, "hw_qemu")), Domain),
        (replace(facts.mdev[0], available=cast(Any, "nvidia-35")), MdevParent),
    ]
    assert [len([*faults_of(value, kind)]) for value, kind in wrong] == [1, 1, 1, 1]
