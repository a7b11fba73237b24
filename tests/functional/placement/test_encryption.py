"""Contexts of encrypted memory in Placement."""

from typing import Any

import pytest

from agent.tree.policy import EncryptionPolicy, Policy
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, AgentUnderTest
from tests.support.mdev_host import counted, host_of, names
from tests.support.placement import PlacementServer

CLASS = "MEM_ENCRYPTION_CONTEXT"
SEV, SEV_ES, SEV_SNP, TDX = (
    f"{NAME}_{one}" for one in ("amd_sev", "amd_sev_es", "amd_sev_snp", "intel_tdx")
)
OPEN = {"sev": 15, "sev_es": 100}


@pytest.fixture
def made(host: Host) -> Any:
    def agent(
        contexts: Any, guests: int | None = None, on_root: Any = (), **sections: Any
    ) -> AgentUnderTest:
        agent = host(policy=Policy(encryption=EncryptionPolicy(guests), on_root=frozenset(on_root)))
        agent.driver.facts_of = host_of(contexts=contexts, **sections)
        return agent

    return agent


def traits(placement: PlacementServer) -> dict[str, set[str]]:
    return {
        one["name"]: set(one["traits"])
        for one in placement.dump()["providers"].values()
        if one["name"] in (SEV, SEV_ES, SEV_SNP, TDX)
    }


def test_each_technique_has_a_child_and_where_there_is_snp_there_is_no_es(
    made: Any, placement: PlacementServer
) -> None:
    made(OPEN).once()
    assert counted(placement, CLASS) == {SEV: {CLASS: (15, 0, 1)}, SEV_ES: {CLASS: (100, 0, 1)}}
    assert traits(placement) == {SEV: {"HW_CPU_X86_AMD_SEV"}, SEV_ES: {"HW_CPU_X86_AMD_SEV_ES"}}
    made({**OPEN, "sev_snp": 100}).once()
    assert counted(placement, CLASS) == {SEV: {CLASS: (15, 0, 1)}, SEV_SNP: {CLASS: (100, 0, 1)}}
    assert traits(placement) == {SEV: {"HW_CPU_X86_AMD_SEV"}, SEV_SNP: {"HW_CPU_X86_AMD_SEV_SNP"}}


@pytest.mark.parametrize("nothing", [None, {}, {"sev": 0}])
def test_children_of_a_host_that_encrypts_nothing_are_removed(
    nothing: Any, made: Any, placement: PlacementServer
) -> None:
    made(OPEN).once()
    made(nothing).once()
    assert names(placement) == set()


def test_the_smaller_of_what_the_host_has_and_what_the_operator_says_counts(
    made: Any, placement: PlacementServer
) -> None:
    for guests, expected in ((None, 31), (20, 20), (40, 31)):
        made({"tdx": 31}, guests).once()
        assert counted(placement, CLASS) == {TDX: {CLASS: (expected, 0, 1)}}
        assert traits(placement) == {TDX: {"HW_CPU_X86_INTEL_TDX"}}


def test_what_could_not_be_read_stays_as_it_was(made: Any, placement: PlacementServer) -> None:
    made(OPEN).once()
    before = placement.dump()
    made(None, incomplete=["encryption"]).once()
    assert placement.dump() == before


def test_what_could_not_be_read_at_the_start_moves_to_the_children_once_it_can_be(
    made: Any, placement: PlacementServer
) -> None:
    made(OPEN, on_root=[CLASS]).once()
    before, agent = counted(placement, CLASS), made(None, incomplete=["encryption"])
    assert (agent.cycle(start=True).state, counted(placement, CLASS)) == ("degraded", before)
    agent.driver.facts_of = host_of(contexts=OPEN)
    assert (agent.cycle(start=True).errors, set(counted(placement, CLASS))) == ((), {SEV, SEV_ES})
