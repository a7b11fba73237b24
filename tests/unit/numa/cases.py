"""Hosts and guests by chance: small, crowded, and of every kind."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from agent.model.instance import Guest, GuestCell
from agent.numa.fit import Networks
from agent.numa.host import HostCell, Pages
from agent.numa.pair import CellLimits
from tests.unit.numa.cells import NOTHING, cpus
from tests.unit.numa.devices import LocalDevices

THREADS = 8
PAGES = (
    (),
    (),
    (Pages(4, 524288),),
    (Pages(4, 262144, used=65536), Pages(2048, 512)),
    (Pages(4, 262144), Pages(2048, 512, used=128, reserved=16), Pages(1048576, 1)),
    (Pages(4, 262144, used=262144), Pages(1048576, 2, used=1)),
)
KINDS = {
    "dedicated": ("dedicated", "dedicated", "dedicated", "dedicated", "mixed"),
    "shared": ("shared", "shared", "shared", "shared", "mixed"),
    "mixed": ("mixed", "mixed", "mixed", "mixed", "dedicated"),
}
"""What a cell may be offered for, by the policy of the guest."""


@dataclass(frozen=True)
class Case:
    host: tuple[HostCell, ...]
    guest: Guest
    limits: CellLimits | None
    networks: Networks
    new_devices: Callable[[], LocalDevices]


@st.composite
def host_cells(draw: st.DrawFn, number: int, width: int, policy: str) -> HostCell:
    first = number * THREADS
    everything = cpus(first, draw(st.sampled_from((4, 6, THREADS))))
    kinds, pinned = (
        draw(st.sampled_from(KINDS[policy])),
        draw(st.integers(0, 2**THREADS - 1)) & 0b01101101,
    )
    shared = (
        everything
        if kinds == "shared"
        else frozenset(cpu for cpu in everything if cpu % 3 == 0)
        if kinds == "mixed"
        else NOTHING
    )
    dedicated = everything - shared
    siblings = tuple(
        core
        for start in range(first, first + THREADS, width)
        if (core := everything & cpus(start, width))
    )
    return HostCell(
        number,
        shared,
        dedicated,
        memory_mib=2048,
        memory_used_mib=draw(st.sampled_from((0, 0, 0, 0, 512, 1536))),
        shared_used=draw(st.sampled_from((0, 0, 0, 4))),
        pinned=frozenset(cpu for cpu in dedicated if pinned >> cpu % THREADS & 1),
        siblings=siblings if width > 1 else (),
        pages=draw(st.sampled_from(PAGES)),
        physnets=draw(
            st.sampled_from(
                (frozenset(), frozenset({"p"}), frozenset({"q"}), frozenset({"p", "q"}))
            )
        ),
        tunneled=draw(st.booleans()),
        socket=draw(st.sampled_from((0, 1))),
        distances={
            other: 10 if other == number else 20 + abs(other - number) for other in range(4)
        },
    )


@st.composite
def guests(draw: st.DrawFn, width: int) -> Guest:
    policy = draw(st.sampled_from(("dedicated", "dedicated", "shared", "mixed")))
    cells, start = [], 0
    for _ in range(draw(st.integers(1, 3))):
        count, memory = draw(st.integers(1, 4)), draw(st.sampled_from((64, 256, 256, 256, 1024)))
        everything = cpus(start, count)
        pinned = (
            everything
            if policy == "dedicated"
            else frozenset(cpu for cpu in everything if cpu % 2)
            if policy == "mixed"
            else NOTHING
        )
        cells.append(GuestCell(everything - pinned, pinned, memory))
        start += count
    return Guest(
        tuple(cells),
        policy,
        None
        if policy == "shared"
        else draw(
            st.sampled_from(
                (
                    None,
                    "prefer",
                    *(("require",) * 3 if width > 1 else ("isolate",) * 3),
                    "require",
                    "isolate",
                )
            )
        ),
        None if policy == "shared" else draw(st.sampled_from((None, None, "share", "isolate"))),
        draw(
            st.sampled_from((None, None, None, None, None, "small", "large", "any", 2048, 1048576))
        ),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    width = draw(st.sampled_from((1, 2, 2, 4)))
    guest = draw(guests(width))
    count = draw(st.integers(len(guest.cells), 4)) if draw(st.integers(0, 9)) else 1
    host = tuple(draw(host_cells(number, width, guest.cpu_policy)) for number in range(count))
    on = draw(st.lists(st.sampled_from((None, *(cell.id for cell in host))), max_size=3))
    wanted, policy = (
        draw(st.sampled_from((0, 0, 0, 1, 2))),
        draw(st.sampled_from(("required", "preferred", "legacy", "socket"))),
    )
    return Case(
        host,
        guest,
        draw(st.sampled_from((None, CellLimits(1.0, 1.0), CellLimits(4.0, 1.5)))),
        Networks(
            draw(
                st.sampled_from((frozenset(), frozenset(), frozenset({"p"}), frozenset({"p", "q"})))
            ),
            draw(st.booleans()),
        ),
        lambda: LocalDevices(host, on, wanted, policy),
    )
