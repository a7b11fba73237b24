"""The example hosts of ``etc/hosts``: what a scheduler finds on them once the agent has run
(specification of Placement, section 8).
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import from_file, on
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config
from tests.support.system import AgentHere

VERSION = "1.36"
AGGREGATE = "2d1c7f5e-8b3a-4e60-9f42-7a6c0b1d3e58"
NODE, NUMA0, NUMA1, PF0, PF1 = "node-a", "node-a_NUMA0", "node-a_NUMA1", "node-a_PF0", "node-a_PF1"
GRO = "HW_NIC_OFFLOAD_GRO"

Candidate = frozenset[tuple[str, str, int]]
Found = list[tuple[Candidate, Mapping[str, frozenset[str]]]]


def gives(**amounts: Mapping[str, int]) -> Candidate:
    """``gives(CN={"VCPU": 2})``: who gives what."""
    names = {"CN": NODE, "NUMA0": NUMA0, "NUMA1": NUMA1, "PF0": PF0, "PF1": PF1}
    return frozenset(
        (names[who], resource, amount)
        for who, resources in amounts.items()
        for resource, amount in resources.items()
    )


class Scheduler:
    """Asks for candidates as a scheduler does, and tells them by the providers' names."""

    def __init__(self, placement: HttpPlacement) -> None:
        self._placement = placement
        self.names = {uuid: one["name"] for uuid, one in placement.dump()["providers"].items()}
        self.uuids = {name: uuid for uuid, name in self.names.items()}

    def answer(self, query: str, version: str = VERSION) -> Any:
        return self._placement.other.adapter.get(
            f"/allocation_candidates?{query}", microversion=version
        )

    def found(self, query: str, version: str = VERSION) -> Found:
        """Each candidate, and which providers serve which of its groups."""
        answer = self.answer(query, version)
        assert answer.status_code == 200, answer.text
        return [self._told(one) for one in answer.json()["allocation_requests"]]

    def candidates(self, query: str, version: str = VERSION) -> list[Candidate]:
        return sorted((one for one, _ in self.found(query, version)), key=sorted)

    def _told(self, request: Mapping[str, Any]) -> tuple[Candidate, Mapping[str, frozenset[str]]]:
        given = frozenset(
            (self.names[uuid], resource, amount)
            for uuid, one in request["allocations"].items()
            for resource, amount in one["resources"].items()
        )
        return given, {
            suffix: frozenset(self.names[uuid] for uuid in uuids)
            for suffix, uuids in request.get("mappings", {}).items()
        }


@pytest.fixture
def example(http_placement: HttpPlacement, tmp_path: Path) -> Callable[..., Scheduler]:
    """``agent --once`` with a host file of ``etc/hosts``, and the scheduler that looks at what came
    of it.
    """

    def run(file: str, *more: Config) -> Scheduler:
        agent = AgentHere(tmp_path / "agent")
        agent.configure(
            on(
                http_placement,
                "fake.file",
                {"fake": {"host_file": CHECKOUT / "etc" / "hosts" / file}},
                *more,
            )
        )
        result = agent.run("--once", "--format", "json")
        assert (result.code, result.json["nodes"][0]["state"]) == (0, "changed"), result
        again = agent.run("--once", "--format", "json")
        assert again.json["nodes"][0]["state"] == "in-sync", again
        return Scheduler(http_placement)

    return run


@pytest.fixture
def nested(example: Callable[..., Scheduler]) -> Scheduler:
    return example("nested.yaml")


@pytest.fixture
def cells(example: Callable[..., Scheduler]) -> Scheduler:
    return example("nested-cells.yaml")


CPU = {"VCPU": 2}
WITH_PF0, WITH_PF1 = (gives(CN=CPU, **{port: {"SRIOV_NET_VF": 1}}) for port in ("PF0", "PF1"))
A1 = "resources=VCPU:2,SRIOV_NET_VF:1"


def test_the_tree_is_that_of_the_specification(
    nested: Scheduler, http_placement: HttpPlacement
) -> None:
    providers = http_placement.dump()["providers"]
    assert {one["name"]: nested.names.get(one["parent"]) for one in providers.values()} == {
        NODE: None,
        NUMA0: NODE,
        NUMA1: NODE,
        PF0: NUMA0,
        PF1: NUMA1,
    }
    assert {
        one["name"]: {name: record["total"] for name, record in one["inventories"].items()}
        for one in providers.values()
    } == {
        NODE: {"VCPU": 16, "MEMORY_MB": 16384},
        NUMA0: {},
        NUMA1: {},
        PF0: {"SRIOV_NET_VF": 4},
        PF1: {"SRIOV_NET_VF": 4},
    }


def test_a4_a_group_of_its_own_is_served_by_the_port_alone(nested: Scheduler) -> None:
    assert nested.found(f"resources=VCPU:2&resources1=SRIOV_NET_VF:1&required1={GRO}") == [
        (WITH_PF1, {"": frozenset({NODE}), "1": frozenset({PF1})})
    ]


def test_a12_the_agent_itself_sets_what_makes_the_root_a_compute_node(nested: Scheduler) -> None:
    # The specification's first case, a root without COMPUTE_NODE, is none of ours: the agent sets
    # the trait on every root.
    assert len(nested.candidates(f"{A1}&root_required=COMPUTE_NODE,!COMPUTE_STATUS_DISABLED")) == 2
    assert nested.candidates(f"{A1}&root_required=!COMPUTE_NODE") == []


def test_a12_a_disabled_host_gives_nothing(example: Callable[..., Scheduler]) -> None:
    disabled = example("nested.yaml", {"DEFAULT": {"enabled": False}})
    assert disabled.candidates(f"{A1}&root_required=COMPUTE_NODE,!COMPUTE_STATUS_DISABLED") == []
    assert len(disabled.candidates(A1)) == 2


# --- CPUs on the cells ----------------------------------------------------------------------------

VF = {"SRIOV_NET_VF": 1}
NEAR0, NEAR1 = gives(NUMA0=CPU, PF0=VF), gives(NUMA1=CPU, PF1=VF)


def test_b5_a_cell_that_gives_nothing_itself(cells: Scheduler) -> None:
    found = cells.found(
        "resources_N=SRIOV_NET_VF:1&required_R=HW_NUMA_ROOT&same_subtree=_R,_N&group_policy=none"
    )
    assert sorted((sorted(given), sorted(mappings["_R"])) for given, mappings in found) == [
        ([(PF0, "SRIOV_NET_VF", 1)], [NUMA0]),
        ([(PF1, "SRIOV_NET_VF", 1)], [NUMA1]),
    ]


# --- deeper, and on the root as well --------------------------------------------------------------


def test_five_levels_with_ports_on_the_root_as_well(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    chain = ["$NODE", "$NODE_NUMA0", "$NODE_RISER", "$NODE_PF0", "$NODE_VF0"]
    providers: list[dict[str, Any]] = [
        {"name": "$NODE", "inventories": {"VCPU": {"total": 16}, "SRIOV_NET_VF": {"total": 1}}}
    ]
    providers += [{"name": name, "parent": parent} for parent, name in pairwise(chain)]
    providers[-1] |= {"inventories": {"SRIOV_NET_VF": {"total": 2}}, "traits": [GRO]}
    agent = from_file(http_placement, tmp_path / "agent", {"providers": providers})
    assert agent.run("--once").code == 0
    scheduler = Scheduler(http_placement)
    on_root, deep = ({(NODE, "VCPU", 2), (who, "SRIOV_NET_VF", 1)} for who in (NODE, "node-a_VF0"))
    assert sorted(map(sorted, scheduler.candidates(A1))) == sorted(map(sorted, (on_root, deep)))
    assert scheduler.candidates(f"{A1}&required={GRO}") == [frozenset(deep)]
    assert agent.run("--once", "--format", "json").json["nodes"][0]["operations"] == []


# --- docs/nested-resources.md ---------------------------------------------------------------------

PAGE = (CHECKOUT / "docs" / "nested-resources.md").read_text(encoding="utf-8")
SHORT = {"root": NODE, "NUMA0": NUMA0, "NUMA1": NUMA1, "PF0": PF0, "PF1": PF1, "share": "share"}


def rows(section: str) -> list[tuple[str, str]]:
    """The queries of a section of the page, and what they are said to find."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^- `(resources[^`]+)`: (.+)$", text, re.MULTILINE)
    assert len(found) > 5
    return found


def check_rows(scheduler: Scheduler, section: str) -> None:
    """Ask Placement each query of the section."""
    for query, said in rows(section):
        if said == "error 400":
            assert scheduler.answer(query).status_code == 400, query
            continue
        expected = [
            frozenset(
                (SHORT[who], resource, int(amount))
                for who, resource, amount in (part.split() for part in candidate.split(", "))
            )
            for candidate in said.split("; ")
            if said != "none"
        ]
        assert scheduler.candidates(query) == sorted(expected, key=sorted), query


def test_the_queries_of_the_page_on_devices_below_cells(nested: Scheduler) -> None:
    check_rows(nested, "Devices below cells")


def test_the_queries_of_the_page_on_cpus_on_cells_and_shared_storage(
    cells: Scheduler, http_placement: HttpPlacement
) -> None:
    check_rows(cells, "CPUs on cells")
    other = http_placement.other
    share = other.create_provider("share")
    other.set_inventory(share, {"DISK_GB": 1000})
    other.set_traits(share, ["MISC_SHARES_VIA_AGGREGATE"])
    for provider in (share, cells.uuids[NODE]):
        other.set_aggregates(provider, [AGGREGATE])
    check_rows(Scheduler(http_placement), "Shared storage")
