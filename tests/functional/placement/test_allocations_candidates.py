"""Candidates, by the rows of the specification's tables of nested candidates."""

import pytest

from agent.errors import PlacementRefused, PlacementUnreachable
from agent.placement.allocations.candidates import (
    CandidateQuery,
    Candidates,
    RequestGroup,
    candidates,
    parse_query,
)
from agent.placement.allocations.checks import BadRequest, CandidatesFailed
from tests.support import faults
from tests.support.placement import PlacementServer
from tests.support.settled import client_of

NIC = "HW_NIC_OFFLOAD_GRO"

pytestmark = pytest.mark.usefixtures("short_waits")


class Nested:
    """CN with two cells and a device below each, and a shared store in no aggregate yet."""

    def __init__(self, placement: PlacementServer, *, cpus_in_cells: bool) -> None:
        self.placement, self.other = placement, placement.other
        self.uuids: dict[str, str] = {}
        memory, cells = {"MEMORY_MB": 16384}, {"VCPU": 8} if cpus_in_cells else {}
        self._make("CN", None, memory if cpus_in_cells else {"VCPU": 16, **memory})
        for n in "01":
            self._make(f"NUMA{n}", "CN", cells, "HW_NUMA_ROOT")
            self._make(f"PF{n}", f"NUMA{n}", {"SRIOV_NET_VF": 4}, *([NIC] if n == "1" else []))
        self._make("SS", None, {"DISK_GB": 1000}, "MISC_SHARES_VIA_AGGREGATE")
        placement.clear()

    def _make(self, name: str, parent: str | None, inventory: dict[str, int], *traits: str) -> None:
        self.uuids[name] = self.other.create_provider(name, parent=parent and self.uuids[parent])
        self.other.set_inventory(self.uuids[name], inventory)
        self.other.set_traits(self.uuids[name], traits)

    def asked(self, query: str) -> Candidates:
        """What is answered to a query of ``&``-joined words, in which providers stand by name."""
        words = [
            key + "=" + self.uuids.get(value, value)
            for key, _, value in (word.partition("=") for word in query.split("&"))
        ]
        return candidates(client_of(self.placement), parse_query(words))

    def found(self, query: str) -> list[str]:
        """The candidates as ``PROVIDER:CLASS:AMOUNT ...``, sorted; one that is there twice has
        other mappings.
        """
        names = {uuid: name for name, uuid in self.uuids.items()}
        return sorted(
            " ".join(
                sorted(
                    f"{names[uuid]}:{name}:{amount}"
                    for uuid, some in one.resources.items()
                    for name, amount in some.items()
                )
            )
            for one in self.asked(query).requests
        )


@pytest.fixture
def flat(placement: PlacementServer) -> Nested:
    """CPUs on the root."""
    return Nested(placement, cpus_in_cells=False)


@pytest.fixture
def deep(placement: PlacementServer) -> Nested:
    """CPUs in the cells."""
    return Nested(placement, cpus_in_cells=True)


ONE_VF = "resources=VCPU:2,SRIOV_NET_VF:1"
TWO_VFS = "resources=VCPU:2&resources1=SRIOV_NET_VF:1&resources2=SRIOV_NET_VF:1"
FIRST, SECOND = (f"CN:VCPU:2 PF{n}:SRIOV_NET_VF:1" for n in "01")
BOTH = "CN:VCPU:2 PF0:SRIOV_NET_VF:1 PF1:SRIOV_NET_VF:1"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param(ONE_VF, [FIRST, SECOND], id="A1"),
        pytest.param(f"{ONE_VF}&required={NIC}", [SECOND], id="A2"),
        pytest.param(f"{ONE_VF}&required=!{NIC}", [FIRST], id="A3"),
        pytest.param(
            f"resources=VCPU:2&resources1=SRIOV_NET_VF:1&required1={NIC}", [SECOND], id="A4"
        ),
        pytest.param(
            f"{TWO_VFS}&group_policy=none",
            [BOTH, BOTH, "CN:VCPU:2 PF0:SRIOV_NET_VF:2", "CN:VCPU:2 PF1:SRIOV_NET_VF:2"],
            id="A5",
        ),
        pytest.param(f"{TWO_VFS}&group_policy=isolate", [BOTH, BOTH], id="A6"),
        pytest.param("resources=VCPU:2,SRIOV_NET_VF:5", [], id="A8"),
        pytest.param(
            "resources1=SRIOV_NET_VF:3&resources2=SRIOV_NET_VF:2&group_policy=none",
            ["PF0:SRIOV_NET_VF:2 PF1:SRIOV_NET_VF:3", "PF0:SRIOV_NET_VF:3 PF1:SRIOV_NET_VF:2"],
            id="A9",
        ),
        pytest.param("resources=VCPU:17", [], id="A10"),
        pytest.param(f"resources=VCPU:2&required={NIC}", [], id="A11"),
        pytest.param(f"{ONE_VF}&root_required=COMPUTE_NODE,!COMPUTE_STATUS_DISABLED", [], id="A12"),
        pytest.param(f"{ONE_VF}&in_tree=PF0", [FIRST, SECOND], id="A13"),
    ],
)
def test_candidates_of_a_host_with_devices_in_cells(
    flat: Nested, query: str, found: list[str]
) -> None:
    assert flat.found(query) == found
    assert [one.version for one in flat.placement.requests] == ["1.36"]


def test_every_provider_of_a_candidates_tree_is_summed_up(flat: Nested) -> None:
    flat.other.claim({flat.uuids["CN"]: {"VCPU": 3}})
    answer = flat.asked(ONE_VF)
    assert answer.version == "1.36"
    assert set(answer.summaries) == {uuid for name, uuid in flat.uuids.items() if name != "SS"}
    cell = answer.summaries[flat.uuids["NUMA1"]]
    assert (cell.capacity, cell.traits, cell.parent_uuid, cell.root_uuid) == (
        {},
        {"HW_NUMA_ROOT"},
        flat.uuids["CN"],
        flat.uuids["CN"],
    )
    root = answer.summaries[flat.uuids["CN"]]
    assert (root.capacity, root.used, root.parent_uuid) == (
        {"VCPU": 16, "MEMORY_MB": 16384},
        {"VCPU": 3, "MEMORY_MB": 0},
        None,
    )
    nothing = flat.asked("resources=VCPU:17")
    assert (nothing.requests, nothing.summaries) == ((), {})


SEPARATE = "resources_C=VCPU:2&resources_N=SRIOV_NET_VF:1&group_policy=none"
TOGETHER = f"{SEPARATE}&same_subtree=_C,_N"
PAIRS = ["NUMA0:VCPU:2 PF0:SRIOV_NET_VF:1", "NUMA1:VCPU:2 PF1:SRIOV_NET_VF:1"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param(
            SEPARATE,
            sorted([*PAIRS, "NUMA0:VCPU:2 PF1:SRIOV_NET_VF:1", "NUMA1:VCPU:2 PF0:SRIOV_NET_VF:1"]),
            id="B1",
        ),
        pytest.param(TOGETHER, PAIRS, id="B2"),
        pytest.param(f"{TOGETHER}&required_N={NIC}", PAIRS[1:], id="B3"),
        pytest.param(
            f"{TOGETHER}&resources=MEMORY_MB:512",
            [f"CN:MEMORY_MB:512 {pair}" for pair in PAIRS],
            id="B4",
        ),
        pytest.param(
            "resources_N=SRIOV_NET_VF:1&required_R=HW_NUMA_ROOT&same_subtree=_R,_N&group_policy=none",
            ["PF0:SRIOV_NET_VF:1", "PF1:SRIOV_NET_VF:1"],
            id="B5",
        ),
        pytest.param("resources=VCPU:9", [], id="B6"),
        pytest.param(
            "resources1=VCPU:5&resources2=VCPU:5&group_policy=none",
            ["NUMA0:VCPU:5 NUMA1:VCPU:5"] * 2,
            id="B6 in two",
        ),
    ],
)
def test_candidates_of_a_host_with_cpus_in_cells(
    deep: Nested, query: str, found: list[str]
) -> None:
    assert deep.found(query) == found


def test_what_the_server_refuses_is_told(flat: Nested) -> None:
    for query, told in (
        ("resources=NO_SUCH_CLASS:1", "NO_SUCH_CLASS"),
        ("resources=VCPU:1&required=NO_SUCH_TRAIT", "NO_SUCH_TRAIT"),
    ):
        with pytest.raises(CandidatesFailed, match=told):
            flat.asked(query)


@pytest.mark.parametrize("fault", [faults.html(503), faults.cut()])
def test_an_outage_is_asked_about_once_more(flat: Nested, fault: faults.Action) -> None:
    flat.placement.faults.add(fault)
    assert flat.found(ONE_VF) == [FIRST, SECOND]
    flat.placement.faults.add(fault, times=2)
    with pytest.raises((PlacementRefused, PlacementUnreachable)):
        flat.found(ONE_VF)


@pytest.mark.parametrize(
    "query",
    [
        f"{TWO_VFS}",
        "resources_C=VCPU:2&same_subtree=C,_C",
        "required=COMPUTE_NODE",
        "resources=VCPU:0",
        "limit=0&resources=VCPU:1",
    ],
)
def test_a7_b7_what_makes_no_sense_is_refused_before_any_request(flat: Nested, query: str) -> None:
    with pytest.raises(BadRequest):
        flat.asked(query)
    with pytest.raises(BadRequest):
        candidates(client_of(flat.placement), CandidateQuery([RequestGroup("a b")]))
    assert flat.placement.count() == 0
