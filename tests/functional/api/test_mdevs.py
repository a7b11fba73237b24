"""Mediated devices that the scheduler allocated are on record with the claim: parent, type and
count.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from agent.api.record_views import RecordViews
from agent.model.devices import MdevParent
from agent.model.facts import HostFacts
from agent.tree.policy import MdevPolicy, MdevType, Policy
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.local_api import ApiHere, api_here
from tests.support.mdev_host import (
    CHILD_06,
    CHILD_07,
    P06,
    P07,
    T1,
    T2,
    counted,
    host_of,
    parent,
)
from tests.support.placement import PlacementServer
from tests.support.site import instance_body
from tests.support.tracking import F1, guest, uuid_of

BOTH = (
    MdevType(T1, frozenset({P06})),
    MdevType(T2, frozenset({P07}), resource_class="CUSTOM_T2", max_instances=3),
)
PARENTS = (parent(P06, {T1: 3}, [None]), parent(P07, {T2: 8}, mdev_type=T2, numa_node=1))


class MdevSite:
    """One node with two parents, its agent with the local API, and a real Placement. ``parents``
    None: the host does not answer.
    """

    def __init__(self, placement: PlacementServer, folder: Any, api: ApiHere) -> None:
        self.placement, self.folder, self.api, self.on_root = (
            placement,
            folder,
            api,
            frozenset[str](),
        )
        self.parents: tuple[MdevParent, ...] | None = PARENTS
        self.types = BOTH
        self.agent: AgentUnderTest | None = None

    def start(self) -> None:
        """A new process."""
        if self.agent is not None:
            self.agent.stop()
        driver = ScriptedDriver(nodes={ROOT: NAME})
        driver.facts_of = self._facts
        policy = Policy(mdev=MdevPolicy(self.types), layout="nested", on_root=self.on_root)
        self.agent = AgentUnderTest(self.placement, self.folder, driver, policy=policy)
        self.audit()
        self.api.service.set_records(RecordViews(self.agent.records, "host-1"))
        self.api.service.set_context(
            replace(self.agent.fleet.context, agent="host-1"), audited=True
        )

    def audit(self) -> None:
        """One more pass."""
        assert self.agent is not None
        self.api.service.take_report(self.agent.period(start=True), whole=True)

    def _facts(self, name: str) -> HostFacts:
        told = (
            host_of(*self.parents)
            if self.parents is not None
            else host_of(incomplete=["mdev"], mdev=None)
        )
        return replace(told(name), taken_at=time.time())

    def provider(self, name: str) -> str:
        """The uuid of a provider."""
        return next(
            uuid for uuid, one in self.placement.dump()["providers"].items() if one["name"] == name
        )

    def claim(self, name: str, held: dict[str, dict[str, int]]) -> Any:
        """Claim a guest's room with what the scheduler allocated to it."""
        body = {
            "id": uuid_of(f"claim-{name}"),
            "node": ROOT,
            "instance": instance_body(name),
            "flavor": asdict(F1),
            "allocations": {uuid: {"resources": one} for uuid, one in held.items()},
        }
        return self.api.call("POST", "/v1/claims", body)

    def mdevs(self) -> list[tuple[str, str, int, int]]:
        """Of each parent its type, what there is and what is claimed."""
        found = self.api.call("GET", f"/v1/nodes/{ROOT}").json["records"]["mdevs"]
        return [(one["parent"], one["type"], one["total"], one["claimed"]) for one in found]


@pytest.fixture
def site(placement: PlacementServer, tmp_path: Any) -> Iterator[MdevSite]:
    with api_here() as api:
        found = MdevSite(placement, tmp_path / "state", api)
        found.start()
        yield found
        assert found.agent is not None
        found.agent.stop()


def test_a_claim_shows_the_devices_that_placement_allocated_even_after_a_restart(
    site: MdevSite,
) -> None:
    query = f"/allocation_candidates?resources=VCPU:1,MEMORY_MB:2048&resources_A=VGPU:2&resources_B=CUSTOM_T2:1&group_policy=none&in_tree={ROOT}"
    (offer,) = site.placement.other.call("GET", query).json()["allocation_requests"]
    held = {uuid: one["resources"] for uuid, one in offer["allocations"].items()}
    site.placement.other.claim(held, guest("g1"))
    wanted = [
        {
            "provider": site.provider(CHILD_06),
            "resource_class": "VGPU",
            "count": 2,
            "parent": P06,
            "type": T1,
        },
        {
            "provider": site.provider(CHILD_07),
            "resource_class": "CUSTOM_T2",
            "count": 1,
            "parent": P07,
            "type": T2,
        },
    ]
    made = site.claim("g1", held)
    assert made.status == 201
    for _ in range(2):
        found = site.api.call("GET", f"/v1/claims/{uuid_of('claim-g1')}").json["mdevs"]
        assert sorted(found, key=lambda one: one["parent"]) == wanted
        assert site.mdevs() == [(P06, T1, 4, 2), (P07, T2, 3, 1)]
        site.start()
    site.api.call("DELETE", f"/v1/claims/{uuid_of('claim-g1')}")
    assert site.mdevs() == [(P06, T1, 4, 0), (P07, T2, 3, 0)]


def test_more_than_there_is_is_refused(site: MdevSite) -> None:
    child = site.provider(CHILD_06)
    assert site.claim("g1", {child: {"VGPU": 3}}).status == 201
    answer = site.claim("g2", {child: {"VGPU": 2}})
    assert (answer.status, answer.json["reasons"]) == (
        409,
        [f"2 mediated devices of VGPU wanted on {P06}, 1 free"],
    )
    assert site.claim("g3", {child: {"VGPU": 1}}).status == 201


def test_a_host_that_does_not_answer_has_the_parents_that_it_had(site: MdevSite) -> None:
    site.parents = None
    site.audit()
    assert (
        site.claim("g1", {site.provider(CHILD_06): {"VGPU": 1}}).json["mdevs"][0]["parent"] == P06
    )
    assert site.mdevs() == [(P06, T1, 4, 1), (P07, T2, 3, 0)]


def test_where_the_root_counts_several_parents_nobody_says_which(
    placement: PlacementServer, tmp_path: Any
) -> None:
    with api_here() as api:
        site = MdevSite(placement, tmp_path / "state", api)
        site.on_root, site.types = frozenset({"VGPU"}), (MdevType(T1),)
        site.parents = (parent(P06, {T1: 3}), parent(P07, {T1: 3}))
        site.start()
        (share,) = site.claim("g1", {ROOT: {"VCPU": 1, "VGPU": 2}}).json["mdevs"]
        assert (share["provider"], share["parent"], share["type"], share["count"]) == (
            ROOT,
            None,
            T1,
            2,
        )
        assert site.agent is not None
        site.agent.stop()


def test_devices_that_are_claimed_count_before_those_that_another_parent_could_have(
    site: MdevSite,
) -> None:
    site.types = (MdevType(T1, max_instances=5),)
    site.parents = (parent(P06, {T1: 4}), parent(P07, {T1: 4}))
    site.start()
    assert site.mdevs() == [(P06, T1, 4, 0), (P07, T1, 1, 0)]
    held = {ROOT: {"VCPU": 1, "MEMORY_MB": 2048}, site.provider(CHILD_07): {"VGPU": 1}}
    site.placement.other.claim(held, guest("g1"))
    assert site.claim("g1", held).status == 201

    first = "0000:05:00.0"
    site.parents = (parent(first, {T1: 4}), *site.parents)
    site.audit()
    assert site.mdevs() == [(first, T1, 4, 0), (P07, T1, 1, 1)]
    totals = {
        one["name"]: one["inventories"]["VGPU"]["total"]
        for one in site.placement.dump()["providers"].values()
        if "VGPU" in one["inventories"]
    }
    assert totals == {f"{NAME}_pci_0000_05_00_0": 4, CHILD_07: 1}


def test_what_was_allocated_before_another_parent_came_is_claimed_in_full(
    site: MdevSite,
) -> None:
    site.types = (MdevType(T1, max_instances=5),)
    site.parents = (parent(P07, {T1: 4}),)
    site.start()
    held = {ROOT: {"VCPU": 1, "MEMORY_MB": 2048}, site.provider(CHILD_07): {"VGPU": 3}}
    site.placement.other.claim(held, guest("g1"))

    site.parents = (parent(P06, {T1: 4}), *site.parents)
    site.audit()
    assert counted(site.placement, "VGPU") == {
        CHILD_06: {"VGPU": (2, 0, 2)},
        CHILD_07: {"VGPU": (3, 0, 3)},
    }
    made = site.claim("g1", held)
    assert (made.status, [(one["parent"], one["count"]) for one in made.json["mdevs"]]) == (
        201,
        [(P07, 3)],
    )
    site.audit()
    assert site.mdevs() == [(P06, T1, 2, 0), (P07, T1, 3, 3)]
