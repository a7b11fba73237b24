"""How long it takes to place a guest on the NUMA cells of a host, with real devices, and beside
nova."""

import json
import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate, cycle, islice, pairwise
from pathlib import Path

from agent.errors import Undecided
from agent.model.devices import DeviceRecord, DeviceRequest
from agent.model.instance import Guest, GuestCell, PciPolicy
from agent.model.names import ProviderUuid
from agent.numa.fit import Networks, NoFit, fit
from agent.numa.host import HostCell
from agent.pci.choice import FreeDevices, free_devices
from agent.pci.device_request import Nearness

CPUS = 16
REPEATS = 5
HERE = Path(__file__).parent
NODE = ProviderUuid("5d1c9d7e-8b0a-4a52-9f63-000000000001")


@dataclass(frozen=True)
class Wanted:
    """``kind``: pf or vf."""

    kind: str
    count: int
    policy: PciPolicy = "legacy"


@dataclass(frozen=True)
class Case:
    """``cards``: the cell and the number of VFs of each. ``full``: cells without free CPUs.
    ``networks``: the cells of each physnet that is wanted. ``used``: how many CPUs of each cell are
    taken. ``near``: how far cells are from each other: by their numbers (line), by sockets of
    eight, or all the same. ``sizes``: the CPUs of the guest cells, again from the first one where
    there are more cells. ``budget``: milliseconds, None where there is none.
    """

    name: str
    guest: int
    host: int
    budget: float | None = None
    cards: Sequence[tuple[int, int]] = ()
    wanted: Sequence[Wanted] = ()
    full: Sequence[int] = ()
    networks: Sequence[Sequence[int]] = ()
    near: str = "line"
    used: Mapping[int, int] = field(default_factory=dict)
    nova: bool = True
    sizes: Sequence[int] = (4,)

    def fit(self) -> str:
        """What comes of it, from a node's records on, as a claim does it."""
        host = self.cells()
        nearness = Nearness(
            {cell.id: cell.socket for cell in host}, {cell.id: cell.distances for cell in host}
        )
        requests = [
            DeviceRequest(
                f"{number}",
                one.count,
                {"product_id": "1572", "type": "type-PF"}
                if one.kind == "pf"
                else {"product_id": "154c"},
                policy=one.policy,
            )
            for number, one in enumerate(self.wanted)
        ]
        begun = time.process_time()
        try:
            devices = FreeDevices(free_devices(self.rows), requests, "legacy", nearness)
            found = fit(
                host,
                self.asked,
                devices=devices,
                networks=Networks(frozenset(f"p{number}" for number in range(len(self.networks)))),
            )
            devices.chosen(frozenset(cell.host_cell for cell in found.cells))
            outcome = "fits"
        except NoFit as reason:
            outcome = f"no: {reason.failed}"
        except Undecided:
            outcome = "undecided"
        self.seconds.append(time.process_time() - begun)
        return outcome

    @cached_property
    def seconds(self) -> list[float]:
        """Of the processor, of each fit so far."""
        return []

    @cached_property
    def rows(self) -> Mapping[str, DeviceRecord]:
        """The devices as a node's state has them."""
        rows = [
            one
            for number, (cell, functions) in enumerate(self.cards)
            for one in card(number, cell, functions)
        ]
        return {one.address: one for one in rows}

    @property
    def asked(self) -> Guest:
        """Cells of dedicated CPUs."""
        ends = list(accumulate(islice(cycle(self.sizes), self.guest), initial=0))
        return Guest(
            tuple(
                GuestCell(frozenset(), frozenset(range(start, end)), 1024)
                for start, end in pairwise(ends)
            ),
            "dedicated",
        )

    def cells(self) -> list[HostCell]:
        """Cells of 8 cores with 2 threads."""
        made = []
        for number in range(self.host):
            cpus = range(CPUS * number, CPUS * number + CPUS)
            taken = CPUS if number in self.full else self.used.get(number, 0)
            made.append(
                HostCell(
                    number,
                    frozenset(),
                    frozenset(cpus),
                    65536,
                    pinned=frozenset(cpus[:taken]),
                    socket=number // 8,
                    physnets=frozenset(
                        f"p{net}" for net, cells in enumerate(self.networks) if number in cells
                    ),
                    siblings=tuple(frozenset({cpu, cpu + 1}) for cpu in cpus[::2]),
                    distances={other: self.distance(number, other) for other in range(self.host)},
                )
            )
        return made

    def distance(self, one: int, other: int) -> int:
        if one == other:
            return 10
        return {"line": 20 + abs(one - other), "sockets": 12 if one // 8 == other // 8 else 32}.get(
            self.near, 20
        )


def card(number: int, cell: int, functions: int) -> list[DeviceRecord]:
    """A network card with its VFs."""
    pf = DeviceRecord(
        node=NODE,
        address=f"{number // 256:04x}:{number % 256:02x}:00.0",
        vendor_id="8086",
        product_id="1572",
        type="type-PF",
        numa_node=cell,
        tags={"physical_network": "datacentre", "trusted": "true", "remote_managed": "false"},
    )
    where = pf.address[:8]
    return [
        pf,
        *(
            replace(
                pf,
                address=f"{where}{1 + one // 8:02x}.{one % 8}",
                product_id="154c",
                type="type-VF",
                parent=pf.address,
            )
            for one in range(functions)
        ),
    ]


def everywhere(cells: int, functions: int) -> list[tuple[int, int]]:
    """A card on each cell."""
    return [(cell, functions) for cell in range(cells)]


VF = Wanted("vf", 1)
UNEQUAL = (3, 8, 1, 6, 4, 7, 2, 5)
UNLIKE = [(cell, (4, 8, 16, 32)[cell % 4]) for cell in range(16)]
CASES = (
    Case("8 on 16, one of 256 VFs", 8, 16, 20, everywhere(16, 16), [VF]),
    Case("8 on 16, one of 128 VFs", 8, 16, 20, everywhere(16, 8), [VF]),
    Case("8 on 16, one of 256 VFs, all on cell 12", 8, 16, 20, [(12, 64)] * 4, [VF], nova=False),
    Case(
        "8 on 16, one of 256 VFs, near if possible, on a full cell",
        8,
        16,
        20,
        [(12, 64)] * 4,
        [Wanted("vf", 1, "preferred")],
        full=[12],
        nova=False,
    ),
    Case("4 on 8, one of 512 VFs", 4, 8, 20, everywhere(8, 64), [VF]),
    Case("4 on 8, one of 2048 VFs", 4, 8, 20, everywhere(8, 64) * 4, [VF]),
    Case(
        "2 on 8, 2 PFs + 49 VFs of 8×8, impossible",
        2,
        8,
        20,
        everywhere(8, 8),
        [Wanted("pf", 2, "preferred"), Wanted("vf", 49, "preferred")],
        nova=False,
    ),
    Case(
        "4 on 8, 3 PFs + 48 VFs of 8×8, impossible",
        4,
        8,
        20,
        everywhere(8, 8),
        [Wanted("pf", 3, "preferred"), Wanted("vf", 48, "preferred")],
        nova=False,
    ),
    Case(
        "4 on 8, 3 PFs + 40 VFs of 8×8, possible",
        4,
        8,
        20,
        everywhere(8, 8),
        [Wanted("pf", 3, "preferred"), Wanted("vf", 40, "preferred")],
        nova=False,
    ),
    Case(
        "8 on 16, 1 PF + 113 VFs of 16×16, impossible",
        8,
        16,
        20,
        everywhere(16, 16),
        [Wanted("pf", 1), Wanted("vf", 113)],
        nova=False,
    ),
    Case(
        "8 on 16, 8 PFs + 9 VFs of 16×16, impossible",
        8,
        16,
        20,
        everywhere(16, 16),
        [Wanted("pf", 8), Wanted("vf", 9)],
        nova=False,
    ),
    Case(
        "8 on 16, 6 PFs + 90 VFs of unlike cards, impossible",
        8,
        16,
        20,
        UNLIKE,
        [Wanted("pf", 6), Wanted("vf", 90)],
        nova=False,
    ),
    Case(
        "8 on 16, 3 PFs + 208 VFs of 16×16, near if possible, all that there is",
        8,
        16,
        20,
        everywhere(16, 16),
        [Wanted("pf", 3, "preferred"), Wanted("vf", 208, "preferred")],
        nova=False,
    ),
    Case(
        "8 on 16, 8 PFs + 100 VFs of unlike cards, near if possible",
        8,
        16,
        20,
        UNLIKE,
        [Wanted("pf", 8, "preferred"), Wanted("vf", 100, "preferred")],
        nova=False,
    ),
    Case(
        "8 on 16, 9 VFs wanted, one a cell",
        8,
        16,
        20,
        everywhere(16, 1),
        [Wanted("vf", 9)],
        nova=False,
    ),
    Case(
        "8 on 16, 9 VFs, one a cell, near if possible",
        8,
        16,
        20,
        everywhere(16, 1),
        [Wanted("vf", 9, "preferred")],
        nova=False,
    ),
    Case("8 on 8, PCI unsatisfiable", 8, 8, 10, everywhere(8, 1), [Wanted("vf", 9)], nova=False),
    Case("8 on 8", 8, 8, 2),
    Case("16 on 16", 16, 16, 50),
    Case("8 on 16", 8, 16, 50),
    Case("16 on 32", 16, 32, 50),
    Case("32 on 64", 32, 64, 50),
    Case("8 on 16, sockets of eight", 8, 16, 50, near="sockets"),
    Case("8 on 16, no distances", 8, 16, 50, near="same"),
    Case("8 on 16, cells of 1 to 8 CPUs", 8, 16, 50, sizes=UNEQUAL),
    Case("32 on 64, cells of 1 to 8 CPUs", 32, 64, 50, sizes=UNEQUAL),
    Case("64 on 64, cells of 1 to 8 CPUs", 64, 64, 50, sizes=UNEQUAL),
    Case("16 on 16, one cell full", 16, 16, 50, full=[3], nova=False),
    Case("8 on 9, physnet on a full cell", 8, 9, 10, full=[3], networks=[[3]], nova=False),
    Case(
        "10 on 40, 20 networks of 4 cells each",
        10,
        40,
        50,
        networks=[sorted(random.Random(one).sample(range(40), 4)) for one in range(20)],
        nova=False,
    ),
    Case(
        "10 on 40, 30 networks of 3 cells each",
        10,
        40,
        50,
        networks=[sorted(random.Random(one).sample(range(40), 3)) for one in range(30)],
        nova=False,
    ),
)


def nova_milliseconds(cases: Sequence[Case], python: str | None) -> Mapping[str, float]:
    """What nova needs for the cases that it can answer before long; empty without a nova."""
    if python is None:
        return {}
    given = json.dumps([{**asdict(case), "distances": []} for case in cases if case.nova])
    ran = subprocess.run(
        [python, str(HERE / "numa_fit_nova.py")],
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    found: Mapping[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True)
class FitRow:
    """A case with its outcome and milliseconds of the processor; None where nova was not asked, or
    where there is no budget.
    """

    name: str
    outcome: str
    agent: float
    nova: float | None
    budget: float | None


def fit_rows(python: str | None, cases: Sequence[Case] = CASES) -> Iterator[FitRow]:
    """Yield each case, beside nova if ``python`` has it."""
    nova = nova_milliseconds(cases, python)
    for case in cases:
        outcome = {case.fit() for _ in range(REPEATS)}.pop()
        best = 1000 * min(case.seconds)
        yield FitRow(case.name, outcome, best, nova.get(case.name), case.budget)
