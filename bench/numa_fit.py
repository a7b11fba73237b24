"""How long it takes to place a guest on the NUMA cells of a host, for the cases that have budgets.

``python -m bench.numa_fit`` prints a table. See README.md beside this file.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agent.model.guest import Guest, GuestCell
from agent.numa.devices import Devices
from agent.numa.fit import BudgetExceeded, Networks, NoFit, fit
from agent.numa.host import HostCell

CPUS = 16
REPEATS = 5


class OneDevice:
    """A device on the first cell, of a guest that wants ``count`` near it."""

    wanted = True

    def __init__(self, count: int) -> None:
        self._count = count

    def free(self, cell: int) -> int:
        return int(cell == 0)

    def fits(self, cells: frozenset[int]) -> bool:
        return self._count <= int(0 in cells)

    def cost(self, cells: frozenset[int]) -> tuple[int, int]:
        return self._count - int(0 in cells), 10


@dataclass(frozen=True)
class Case:
    """``budget`` in milliseconds, None where there is none."""

    name: str
    host: Sequence[HostCell]
    guest: Guest
    budget: int | None
    devices: Devices | None = None
    networks: Networks | None = None

    def outcome(self) -> str:
        try:
            return f"fits, {fit(self.host, self.guest, devices=self.devices, networks=self.networks).set_tests} set(s) tested"
        except NoFit as reason:
            return f"no: {reason.failed}, {reason.set_tests} set(s) tested"
        except BudgetExceeded:
            return "unknown"

    def milliseconds(self) -> float:
        """CPU time of the best of some runs, because the machine may be busy."""

        def once() -> float:
            begun = time.process_time()
            self.outcome()
            return time.process_time() - begun

        return 1000 * min(once() for _ in range(REPEATS))


def host(cells: int, full: Sequence[int] = ()) -> list[HostCell]:
    """Cells of 8 cores with 2 threads, each with a physnet of its own."""
    made = []
    for number in range(cells):
        first = CPUS * number
        cpus = frozenset(range(first, first + CPUS))
        made.append(HostCell(
            number, frozenset(), cpus, 65536, physnets=frozenset({f"p{number}"}), pinned=cpus if number in full else frozenset(),
            siblings=tuple(frozenset({cpu, cpu + 1}) for cpu in range(first, first + CPUS, 2)),
            distances={other: 10 if other == number else 20 + abs(other - number) for other in range(cells)},
        ))  # fmt: skip
    return made


def guest(cells: int) -> Guest:
    """Cells of 4 dedicated CPUs."""
    return Guest(tuple(GuestCell(frozenset(), frozenset(range(4 * one, 4 * one + 4)), 1024) for one in range(cells)), "dedicated")


CASES = (
    Case("8 on 8, satisfiable", host(8), guest(8), 2),
    Case("8 on 8, PCI unsatisfiable", host(8), guest(8), 5, OneDevice(2)),
    Case("8 on 9, physnet unsatisfiable", host(9, full=[3]), guest(8), 10, networks=Networks(frozenset({"p3"}))),
    Case("16 on 16, satisfiable", host(16), guest(16), 50),
    Case("16 on 16, PCI unsatisfiable", host(16), guest(16), 50, OneDevice(2)),
    Case("16 on 16, one cell full", host(16, full=[3]), guest(16), 50),
    Case("8 on 16, satisfiable", host(16), guest(8), 100),
    Case("8 on 16, PCI unsatisfiable", host(16), guest(8), 100, OneDevice(2)),
    Case("16 on 32, satisfiable", host(32), guest(16), None),
    Case("16 on 32, PCI unsatisfiable", host(32), guest(16), None, OneDevice(2)),
)


def main() -> None:
    """Print the table."""
    print("| guest cells on host cells | outcome | ms | budget |\n|---|---|---:|---:|")
    for case in CASES:
        print(f"| {case.name} | {case.outcome()} | {case.milliseconds():.1f} | {case.budget or '–'} |", flush=True)


if __name__ == "__main__":
    main()
