"""How many requests each case costs, counted at Placement's side: exact numbers, for trees of 1 to
513 providers (9 in make test, 73 among the long tests, 513 under soak).
"""

import itertools
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReshapeNeeded
from agent.model.names import child_role, child_uuid
from agent.model.provider_tree import ProviderTree
from agent.placement import clock, exchange
from agent.placement.mirror import Freshness
from tests.support import faults
from tests.support.agent import (
    NAME,
    ROOT,
    AgentUnderTest,
    ScriptedDriver,
    Shape,
    new_uuid,
    shaped,
    total,
)
from tests.support.consumer_book import Book
from tests.support.placement import PROJECT, USER, PlacementServer

CELLS = 8


@dataclass(frozen=True)
class Size:
    """A tree: its providers P, how many of them have traits T, how many custom names it needs K."""

    providers: int
    traits: int
    names: int
    first: int
    """What the first pass on an empty Placement costs."""

    @property
    def cells(self) -> list[str]:
        return [f"N{cell}" for cell in range(min(CELLS, self.providers - 1))]

    @property
    def devices(self) -> Mapping[str, str]:
        """Device to cell."""
        return {
            f"D{number}": f"N{number % CELLS}"
            for number in range(max(0, self.providers - 1 - CELLS))
        }

    @property
    def last(self) -> str:
        """A provider without children: the root if it is the only one."""
        return next(reversed([NAME, *self.cells, *self.devices]))


SIZES = [
    # P + T + 4 + K: discovery, the tree, one list of traits, one inventory.
    Size(1, traits=1, names=1, first=1 + 1 + 4 + 1),
    # P + T + 5 + K: from three inventories up one reshape and one re-read instead of P writes.
    Size(9, traits=9, names=1, first=9 + 9 + 5 + 1),
    Size(73, traits=17, names=3, first=73 + 17 + 5 + 3),
    Size(513, traits=17, names=3, first=513 + 17 + 5 + 3),
]
*SMALL, LARGE, LARGEST = SIZES
# The largest takes half of the time of all, and is for the soak but for one test.
CASES = [
    *SMALL,
    pytest.param(LARGE, marks=pytest.mark.long),
    pytest.param(LARGEST, marks=pytest.mark.soak),
]
CONSUMERS = [0, 100]
CLAIM = {
    "allocations": {ROOT: {"resources": {"VCPU": 1, "MEMORY_MB": 512}}},
    "project_id": PROJECT,
    "user_id": USER,
    "consumer_generation": None,
}

Inventories = dict[str, dict[str, Any]]


def inventories(size: Size) -> dict[str, Inventories]:
    """What each provider has."""
    root = {"VCPU": total(256), "MEMORY_MB": total(1048576), "VGPU": total(4)}
    return {
        NAME: root,
        **{name: {"PCPU": total(8)} for name in size.cells},
        **{name: {"CUSTOM_DEVICE": total(4)} for name in size.devices},
    }


def traits(size: Size) -> dict[str, tuple[str, ...]]:
    """The traits of every cell, and of the first device below each."""
    return dict.fromkeys(size.cells, ("HW_NUMA_ROOT",)) | {
        f"D{cell}": ("CUSTOM_FIRST",) for cell in range(CELLS) if size.devices
    }


def shape_of(size: Size, changed: Mapping[str, Inventories] | None = None) -> Shape:
    """The tree, with the inventories of some providers changed."""
    have = inventories(size) | (changed or {})
    parents = dict.fromkeys(size.cells, NAME) | dict(size.devices)
    return shaped(
        have[NAME],
        {name: (parent, have[name]) for name, parent in parents.items()},
        traits=traits(size),
    )


def grown(size: Size) -> Inventories:
    """What the last provider has, and one class more."""
    return inventories(size)[size.last] | {"IPV4_ADDRESS": total(8)}


def uuid_of(name: str) -> str:
    return ROOT if name == NAME else child_uuid(ROOT, child_role(name, NAME))


@dataclass(frozen=True)
class Built:
    """A host after its first pass, and one cycle after consumers came: Placement's state and the
    agent's.
    """

    size: Size
    consumers: int
    database: sqlite3.Connection
    folder: Path
    first: int


Build = Callable[[Size, int], Built]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """Builds each host once, because 513 providers take their time."""
    made: dict[tuple[int, int], Built] = {}

    def build(size: Size, consumers: int) -> Built:
        if (size.providers, consumers) not in made:
            made[size.providers, consumers] = _built(
                size,
                consumers,
                tmp_path_factory.mktemp("host"),
                build(size, 0) if consumers else None,
            )
        return made[size.providers, consumers]

    yield build
    for one in made.values():
        one.database.close()


def _built(size: Size, consumers: int, folder: Path, start: Built | None) -> Built:
    placement = PlacementServer()
    if start:
        placement.restore(start.database)
        shutil.copytree(start.folder, folder, dirs_exist_ok=True)
        placement.other.call(
            "POST", "/allocations", {new_uuid(): dict(CLAIM) for _ in range(consumers)}
        )
    agent = AgentUnderTest(placement, folder, ScriptedDriver(shape_of(size)))
    report = agent.once()
    assert report.state == ("in-sync" if start else "changed")
    built = Built(size, consumers, placement.snapshot(), folder, placement.count())
    placement.close()
    return built


@pytest.fixture(params=CONSUMERS, ids=lambda count: f"{count} consumers")
def consumers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=CASES, ids=lambda size: f"P={size.providers}")
def size(request: pytest.FixtureRequest) -> Size:
    size: Size = request.param
    return size


@pytest.fixture
def agent(
    build: Build, size: Size, consumers: int, placement: PlacementServer, tmp_path: Path
) -> Iterator[AgentUnderTest]:
    """A settled host in a process that has just started again and found everything in sync."""
    built = build(size, consumers)
    placement.restore(built.database)
    shutil.copytree(built.folder, tmp_path / "state")
    agent = AgentUnderTest(placement, tmp_path / "state", ScriptedDriver(shape_of(size)))
    assert agent.cycle(start=True).state == "in-sync"
    placement.clear()
    yield agent
    agent.stop()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LEAST_WAIT", 0.0)
    monkeypatch.setattr(exchange, "LONGEST_WAIT", 0.0)


def test_the_first_pass_on_an_empty_placement(build: Build, size: Size) -> None:
    assert build(size, 0).first == size.first <= size.providers + size.traits + 5 + size.names


@pytest.mark.long
def test_the_largest_tree_costs_no_more_after_its_first_pass(
    build: Build, placement: PlacementServer, tmp_path: Path
) -> None:
    built = build(LARGEST, 0)
    assert built.first == LARGEST.first
    placement.restore(built.database)
    shutil.copytree(built.folder, tmp_path / "state")
    agent = AgentUnderTest(placement, tmp_path / "state", ScriptedDriver(shape_of(LARGEST)))
    for following in (agent.once, agent.cycle):
        placement.clear()
        assert following().state == "in-sync"
        assert placement.count() == 1
    agent.driver.script = shape_of(LARGEST, {LARGEST.last: grown(LARGEST)})
    placement.clear()
    assert agent.cycle().state == "changed"
    assert placement.count() == 2
    agent.stop()


def test_a_steady_pass_is_one_request(agent: AgentUnderTest, placement: PlacementServer) -> None:
    assert agent.cycle().state == "in-sync"
    assert placement.count() == 1


def test_a_restart_is_one_request(agent: AgentUnderTest, placement: PlacementServer) -> None:
    assert agent.once().state == "in-sync"
    assert placement.count() == 1


@pytest.mark.long
def test_a_restart_without_the_saved_mirror_reads_everything_once(
    agent: AgentUnderTest, placement: PlacementServer, size: Size
) -> None:
    agent.stop()
    shutil.rmtree(agent.folder)
    assert agent.once().state == "in-sync"
    assert placement.count() == placement.count("GET") == 3 * size.providers + 2


def test_one_changed_inventory_is_two_requests(
    agent: AgentUnderTest, placement: PlacementServer, size: Size
) -> None:
    agent.driver.script = shape_of(size, {size.last: grown(size)})
    assert agent.cycle().state == "changed"
    assert placement.count() == 2


def test_one_changed_set_of_traits_is_two_requests(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    # The first time costs one list more, because this Placement was never asked for that name.
    for supported, requests in ((True, 3), (False, 2), (True, 2)):
        agent.driver.capabilities = {"COMPUTE_TRUSTED_CERTS": supported}
        placement.clear()
        assert agent.cycle().state == "changed"
        assert placement.count() == requests


def test_a_conflict_costs_one_structure_and_the_reading_of_what_moved(
    agent: AgentUnderTest, placement: PlacementServer, size: Size
) -> None:
    def meddle(_: object) -> None:
        placement.other.set_traits(
            uuid_of(size.last), placement.other.traits(uuid_of(size.last)) | {"CUSTOM_SOMEBODY"}
        )

    agent.driver.script = shape_of(size, {size.last: grown(size)})
    placement.faults.add(faults.before(meddle), method="PUT", path="/inventories$")
    report = agent.cycle()
    assert (report.state, report.attempts) == ("changed", 2)
    # A pass and its write as always; then one structure GET, three reads of the one that moved, and
    # the write again.
    assert placement.count() == 2 + 1 + 3 + 1


def test_the_recovery_after_an_outage_is_one_request(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.faults.add(faults.refused(), times=None)
    for _ in range(3):
        assert agent.cycle().state == "failed"
    placement.faults.clear()
    placement.clear()
    assert agent.cycle().state == "in-sync"
    assert placement.count() == 1


@pytest.fixture
def book(agent: AgentUnderTest, placement: PlacementServer) -> Book:
    """Records of a guest that the node holds, of which ``agent`` has taken note."""
    book = Book(agent.folder, ROOT)
    book.tracked(placement.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 2048}}))
    assert agent.cycle().state == "in-sync"
    assert [one for one in agent.cycle().drift if one.severity == "warning"] == []
    placement.clear()
    return book


@pytest.mark.usefixtures("book")
def test_with_records_a_steady_pass_and_a_restart_are_one_request(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    for following in (agent.cycle, agent.cycle, agent.once):
        assert following().state == "in-sync"
        assert placement.count() == 1
        placement.clear()


@pytest.mark.usefixtures("book")
def test_with_records_a_provider_that_moved_is_one_request_more(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.other.claim({ROOT: {"VCPU": 1}})
    assert agent.cycle().state == "in-sync"
    # The structure, three readings of what moved, and who holds what of it.
    assert placement.count() == placement.count("GET") == 1 + 3 + 1


@pytest.mark.long
@pytest.mark.usefixtures("book")
def test_with_records_everything_read_again_is_four_requests_a_provider(
    agent: AgentUnderTest, placement: PlacementServer, size: Size
) -> None:
    assert agent.once(reread=True).state == "in-sync"
    assert placement.count() == placement.count("GET") == 4 * size.providers + 2
    placement.clear()
    agent.stop()
    with closing(sqlite3.connect(agent.folder / "database/store.sqlite")) as store, store:
        store.execute("PRAGMA foreign_keys = ON")
        store.execute("DELETE FROM mirror")
    assert agent.once().state == "in-sync"
    # The same without discovery, because what the server offers is kept by itself.
    assert placement.count() == placement.count("GET") == 4 * size.providers + 1


def test_with_records_the_first_pass_costs_no_more_and_the_second_is_one_request(
    placement: PlacementServer, tmp_path: Path, size: Size
) -> None:
    agent, book = (
        AgentUnderTest(placement, tmp_path, ScriptedDriver(shape_of(size))),
        Book(tmp_path, ROOT),
    )
    book.instance(guest := new_uuid())
    assert agent.once().state == "changed"
    assert placement.count() == size.first
    book.claim(guest)
    # A guest that seems to hold nothing is asked for once by each process, because it may have got
    # something since the tree was read.
    for following, asked in ((agent.once, 1), (agent.cycle, 1), (agent.cycle, 0)):
        placement.clear()
        assert [one.kind for one in following().drift] == ["missing-allocation"]
        assert placement.count() == placement.count("GET") == 1 + asked
    agent.stop()


def test_a_removal_is_two_requests_a_consumer(
    agent: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    gone = [placement.other.claim({ROOT: {"VCPU": 1}}) for _ in range(3)]
    agent.cycle()
    for one in gone:
        book.instance(one, deleted=True)
    placement.clear()
    assert agent.cycle().state == "changed"
    # The structure; then what each holds is read again and taken away.
    assert (placement.count(), placement.count("PUT")) == (1 + 2 * len(gone), len(gone))
    placement.clear()
    # That moved the root's generation.
    assert agent.cycle().state == "in-sync"
    assert placement.count() == 1 + 3 + 1


def test_a_foreign_child_that_goes_away_is_no_request_more(
    agent: AgentUnderTest, placement: PlacementServer, size: Size
) -> None:
    theirs = placement.other.create_provider("bandwidth", parent=uuid_of(size.last))
    assert agent.cycle().state == "in-sync"
    # Others' allocations move the root beside it, and who holds them is asked for.
    placement.other.delete_provider(theirs)
    placement.other.claim({ROOT: {"VCPU": 1}})
    placement.clear()
    assert agent.cycle().state == "in-sync"
    assert placement.count() == placement.count("GET") == 1 + 3 + 1 <= 5


@pytest.mark.parametrize("size", CASES[1:], ids=lambda size: f"P={size.providers}")
@pytest.mark.parametrize("consumers", [0])
def test_one_of_ours_that_an_operator_deleted_is_made_again_without_reading_the_others(
    agent: AgentUnderTest, placement: PlacementServer, size: Size
) -> None:
    placement.other.delete_provider(uuid_of(size.last))
    placement.clear()
    assert agent.cycle().state == "changed"
    has_traits = size.last in traits(size)
    # The structure, then the provider, what it has, and where it has any its traits.
    assert (placement.count(), placement.count("GET")) == (1 + 2 + has_traits, 1)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock to so many seconds from now."""
    now = clock.now()
    return lambda seconds: monkeypatch.setattr(clock, "now", lambda: now + seconds)


@pytest.mark.long
@pytest.mark.usefixtures("book")
def test_with_records_the_holders_of_root_and_cells_are_each_asked_for_within_consumers_refresh_one_a_pass(
    agent: AgentUnderTest, placement: PlacementServer, size: Size, at: Callable[[float], None]
) -> None:
    asked: dict[str, list[int]] = {}
    wanted = {uuid_of(name) for name in [NAME, *size.cells]}
    for seconds in range(60, 3 * 600, 60):
        at(seconds)
        placement.clear()
        # A restart keeps what was asked when.
        assert (agent.once() if seconds == 900 else agent.cycle()).state == "in-sync"
        assert placement.count() == placement.count("GET") <= 2
        for one in placement.requests[1:]:
            assert one.path.endswith("/allocations")
            asked.setdefault(one.path.split("/")[2], [0]).append(seconds)
    assert asked.keys() == wanted
    assert all(
        later - sooner <= 600 + 60
        for times in asked.values()
        for sooner, later in itertools.pairwise([*times, 3 * 600 - 60])
    )


@pytest.mark.usefixtures("book")
def test_consumers_refresh_0_never_asks_again(
    agent: AgentUnderTest, placement: PlacementServer, at: Callable[[float], None]
) -> None:
    agent.stop()
    agent.freshness = Freshness(consumers=0)
    for seconds in (60, 3600, 86400):
        at(seconds)
        placement.clear()
        assert agent.cycle().state == "in-sync"
        assert placement.count() == 1


def test_without_records_a_host_is_asked_who_holds_it_only_if_somebody_does(
    agent: AgentUnderTest,
    placement: PlacementServer,
    at: Callable[[float], None],
    consumers: int,
) -> None:
    for seconds in (60, 3600, 86400):
        at(seconds)
        placement.clear()
        report = agent.cycle()
        assert report.state == "in-sync"
        assert [one.kind for one in report.drift] == ["orphaned-allocation"] * consumers
        assert placement.count() == 1 + bool(consumers and seconds >= 600)


@pytest.mark.long
def test_many_guests_whose_amounts_stay_wrong_cost_few_requests_a_pass(
    agent: AgentUnderTest, placement: PlacementServer, book: Book
) -> None:
    for _ in range(20):
        book.tracked(placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 2048}}))
    placement.clear()
    asked = []
    for _ in range(3):
        assert [one.kind for one in agent.cycle().drift].count("allocation-mismatch") == 20
        asked.append(
            len([one for one in placement.requests if one.path.startswith("/allocations/")])
        )
        placement.clear()
    assert asked == [20, 8, 8]


def test_something_held_is_one_request_more(
    agent: AgentUnderTest, placement: PlacementServer, size: Size, consumers: int
) -> None:
    *rest, gone = inventories(size)[size.last].items()
    placement.other.claim({uuid_of(size.last): {gone[0]: 1}})
    agent.driver.script = shape_of(size, {size.last: dict(rest)})
    told = [one.kind for one in agent.cycle().drift]
    assert told == ["held-device", *["orphaned-allocation"] * (consumers + 1)]
    for following in (agent.cycle, agent.once):
        placement.clear()
        assert following().state == "in-sync"
        assert placement.count() == 2


class Splitting(ScriptedDriver):
    """In nova's style: the tree as it is, then VCPU moved from the root to two new cells, and a
    provider dropped.
    """

    drops: str | None = None

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: dict[str, Any] | None = None
    ) -> None:
        if provider_tree.exists("C0"):
            return
        if allocations is None:
            raise ReshapeNeeded
        root = provider_tree.data(nodename)
        provider_tree.update_inventory(
            nodename, {name: record for name, record in root.inventory.items() if name != "VCPU"}
        )
        cells = [provider_tree.new_child(f"C{number}", nodename) for number in range(2)]
        for cell in cells:
            provider_tree.update_inventory(cell, {"VCPU": total(128)})
            provider_tree.update_traits(cell, ["HW_CPU_X86_AVX2"])
        if self.drops:
            provider_tree.remove(self.drops)
        for number, record in enumerate(allocations.values()):
            held = record["allocations"]
            held[cells[number % 2]] = {
                "resources": {"VCPU": held[root.uuid]["resources"].pop("VCPU")}
            }


def test_a_reshape_from_the_root_to_two_cells(
    agent: AgentUnderTest, placement: PlacementServer, size: Size, consumers: int
) -> None:
    agent.driver = Splitting()
    agent.driver.drops = size.last if size.providers > 1 else None
    report = agent.once()
    assert (report.state, report.attempts, report.errors) == ("changed", 1, ())
    stocked, made, dropped = size.providers, 2, int(size.providers > 1)
    # The structure, I lists of consumers, C consumers, one list of traits; P_new POSTs, the
    # reshape, one re-read, D deletes, P_new sets of traits.
    assert (
        placement.count()
        == consumers + stocked + 2 * made + dropped + 4
        <= consumers + stocked + 2 * made + dropped + 6
    )
    assert len([one for one in placement.requests if one.path == "/reshaper"]) == 1
    cells = [child_uuid(ROOT, "C0"), child_uuid(ROOT, "C1")]
    held = [one["allocations"] for one in placement.dump()["consumers"].values()]
    assert len(held) == consumers
    assert all(
        one in [{ROOT: {"MEMORY_MB": 512}, cell: {"VCPU": 1}} for cell in cells] for one in held
    )


NODES = 200


@pytest.fixture
def metal(placement: PlacementServer, tmp_path: Path) -> Iterator[AgentUnderTest]:
    nodes = {
        str(uuid.uuid5(uuid.NAMESPACE_DNS, f"metal-{number}")): f"metal-{number}"
        for number in range(NODES)
    }
    agent = AgentUnderTest(
        placement, tmp_path, ScriptedDriver(shaped({"CUSTOM_METAL": total(1)}), nodes)
    )
    yield agent
    agent.stop()


@pytest.mark.long
def test_many_bare_metal_nodes(metal: AgentUnderTest, placement: PlacementServer) -> None:
    first = metal.period(start=True)
    assert {node.state for node in first.nodes} == {"changed"}
    # Discovery, one list of roots, one list of traits; the agent's trait and the class; POST and
    # traits a node; the inventories of the first node, and one request for those of each fifty.
    assert placement.count() == 2 * NODES + 1 + NODES // 50 + 3 + 2 <= 2 * NODES + NODES / 50 + 10
    for following in (metal.period, metal.period, metal.report):
        placement.clear()
        assert {node.state for node in following().nodes} == {"in-sync"}
        assert placement.count() == 1 <= NODES / 100 + 1
