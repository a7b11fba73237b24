"""A host with two cells and SR-IOV whose guests a scheduler places: it asks Placement for
candidates, takes any of them, and claims it.

What a claim may be refused for is worked out from what the claims before have got, by the rules and
not by the agent's code.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent.api.record_views import RecordViews
from agent.model.devices import PciDevice
from agent.model.facts import Cell, CpuFacts, HostFacts, PagePool, Topology
from agent.model.instance import Flavor
from agent.model.report import NodeReport
from agent.numa.host_policy import HostPolicy
from agent.pci.device_request import aliases
from agent.pci.settings import PciSettings
from agent.tree.policy import Policy, Ratio
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.cell_site import PAGES_2M, Holdings, some_guest
from tests.support.local_api import Answer, ApiHere, api_here
from tests.support.placement import PlacementServer
from tests.support.tracking import guest, uuid_of
from tests.unit.pci import scene

CELLS = (frozenset(range(16)), frozenset(range(16, 32)))
SHARED = frozenset({*range(4), *range(16, 20)})
MEMORY_MIB, HUGE_MIB, RATIO = 12288, 3072, 4.0
GPU, VF, PHYSNET = "CUSTOM_PCI_8086_1533", "CUSTOM_PCI_8086_154C", "physnet1"
SPECS = (
    {"address": scene.NAMES["P1"], "one_time_use": True},
    {"product_id": "1533"},
    {"product_id": "154c"},
    {"product_id": "10ed", "physical_network": PHYSNET},
)
ALIASES = {"gpu": ("1533", GPU), "vf": ("154c", VF)}
ONCE = scene.NAMES["P1"]
CARDS = {"0000:84:00.0": 0, "0000:85:00.0": 1}
"""The cards whose functions are of a physical network, so that Placement does not count them; and their cells."""
THREADS = ("isolate", "prefer", "require")

Free = dict[tuple[str, str], float]
"""By the end of a provider's name and class."""


def devices() -> Iterator[PciDevice]:
    """Two cards that can be had whole, one in each cell and one that is in none; functions that
    Placement counts, and such as it does not.
    """
    yield from scene.host().values()
    yield scene.plain("0000:86:00.0", numa_node=1)
    yield scene.plain("0000:83:00.0", numa_node=None)
    for card, cell in CARDS.items():
        functions = [f"{card[:-1]}{number}" for number in (1, 2)]
        yield scene.physical(card, *functions, numa_node=cell)
        yield from (
            scene.virtual(one, card, product_id="10ed", numa_node=cell) for one in functions
        )


CELL_OF = {str(one.address): one.numa_node for one in devices()}


def cells() -> Topology:
    """Two of eight cores with two threads each; the threads of two cores are for shared
    guest CPUs.
    """
    return Topology(
        tuple(
            Cell(
                number,
                cpus,
                MEMORY_MIB,
                pages=(PagePool(2048, HUGE_MIB // 2),),
                sockets=frozenset({number}),
                siblings=tuple(frozenset({cpu, cpu + 1}) for cpu in sorted(cpus)[::2]),
            )
            for number, cpus in enumerate(CELLS)
        )
    )


@dataclass(frozen=True)
class Wanted:
    """A guest: its flavor; what it takes of the root, and each of its cells of a host cell;
    devices; functions of the physical network.
    """

    flavor: Flavor
    root: Mapping[str, int]
    groups: Sequence[Mapping[str, int]]
    devices: tuple[str, ...] = ()
    functions: int = 0

    @property
    def near(self) -> str:
        """How near to its cells its devices have to be."""
        return str(self.flavor.extra_specs.get("hw:pci_numa_affinity_policy", "legacy"))

    def spec(self, name: str) -> str | None:
        """An extra spec about CPUs or pages."""
        return self.flavor.extra_specs.get(f"hw:{name}")


def some_wanted(dice: random.Random, *, strict: bool) -> Wanted:
    """A guest of any kind."""
    flavor, root, groups = some_guest(dice, strict=strict, most=2)
    if not strict and dice.random() < 0.15:
        flavor, root, groups = (
            Flavor("floating", "FLOATING", 2, 512, root_gb=1),
            {"DISK_GB": 1, "MEMORY_MB": 512, "VCPU": 2},
            [],
        )
    wanted = tuple(
        sorted(dice.choice(("vf", "vf", "gpu")) for _ in range(dice.choice((0, 0, 1, 1, 2))))
    )
    specs = dict(flavor.extra_specs)
    if wanted:
        specs["pci_passthrough:alias"] = ",".join(
            f"{name}:{count}" for name, count in Counter(wanted).items()
        )
    if dice.random() < 0.6:
        specs["hw:pci_numa_affinity_policy"] = dice.choice(
            ("required", "preferred", "legacy", "socket")
        )
    if specs.get("hw:cpu_policy") in ("dedicated", "mixed") and dice.random() < 0.3:
        specs["hw:cpu_thread_policy"] = dice.choice(THREADS)
    functions = dice.choice((0, 0, 0, 0, 1, 2))
    return Wanted(
        replace(flavor, id=f"f{dice.getrandbits(64):x}", extra_specs=specs),
        root,
        groups,
        wanted,
        functions,
    )


@dataclass
class Guest:
    """One that is there. ``held``: what each of its consumers holds in Placement. ``move``: its
    resize that waits, and what the guest was before.
    """

    name: str
    wanted: Wanted
    held: dict[str, Holdings]
    move: str | None = None
    before: Wanted | None = None


class ScheduledHost:
    """``strict``: its cells count shared CPUs and memory too."""

    def __init__(
        self, placement: PlacementServer, folder: Path, api: ApiHere, *, strict: bool
    ) -> None:
        self.placement, self.api, self.strict = placement, api, strict
        dedicated = frozenset().union(*CELLS) - SHARED
        policy = Policy(
            HostPolicy(SHARED, dedicated),
            layout="nested",
            strict=strict,
            page_classes=True,
            reserved_memory_mib=0,
            cpu_ratio=Ratio(RATIO),
        )
        known, _ = aliases(
            [
                json.dumps({"name": name, "vendor_id": "8086", "product_id": one})
                for name, (one, _) in ALIASES.items()
            ],
            report=True,
        )
        driver = ScriptedDriver(nodes={ROOT: NAME})
        driver.facts_of = self._facts
        self.agent = AgentUnderTest(
            placement,
            folder,
            driver,
            policy=policy,
            pci=PciSettings(scene.specs(*SPECS), known, report=True),
        )
        self.pass_()
        api.service.set_records(RecordViews(self.agent.records, "host-1"))
        api.service.set_context(replace(self.agent.fleet.context, agent="host-1"), audited=True)
        self.pass_()
        self.names = {
            uuid: one["name"].removeprefix(NAME).lstrip("_")
            for uuid, one in placement.dump()["providers"].items()
        }

    @staticmethod
    def _facts(name: str) -> HostFacts:
        return HostFacts(
            name,
            time.time(),
            "scripted",
            cpu=CpuFacts(frozenset().union(*CELLS)),
            memory_mib=2 * MEMORY_MIB,
            disk_gib=1000,
            numa=cells(),
            pci=tuple(devices()),
        )

    def pass_(self) -> NodeReport:
        """One more audit."""
        report = self.agent.period(start=True)
        self.api.service.take_report(report, whole=True)
        (node,) = report.nodes
        return node

    # --- the scheduler ----------------------------------------------------------------------------

    def offers(self, wanted: Wanted, *, isolated: bool, near: bool) -> list[Holdings]:
        """What Placement offers: a group for each cell and for each device. ``near``: devices below
        the guest's only cell; else anywhere.
        """
        groups = {f"_C{number}": one for number, one in enumerate(wanted.groups) if one}
        groups |= {f"_D{number}": {ALIASES[one][1]: 1} for number, one in enumerate(wanted.devices)}
        query = {"resources": _amounts(wanted.root), "in_tree": ROOT, "limit": "50"}
        query |= {f"resources{name}": _amounts(one) for name, one in groups.items()}
        if len(groups) > 1:
            query["group_policy"] = "isolate" if isolated else "none"
        if near and len(wanted.groups) == 1 and wanted.groups[0] and wanted.devices:
            query["same_subtree"] = ",".join(groups)
        found = self.placement.other.call(
            "GET", f"/allocation_candidates?{urlencode(query)}"
        ).json()["allocation_requests"]
        return [
            {uuid: one["resources"] for uuid, one in each["allocations"].items()} for each in found
        ]

    def build(self, name: str, wanted: Wanted, held: Holdings) -> Answer:
        """The guest is allocated this, and claims it; if that is refused, it gives it back."""
        self.placement.other.claim(held, guest(name))
        body = {
            "id": uuid_of(f"claim-{name}"),
            "node": ROOT,
            "instance": _owned(name),
            **self._asked(wanted, held),
            "flavor": asdict(wanted.flavor),
        }
        answer = self.api.call("POST", "/v1/claims", body)
        if answer.status != 201:
            self.placement.other.release(guest(name))
        else:
            self.becomes(name, vm_state="active")
        return answer

    def resize(
        self, name: str, wanted: Wanted, held: Holdings, move: str, *, audited: bool
    ) -> Answer:
        """The guest is resized on its host: its migration holds what it has, and it itself what the
        scheduler allocated; undone if that is refused.

        ``audited``: audits come between that and the claim.
        """
        other = self.placement.other
        self.becomes(name, task_state="resize_prep")
        other.move(guest(name), uuid_of(f"migration-{move}"))
        other.claim(held, guest(name))
        for _ in range(2 * audited):
            assert self.pass_().errors == ()
        body = {
            "id": uuid_of(move),
            "type": "resize",
            "node": ROOT,
            "instance": _owned(name),
            "migration": uuid_of(f"migration-{move}"),
            **self._asked(wanted, held),
            "flavor": asdict(wanted.flavor),
        }
        answer = self.api.call("POST", "/v1/moves", body)
        if answer.status != 201:
            other.release(guest(name))
            other.move(uuid_of(f"migration-{move}"), guest(name))
            self.becomes(name, task_state=None)
        else:
            assert self.api.call("POST", f"/v1/moves/{uuid_of(move)}/finish").status == 200
            self.becomes(name, vm_state="resized", task_state=None)
        return answer

    def ends(self, name: str, move: str, *, confirmed: bool) -> None:
        """The guest's resize is confirmed, or it gets back what it had."""
        if not confirmed:
            self.becomes(name, task_state="resize_reverting")
        answer = self.api.call(
            "POST", f"/v1/moves/{uuid_of(move)}/{'confirm' if confirmed else 'revert'}"
        )
        assert answer.status == 200, answer
        if not confirmed:
            self.placement.other.release(guest(name))
            self.placement.other.move(uuid_of(f"migration-{move}"), guest(name))
        self.becomes(name, vm_state="active", task_state=None)

    def becomes(self, name: str, **states: Any) -> None:
        """The agent is told what has become of a guest."""
        version = self.api.call("GET", f"/v1/instances/{guest(name)}").json["version"]
        answer = self.api.call(
            "PATCH", f"/v1/instances/{guest(name)}", states, {"If-Match": str(version)}
        )
        assert answer.status == 200, answer

    def cleaned(self) -> None:
        """The device for one-time use is cleaned, if nobody has it."""
        if self.rows()[ONCE]["holder"] is None:
            assert self.api.call(
                "POST", "/v1/devices/cleaned", {"node": ROOT, "address": ONCE}
            ).status in (200, 204)

    def _asked(self, wanted: Wanted, held: Holdings) -> dict[str, Any]:
        ports = [
            {"id": uuid_of(f"port-{number}"), "count": 1, "spec": {"physical_network": PHYSNET}}
            for number in range(wanted.functions)
        ]
        return {
            "allocations": {uuid: {"resources": dict(one)} for uuid, one in held.items()},
            "devices": ports,
        }

    # --- what there is ----------------------------------------------------------------------------

    def rows(self) -> dict[str, Any]:
        """All devices, by address."""
        return {one["address"]: one for one in self.api.call("GET", "/v1/devices").json["devices"]}

    def claims(self) -> list[Any]:
        """All open claims."""
        found: list[Any] = self.api.call("GET", "/v1/claims").json["claims"]
        return found

    def free_in_placement(self) -> Free:
        """What guests can still have of each provider, as Placement counts it."""
        dump = self.placement.dump()
        used: Counter[tuple[str, str]] = Counter()
        for one in dump["consumers"].values():
            used.update(
                {
                    (provider, name): amount
                    for provider, held in one["allocations"].items()
                    for name, amount in held.items()
                }
            )
        return {
            # A device for one-time use is reserved while it is used, too.
            (self.names[uuid], name): max(
                0,
                (record["total"] - record["reserved"]) * record["allocation_ratio"]
                - used[uuid, name],
            )
            for uuid, one in dump["providers"].items()
            for name, record in one["inventories"].items()
        }

    def free_on_record(self) -> Free:
        """The same by the records, as the API shows the node and its devices."""
        shown = self.api.call("GET", f"/v1/nodes/{ROOT}").json["records"]
        free: Free = {("", "DISK_GB"): shown["free"]["disk_mb"] // 1024}
        shared = 0
        for cell in shown["cells"]:
            name = f"NUMA{cell['id']}"
            free[name, "PCPU"] = len(set(cell["dedicated"]) - set(cell["pinned"]))
            (huge,) = (one for one in cell["pages"] if one["size_kib"] == 2048)
            free[name, PAGES_2M] = 2 * (huge["total"] - huge["used"] - huge["reserved"])
            shared += len(cell["shared"])
            if self.strict:
                free[name, "VCPU"] = len(cell["shared"]) * RATIO - cell["shared_used"]
                free[name, "MEMORY_MB"] = cell["memory_mb"] - cell["memory_mb_used"]
        if not self.strict:
            pinned = sum(len(cell["pins"]) for one in self.claims() for cell in one["cells"])
            free["", "VCPU"] = shared * RATIO - (shown["usage"]["vcpus_used"] - pinned)
            free["", "MEMORY_MB"] = shown["free"]["memory_mb"]
        for address, row in self.rows().items():
            if row["serves"] == "guests" and "physical_network" not in row["tags"]:
                key = (
                    (row["parent"] or address).upper(),
                    VF if row["product_id"] == "154c" else GPU,
                )
                free[key] = free.get(key, 0) + (row["holder"] is None and not row["used"])
        return free

    # --- why a claim may be refused ---------------------------------------------------------------

    def refused_for(self, wanted: Wanted, held: Holdings) -> str | None:
        """Why a claim of what Placement has allocated cannot be had; None if it can."""
        places = {
            int(self.names[uuid].removeprefix("NUMA")): one
            for uuid, one in held.items()
            if self.names[uuid].startswith("NUMA")
        }
        if wanted.groups and wanted.spec("cpu_thread_policy") == "isolate":
            return "isolated threads"
        if len(places) < sum(map(bool, wanted.groups)):
            return "two guest cells from one cell"
        if self.rows()[ONCE]["used"] and any(self.names[uuid].lower() == ONCE for uuid in held):
            return "a device that waits to be cleaned"
        chosen = self._sets_of_cells(wanted, places)
        if not chosen:
            return "threads or small pages of a cell"
        if wanted.groups and not any(self._devices_are_near(wanted, held, one) for one in chosen):
            return "devices of other cells"
        if not any(
            self._functions(wanted, one) >= wanted.functions
            for one in (chosen if wanted.groups else [frozenset()])
        ):
            return "functions of a physical network"
        return None

    def _sets_of_cells(
        self, wanted: Wanted, places: Mapping[int, Mapping[str, int]]
    ) -> list[frozenset[int]]:
        """The sets of host cells that the guest can sit on. A cell that takes nothing that cells
        count may be any; one that does, that of its amount.
        """
        found = []
        for order in permutations(range(len(CELLS)), len(wanted.groups)):
            seats = list(zip(wanted.groups, order, strict=True))
            named = {cell for group, cell in seats if group}
            if (
                named == places.keys()
                and all(not group or places[cell] == group for group, cell in seats)
                and self._has_room(wanted, order)
            ):
                found.append(frozenset(order))
        return found

    def _has_room(self, wanted: Wanted, order: Sequence[int]) -> bool:
        """Whether the threads and small pages that Placement does not count are there."""
        claimed = [cell for one in self.claims() for cell in one["cells"]]
        for number, cell in enumerate(order):
            here = [one for one in claimed if one["host_cell"] == cell]
            taken = {cpu for one in here for cpu in (*one["pins"].values(), *one["emulator"])}
            free = CELLS[cell] - SHARED - taken
            size, shared = self._size(wanted, number)
            emulator = int(number == 0 and wanted.spec("emulator_threads_policy") == "isolate")
            whole = sum(
                {cpu, cpu + 1} <= free for cpu in range(min(CELLS[cell]), max(CELLS[cell]), 2)
            )
            if wanted.spec("cpu_thread_policy") == "require" and size - shared > 2 * whole:
                return False
            if size - shared + emulator > len(free):
                return False
            small = (
                MEMORY_MIB
                - HUGE_MIB
                - sum(one["memory_mb"] for one in here if one["page_size_kib"] != 2048)
            )
            memory = int(wanted.spec(f"numa_mem.{number}") or 0)
            if (
                wanted.spec("mem_page_size") is None
                and wanted.spec("cpu_policy") != "shared"
                and memory > small
            ):
                return False
        return True

    def _size(self, wanted: Wanted, number: int) -> tuple[int, int]:
        """How many CPUs a guest's cell has, and how many of them are shared."""
        first, last = (int(one) for one in str(wanted.spec(f"numa_cpus.{number}")).split("-"))
        return last - first + 1, {"dedicated": 0, "shared": last - first + 1, "mixed": 1}[
            str(wanted.spec("cpu_policy"))
        ]

    def _devices_are_near(self, wanted: Wanted, held: Holdings, seats: frozenset[int]) -> bool:
        return all(
            _is_near(wanted.near, CELL_OF[self.names[uuid].lower()], seats)
            for uuid in held
            if ":" in self.names[uuid]
        )

    def _functions(self, wanted: Wanted, seats: frozenset[int]) -> int:
        """How many functions of the physical network the guest could have there."""
        free = [
            address
            for address, row in self.rows().items()
            if row["tags"].get("physical_network")
            and row["serves"] == "guests"
            and row["holder"] is None
        ]
        return sum(not wanted.groups or _is_near(wanted.near, CELL_OF[one], seats) for one in free)


def _is_near(policy: str, cell: int | None, seats: frozenset[int]) -> bool:
    """Whether a device of a cell will do for a guest on others. Each cell is a socket of its own
    here.
    """
    return policy == "preferred" or cell in seats or (policy == "legacy" and cell is None)


def _owned(name: str) -> dict[str, str]:
    return {"uuid": guest(name), "project_id": "project", "user_id": "user"}


def _amounts(given: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in sorted(given.items()))


@contextmanager
def scheduled_host(
    placement: PlacementServer, folder: Path, *, strict: bool
) -> Iterator[ScheduledHost]:
    """A host with an API of its own."""
    with api_here() as api:
        host = ScheduledHost(placement, folder, api, strict=strict)
        try:
            yield host
        finally:
            host.agent.stop()
