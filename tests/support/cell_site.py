"""A host whose cells have providers, its agent with the local API, and a scheduler that takes what
Placement offers.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent.api.record_views import RecordViews
from agent.model.facts import Cell, CpuFacts, HostFacts, PagePool, Topology
from agent.model.instance import Flavor
from agent.model.report import NodeReport
from agent.numa.host_policy import HostPolicy
from agent.tree.policy import Policy, Ratio
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.local_api import Answer, ApiHere, api_here
from tests.support.placement import PlacementServer
from tests.support.site import Body
from tests.support.tracking import guest, uuid_of

PAGES_2M = "CUSTOM_MEMORY_PAGE_2048"
DEDICATED_CPUS = frozenset(cpu for cell in range(4) for cpu in range(8 * cell + 4, 8 * cell + 8))
SHARED_CPUS = frozenset(range(32)) - DEDICATED_CPUS

Holdings = dict[str, dict[str, int]]
"""Provider to class to amount."""


def four_cells(memory_mib: int = 32768) -> Topology:
    """Four cells of 8 CPUs, half of them dedicated; of each 4 GiB are pages of 2 MiB."""
    cells = range(4)
    return Topology(
        tuple(
            Cell(
                one,
                frozenset(range(8 * one, 8 * one + 8)),
                memory_mib,
                pages=(PagePool(2048, 2048),),
                sockets=frozenset({one // 2}),
                siblings=tuple(frozenset({cpu, cpu + 1}) for cpu in range(8 * one, 8 * one + 8, 2)),
                distances={other: 10 if one == other else 20 for other in cells},
            )
            for one in cells
        )
    )


class CellSite:
    """One node with four cells. ``strict``: they count shared CPUs and memory too. ``cell`` names
    the provider of one.
    """

    def __init__(
        self,
        placement: PlacementServer,
        folder: Path,
        api: ApiHere,
        *,
        strict: bool,
        topology: Topology | None = None,
    ) -> None:
        self.placement, self.api, self.strict = placement, api, strict
        self.topology = topology or four_cells()
        policy = Policy(
            HostPolicy(SHARED_CPUS, DEDICATED_CPUS),
            layout="nested",
            strict=strict,
            page_classes=True,
            reserved_memory_mib=0,
            cpu_ratio=Ratio(4.0),
        )
        driver = ScriptedDriver(nodes={ROOT: NAME})
        driver.facts_of = self._facts
        self.agent = AgentUnderTest(placement, folder, driver, policy=policy)
        self.pass_()
        api.service.set_records(RecordViews(self.agent.records, "host-1"))
        api.service.set_context(replace(self.agent.fleet.context, agent="host-1"), audited=True)
        self.pass_()
        self.cells = {number: self._provider(f"{NAME}_NUMA{number}") for number in range(4)}

    def _facts(self, name: str) -> HostFacts:
        memory = sum(one.memory_mib for one in self.topology.cells)
        return HostFacts(
            name,
            time.time(),
            "scripted",
            cpu=CpuFacts(frozenset(range(32))),
            memory_mib=memory,
            disk_gib=1000,
            numa=self.topology,
        )

    def pass_(self) -> NodeReport:
        """One more audit."""
        report = self.agent.period(start=True)
        self.api.service.take_report(report, whole=True)
        (node,) = report.nodes
        return node

    def _provider(self, name: str) -> str:
        return next(
            uuid for uuid, one in self.placement.dump()["providers"].items() if one["name"] == name
        )

    # --- the scheduler ----------------------------------------------------------------------------

    def offers(
        self, root: Mapping[str, int], groups: Sequence[Mapping[str, int]]
    ) -> list[Holdings]:
        """What Placement offers for a guest that wants ``root`` of the node and each of ``groups``
        of one cell.
        """
        wanted = {f"resources_C{number}": _amounts(one) for number, one in enumerate(groups) if one}
        query = urlencode(
            {"resources": _amounts(root), **wanted, "group_policy": "none", "in_tree": ROOT}
        )
        found = self.placement.other.call("GET", f"/allocation_candidates?{query}").json()[
            "allocation_requests"
        ]
        return [
            {uuid: one["resources"] for uuid, one in each["allocations"].items()} for each in found
        ]

    def claim(self, name: str, flavor: Flavor, held: Holdings | None, **fields: Any) -> Answer:
        """Claim the room of a guest, by the API, with what the scheduler allocated to it, which it
        holds in Placement unless that is refused.
        """
        if held is not None:
            self.placement.other.claim(held, guest(name))
        body: Body = {
            "id": uuid_of(f"claim-{name}"),
            "node": ROOT,
            "instance": {"uuid": guest(name), "project_id": "project", "user_id": "user"},
            "flavor": asdict(flavor),
            "allocations": {uuid: {"resources": dict(one)} for uuid, one in (held or {}).items()},
            **fields,
        }
        answer = self.api.call("POST", "/v1/claims", body)
        if held is not None and answer.status != 201:
            self.placement.other.release(guest(name))
        return answer

    def on_cells(self, amounts: Mapping[int, Mapping[str, int]], **root: int) -> Holdings:
        """An allocation by the cells' numbers, and of the root."""
        held = {self.cells[number]: dict(one) for number, one in amounts.items()}
        return {**held, ROOT: dict(root)} if root else held

    def drop(self, name: str) -> None:
        """The guest is gone from the records and from Placement."""
        assert self.api.call("DELETE", f"/v1/claims/{uuid_of(f'claim-{name}')}").status == 200
        self.placement.other.release(guest(name))

    # --- what there is ----------------------------------------------------------------------------

    def used_in_placement(self) -> dict[int, dict[str, int]]:
        """What is used of each cell, as Placement counts it."""
        usages = {
            number: self.placement.other.call("GET", f"/resource_providers/{uuid}/usages").json()[
                "usages"
            ]
            for number, uuid in self.cells.items()
        }
        return {
            number: {name: amount for name, amount in one.items() if amount}
            for number, one in usages.items()
        }

    def used_on_record(self) -> dict[int, dict[str, int]]:
        """What is used of each cell, as the claims say that the API shows."""
        used: dict[int, dict[str, int]] = {number: {} for number in self.cells}
        for claim in self.api.call("GET", "/v1/claims").json["claims"]:
            for one in claim["cells"]:
                counts = {"PCPU": len(one["pins"]) + len(one["emulator"])}
                if one["page_size_kib"] == 2048:
                    counts[PAGES_2M] = one["memory_mb"]
                if self.strict:
                    counts |= {"VCPU": len(one["shared"]), "MEMORY_MB": one["memory_mb"]}
                for name, amount in counts.items():
                    if amount:
                        used[one["host_cell"]][name] = used[one["host_cell"]].get(name, 0) + amount
        return used


def _amounts(given: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in sorted(given.items()))


@contextmanager
def cell_site(
    placement: PlacementServer, folder: Path, *, strict: bool, topology: Topology | None = None
) -> Iterator[CellSite]:
    """A site with an API of its own."""
    with api_here() as api:
        site = CellSite(placement, folder, api, strict=strict, topology=topology)
        try:
            yield site
        finally:
            site.agent.stop()


# --- guests of any kind ---------------------------------------------------------------------------


def some_guest(
    dice: random.Random, *, strict: bool, most: int = 3
) -> tuple[Flavor, dict[str, int], list[dict[str, int]]]:
    """A flavor with ``most`` cells at most, what it takes of the root, and what each of its cells
    takes of a host cell.
    """
    policy = dice.choice(("dedicated", "dedicated", "mixed", "shared"))
    count, emulator, huge = (
        min(dice.choice((1, 1, 2, 3)), most),
        policy != "shared" and dice.random() < 0.2,
        dice.random() < 0.4,
    )
    sizes = [dice.choice((2, 3) if policy == "mixed" else (1, 2, 3)) for _ in range(count)]
    memory = [256 * dice.randint(1, 3) for _ in range(count)]
    specs, start, groups = {"hw:cpu_policy": policy, "hw:numa_nodes": str(count)}, 0, []
    shared_ids: list[int] = []
    for number, (size, mib) in enumerate(zip(sizes, memory, strict=True)):
        specs |= {
            f"hw:numa_cpus.{number}": f"{start}-{start + size - 1}",
            f"hw:numa_mem.{number}": str(mib),
        }
        shared = {"dedicated": 0, "shared": size, "mixed": 1}[policy]
        shared_ids += range(start, start + shared)
        pinned = size - shared + (emulator and number == 0)
        group = {
            "PCPU": pinned,
            PAGES_2M: mib if huge else 0,
            **({"VCPU": shared, "MEMORY_MB": mib} if strict else {}),
        }
        groups.append({name: amount for name, amount in group.items() if amount})
        start += size
    if policy == "mixed":
        specs["hw:cpu_dedicated_mask"] = ",".join(f"^{cpu}" for cpu in shared_ids)
    if emulator:
        specs["hw:emulator_threads_policy"] = "isolate"
    if huge:
        specs["hw:mem_page_size"] = "2048"
    flavor = replace(Flavor("any", "ANY", start, sum(memory), root_gb=1), extra_specs=specs)
    root = {
        "DISK_GB": 1,
        **(
            {}
            if strict
            else {"MEMORY_MB": sum(memory)} | ({"VCPU": len(shared_ids)} if shared_ids else {})
        ),
    }
    return flavor, root, groups
