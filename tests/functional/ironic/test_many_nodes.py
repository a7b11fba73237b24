"""Many nodes: requests counted at Placement's side. Ironic's answers are recorded ones, given
again: it would take minutes to make the nodes.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.errors import ConfigError
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.tracker.stored_state import InstanceClaim
from tests.functional.ironic.metal import MetalAgent, audited
from tests.functional.ironic.recorded_ironic import RecordedIronic, node_uuid
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.placement import PlacementServer
from tests.support.store_place import Place
from tests.support.system import AgentHere
from tests.support.tracking import Time

# The thousand of the budgets is for the soak: what a node costs is the same among two hundred.
MANY = [200, pytest.param(1000, marks=pytest.mark.soak)]


@pytest.fixture
def recorded() -> Iterator[Callable[..., RecordedIronic]]:
    """Makes a recorded ironic."""
    made: list[RecordedIronic] = []

    def make(number: int, **options: object) -> RecordedIronic:
        made.append(RecordedIronic(number, **options))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


Recorded = Callable[..., RecordedIronic]


def agent_of(
    ironic: RecordedIronic, placement: PlacementServer, folder: Path, **more: object
) -> MetalAgent:
    return MetalAgent(placement, Place(folder, None), ironic.credentials(), **more)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("many", MANY)
def test_many_nodes_cost_what_the_budgets_say(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded, many: int
) -> None:
    ironic, clock = recorded(many, page=many // 5), Time()
    agent = agent_of(ironic, placement, tmp_path, clock=clock)
    first = agent.run()
    assert {one.state for one in first.nodes} == {"changed"}
    # Discovery, the list of the agent's roots, the list of traits; two custom traits and a class;
    # POST and traits a node; the first node's inventory, and one request for those of fifty others.
    batches = -(-(many - 1) // 50)
    assert placement.count() == 2 * many + 3 + 3 + 1 + batches <= 2 * many + many // 50 + 10
    assert placement.count("POST") == many + batches
    asked = [one for one in ironic.asked if one.startswith("/v1/nodes") and "limit=1" not in one]
    # Five full pages and an empty one, once.
    assert len(asked) == 6

    placement.clear()
    steady = agent.run()
    assert (len(steady.nodes), {one.state for one in steady.nodes}) == (many, {"in-sync"})
    assert audited(steady) == set()
    assert placement.count() == 1 <= many / 100 + 1

    changed = {node_uuid(number) for number in (3, many // 2, many - 1)}
    for uuid in changed:
        ironic.nodes[uuid]["maintenance"] = True
    placement.clear()
    some = agent.run()
    assert {one.uuid for one in some.nodes if one.state == "changed"} == audited(some) == changed
    assert (placement.count(), placement.count("PUT")) == (1 + 3, 3)

    agent.kill()
    placement.clear()
    restarted = agent_of(ironic, placement, tmp_path, clock=clock)
    report = restarted.run()
    assert (len(report.nodes), {one.state for one in report.nodes}, report.errors) == (
        many,
        {"in-sync"},
        (),
    )
    assert placement.count() == 1 <= many / 100 + 1
    restarted.kill()


def test_what_changes_in_placement_is_looked_at_although_ironic_says_nothing_new(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded
) -> None:
    agent = agent_of(recorded(20), placement, tmp_path)
    agent.run()
    node = node_uuid(7)
    placement.other.set_inventory(node, {"CUSTOM_BAREMETAL_GOLD": {"total": 1, "reserved": 1}})
    report = agent.run()
    assert audited(report) == {node}
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 0
    placement.other.delete_provider(node)
    report = agent.run()
    assert audited(report) == {node}
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 0
    agent.kill()


@pytest.mark.long
def test_every_node_is_audited_within_the_interval_but_not_all_at_once(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    agent = agent_of(recorded(60), placement, tmp_path)
    clock = SimpleNamespace(monotonic=lambda: now, process_time=time.process_time)
    monkeypatch.setattr("agent.audit.fleet.time", clock)
    agent.run()
    seen: list[set[str]] = []
    for minute in range(1, 11):
        now = minute * 60.0
        seen.append(audited(agent.run()))
    assert set().union(*seen) == set(map(node_uuid, range(60)))
    assert not any(seen[:4])
    assert max(map(len, seen)) < 30
    agent.kill()


def test_a_node_that_is_not_well_is_looked_at_every_time(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded
) -> None:
    ironic = recorded(20)
    bare = node_uuid(4)
    ironic.nodes[bare]["resource_class"] = None
    agent = agent_of(ironic, placement, tmp_path)
    agent.run()
    for _ in range(2):
        report = agent.run()
        assert audited(report) == {bare}
        assert [one.uuid for one in report.nodes if one.state == "failed"] == [bare]
    agent.kill()


@pytest.mark.parametrize(
    "end", ["", "/", "/v1", "/v1/"], ids=["bare", "slash", "version", "version and slash"]
)
def test_the_endpoint_may_name_the_version_or_not(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded, end: str
) -> None:
    ironic = recorded(2)
    agent = MetalAgent(
        placement,
        Place(tmp_path, None),
        {**ironic.credentials(), "endpoint_override": ironic.url + end},
    )
    assert set(agent.nodes()) == {node_uuid(0), node_uuid(1)}
    agent.kill()


def test_a_claim_that_is_not_published_yet_is_reason_enough_for_an_audit(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded
) -> None:
    agent = agent_of(recorded(4), placement, tmp_path)
    agent.run()
    node, gold = ProviderUuid(node_uuid(2)), Flavor("flavor", "gold", 8, 16384, 500)
    guest = Instance(
        uuid=ConsumerUuid(new_uuid()),
        project_id="p",
        user_id="u",
        flavor=gold,
        host=agent.host,
        node=node,
    )
    agent.tracking.tracker.claim(InstanceClaim(id=new_uuid(), node=node, instance=guest))
    assert audited(agent.run()) == {node}
    assert audited(agent.run()) == set()
    agent.kill()


def test_a_list_that_goes_round_in_circles_is_no_list(
    placement: PlacementServer, tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    ironic = recorded(6, page=3)
    monkeypatch.setattr("drivers.ironic.managed.LONGEST_WAIT", 0.0)
    whole = ironic.answer
    monkeypatch.setattr(ironic, "answer", lambda path, _query: whole(path, {}))
    agent = agent_of(ironic, placement, tmp_path)
    (error,) = agent.run().errors
    assert (error.code, "a second time" in error.message) == ("driver.not-ready", True)
    assert placement.dump()["providers"] == {}
    agent.kill()


@pytest.mark.parametrize(
    ("scope", "highest"),
    [({"conductor_group": "rackA"}, "1.40"), ({"shard": "s1"}, "1.81"), ({}, "1.45")],
    ids=["group", "shard", "neither"],
)
def test_an_ironic_that_is_too_old_for_the_filter_is_refused_at_the_start(
    placement: PlacementServer,
    tmp_path: Path,
    recorded: Recorded,
    scope: dict[str, str],
    highest: str,
) -> None:
    ironic = recorded(3, highest=highest)
    agent = MetalAgent(placement, Place(tmp_path, None), {**ironic.credentials(), **scope})
    with pytest.raises(ConfigError, match=f"has no more than {highest}"):
        agent.run()
    assert not [one for one in ironic.asked if one.startswith("/v1/nodes")]
    assert placement.requests == []


def test_the_older_name_of_the_conductor_group_selects_the_same_nodes(
    http_placement: HttpPlacement, tmp_path: Path, recorded: Recorded
) -> None:
    ironic = recorded(2)
    agent = AgentHere(
        tmp_path,
        {
            "DEFAULT": {"compute_driver": "ironic.IronicDriver", "host": "metal-1"},
            "ironic": {**ironic.credentials(), "partition_key": "RackA"},
            "placement": http_placement.credentials(),
        },
    )
    assert agent.run("--once").code == 0
    asked = [one for one in ironic.asked if one.startswith("/v1/nodes?")]
    assert [one for one in asked if "conductor_group=racka" not in one] == []
    assert asked
