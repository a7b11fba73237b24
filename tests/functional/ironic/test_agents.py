"""More than one agent at one ironic: who manages which node is one agent's business at a time."""

from pathlib import Path

import pytest

from agent.errors import StandingBy
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import RecordChanges
from agent.tracker.claims import check_ready
from agent.tracker.errors import NodeUnavailable
from tests.functional.ironic.conftest import Metal
from tests.functional.ironic.ironic import Ironic
from tests.functional.ironic.metal import LEASE, MetalAgent, audited
from tests.support import faults
from tests.support.agent import new_uuid
from tests.support.placement import PlacementServer
from tests.support.proxy import FaultProxy
from tests.support.store_place import Place
from tests.support.tracking import Time

pytestmark = pytest.mark.long

STANDBY = StandingBy.code


def mark(agent: MetalAgent) -> str:
    return f"CUSTOM_COMPUTE_NODE_AGENT_{agent.host.upper().replace('-', '_')}"


def stands_by(agent: MetalAgent, active: MetalAgent, placement: PlacementServer) -> None:
    """It says so, and does nothing."""
    before, requests = placement.dump(), placement.count()
    report = agent.run()
    assert ([one.code for one in report.errors], report.nodes) == ([STANDBY], ())
    assert report.errors[0].message.startswith(f"standing by: host {active.host} manages ")
    assert (placement.dump(), placement.count()) == (before, requests)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store for two agents, in a file of its own or on a server."""
    if request.param == "postgresql":
        place: Place = request.getfixturevalue("postgresql_place")
        return place
    return Place(tmp_path / "both", f"sqlite:///{tmp_path}/both.sqlite")


def test_of_two_agents_of_one_shard_one_manages_and_the_other_stands_by(
    metal: Metal, ironic: Ironic, placement: PlacementServer, shared: Place
) -> None:
    time, node, gone = Time(), ironic.available(shard="s1"), ironic.available(shard="s1")
    one, other = (
        metal(place=shared, scope={"shard": "s1"}, host=host, clock=time)
        for host in ("metal-1", "metal-2")
    )
    assert set(one.nodes()) == {node, gone}
    stands_by(other, one, placement)
    # Nor does it delete anything.
    ironic.delete(gone)
    stands_by(other, one, placement)
    ironic.maintenance(node, on=True)
    stands_by(other, one, placement)
    assert set(placement.dump()["providers"]) == {node, gone}
    one.nodes()
    assert set(placement.dump()["providers"]) == {node}
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 1


def test_the_one_that_stands_by_takes_over_when_the_other_is_not_heard_of(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    time, node = Time(), ironic.available()
    one, other = metal(clock=time), metal(host="metal-2", clock=time)
    one.nodes()
    one.kill()
    time.pass_by(LEASE - 1)
    stands_by(other, one, placement)
    time.pass_by(2)
    assert set(other.nodes()) == {node}
    stands_by(one, other, placement)


def test_an_agent_that_cannot_reach_ironic_does_not_keep_one_that_can_from_taking_over(
    metal: Metal, ironic: Ironic, placement: PlacementServer, between: FaultProxy
) -> None:
    time, node = Time(), ironic.available()
    one, other = (
        metal(ironic.credentials(between.url), clock=time),
        metal(host="metal-2", clock=time),
    )
    one.nodes()
    with between.down():
        for _ in range(5):
            assert [problem.code for problem in one.run().errors] == ["driver.not-ready"]
            stands_by(other, one, placement)
            time.pass_by(LEASE / 5 + 1)
        assert set(other.nodes()) == {node}
    stands_by(one, other, placement)


def test_nodes_that_are_not_audited_stay_the_agents_own(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    time, nodes = Time(), {ironic.available(shard="s1") for _ in range(2)}
    one = metal(scope={"shard": "s1"}, clock=time)
    one.nodes()
    # Somebody who manages all shards, and so this node too.
    other = metal(host="metal-2", clock=time)
    for _ in range(10):
        assert audited(one.run()) == set()
        found = {
            report.uuid: [problem.code for problem in report.errors] for report in other.run().nodes
        }
        assert found == {node: ["node.elsewhere"] for node in nodes}
        time.pass_by(LEASE / 4)


def test_a_lease_that_was_lost_in_the_middle_ends_the_pass(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    time = Time()
    nodes = [ironic.available() for _ in range(4)]
    one, other = metal(clock=time), metal(host="metal-2", clock=time)

    def taken(_exchange: object) -> None:
        """The agent is held for longer than its lease, while it writes its first node."""
        time.pass_by(LEASE + 1)
        assert set(other.nodes()) == set(nodes)

    placement.faults.add(
        faults.before(taken), method="GET", path=r"in_tree|/resource_providers\?required"
    )
    report = one.run()
    assert [problem.code for problem in report.errors] == [STANDBY]
    assert all(
        mark(other) in traits and mark(one) not in traits
        for traits in map(placement.other.traits, nodes)
    )


def test_a_node_that_moves_to_another_shard_moves_to_its_agent(
    metal: Metal, ironic: Ironic, placement: PlacementServer, shared: Place
) -> None:
    time, moves, stays = Time(), ironic.available(shard="s1"), ironic.available(shard="s1")
    first, second = (
        metal(place=shared, scope={"shard": shard}, host=f"metal-{shard}", clock=time)
        for shard in ("s1", "s2")
    )
    assert (set(first.nodes()), second.nodes()) == ({moves, stays}, {})
    ironic.set(moves, shard="s2")
    # As long as the first one has not seen it go, it is not taken from it.
    (report,) = second.run().nodes
    assert [problem.code for problem in report.errors] == ["node.elsewhere"]
    time.pass_by(LEASE / 3)
    assert set(first.nodes()) == {stays}
    assert set(placement.dump()["providers"]) == {moves, stays}
    assert {uuid: report.state for uuid, report in second.nodes().items()} == {moves: "changed"}
    assert mark(second) in placement.other.traits(moves)
    assert mark(first) not in placement.other.traits(moves)
    assert set(first.nodes()) == {stays}
    # It is the second one's to delete.
    ironic.delete(moves)
    first.nodes()
    assert set(placement.dump()["providers"]) == {moves, stays}
    second.nodes()
    assert set(placement.dump()["providers"]) == {stays}


def test_the_backend_is_not_asked_in_every_pass_about_nodes_that_are_elsewhere(
    metal: Metal, ironic: Ironic, between: FaultProxy
) -> None:
    node, _ = ironic.available(shard="s1"), ironic.available(shard="s1")
    agent = metal(ironic.credentials(between.url), scope={"shard": "s1"})
    agent.nodes()
    ironic.set(node, shard="s2")
    for _ in range(3):
        agent.nodes()
        # A pass that does not ask Placement shows nothing of them.
        agent.run(on_mirror=True)
    assert len([one for one in between.requests if one.path == f"/v1/nodes/{node}"]) == 1


def instance(agent: MetalAgent, uuid: str, node: str, host: str) -> None:
    """A record of a guest on a node."""
    agent.start()
    gold = Flavor("flavor", "gold", 0, 0)
    made = Instance(
        uuid=ConsumerUuid(uuid),
        project_id="p",
        user_id="u",
        flavor=gold,
        host=host,
        node=ProviderUuid(node),
        vm_state="active",
    )
    with agent.records.transaction([ProviderUuid(node)]) as transaction:
        transaction.write(RecordChanges(instances=(made,)))


def test_a_node_with_an_instance_of_another_agent_is_managed_when_it_is_free(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    agent, node, theirs = metal(), ironic.available(), new_uuid()
    agent.nodes()
    instance(agent, theirs, node, "metal-9")
    ironic.deploy(node, theirs)
    assert agent.nodes() == {}
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 0
    ironic.provision(node, "deleted", "available")
    ironic.maintenance(node, on=True)
    assert set(agent.nodes()) == {node}
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 1


def test_a_node_with_our_instance_stays_ours_when_somebody_moves_it_to_another_shard(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    agent, node, ours = metal(scope={"shard": "s1"}), ironic.available(shard="s1"), new_uuid()
    agent.nodes()
    instance(agent, ours, node, agent.host)
    ironic.deploy(node, ours)
    ironic.set(node, shard="s2")
    assert set(agent.nodes()) == {node}
    assert placement.other.inventory(node)["CUSTOM_BAREMETAL_GOLD"]["reserved"] == 1
    ironic.provision(node, "deleted", "available")
    assert agent.nodes() == {}


def resource_classes(placement: PlacementServer, node: str) -> set[str]:
    return set(placement.other.inventory(node))


@pytest.mark.parametrize("out_of_reach", [False, True])
def test_an_agent_that_gets_its_nodes_back_offers_each_in_one_class_with_one_mark(
    metal: Metal,
    ironic: Ironic,
    placement: PlacementServer,
    between: FaultProxy,
    shared: Place,
    out_of_reach: bool,
) -> None:
    time, node = Time(), ironic.available("silver")
    one = metal(ironic.credentials(between.url), place=shared, clock=time)
    other = metal(place=shared, host="metal-2", clock=time)
    one.nodes()
    if out_of_reach:
        with between.down():
            assert [problem.code for problem in one.run().errors] == ["driver.not-ready"]
            time.pass_by(LEASE + 1)
            ironic.set(node, resource_class="gold")
            other.nodes()
            stands_by(one, other, placement)
    else:
        time.pass_by(LEASE + 1)
        ironic.set(node, resource_class="gold")
        other.nodes()
    other.stop()
    ironic.set(node, resource_class="bronze")
    assert {uuid: report.state for uuid, report in one.nodes().items()} == {node: "changed"}
    assert resource_classes(placement, node) == {"CUSTOM_BRONZE"}
    assert mark(one) in placement.other.traits(node)
    assert mark(other) not in placement.other.traits(node)


def test_a_node_that_another_agent_took_is_looked_at_again_even_if_nothing_shows_that_it_changed(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    time, node = Time(), ironic.available("silver")
    one, other = metal(clock=time), metal(host="metal-2", clock=time)
    one.nodes()
    time.pass_by(LEASE + 1)
    other.nodes()
    other.stop()
    # As if it had never been elsewhere.
    assert audited(one.run()) == {node}
    assert mark(one) in placement.other.traits(node)
    assert mark(other) not in placement.other.traits(node)


# --- stores of their own --------------------------------------------------------------------------


def held_elsewhere(agent: MetalAgent, other: MetalAgent, placement: PlacementServer) -> None:
    """It says for every node whose it is, and writes nothing."""
    before = placement.dump()
    placement.clear()
    report = agent.run()
    assert not report.errors
    assert {problem.code for node in report.nodes for problem in node.errors} == {"node.elsewhere"}
    assert all(mark(other) in problem.message for node in report.nodes for problem in node.errors)
    assert placement.dump() == before
    # Of a node that it has never seen it learns by a refusal that there is a root already.
    assert {one.status for one in placement.requests if one.method != "GET"} <= {409}


@pytest.fixture
def apart(metal: Metal, tmp_path: Path) -> tuple[MetalAgent, MetalAgent]:
    """Two agents of all nodes that know nothing of each other."""
    time = Time()
    one, other = (
        metal(
            place=Place(tmp_path / host, f"sqlite:///{tmp_path}/{host}.sqlite"),
            host=host,
            clock=time,
        )
        for host in ("metal-1", "metal-2")
    )
    return one, other


def test_of_two_agents_with_stores_of_their_own_the_second_leaves_the_nodes_of_the_first_alone_and_says_so(
    apart: tuple[MetalAgent, MetalAgent], ironic: Ironic, placement: PlacementServer
) -> None:
    one, other = apart
    node, gone = ironic.available(), ironic.available()
    assert set(one.nodes()) == {node, gone}
    held_elsewhere(other, one, placement)
    ironic.maintenance(node, on=True)
    held_elsewhere(other, one, placement)
    assert {uuid: report.state for uuid, report in one.nodes().items()} == {
        node: "changed",
        gone: "in-sync",
    }
    # Nor does it delete what is another's.
    ironic.delete(gone)
    held_elsewhere(other, one, placement)
    assert gone in placement.dump()["providers"]
    one.nodes()
    assert set(placement.dump()["providers"]) == {node}


def test_a_node_is_taken_over_from_an_agent_with_another_store_by_adopting_it_and_the_other_one_stands_by(
    apart: tuple[MetalAgent, MetalAgent], ironic: Ironic, placement: PlacementServer
) -> None:
    one, other = apart
    node, stays = ironic.available(), ironic.available()
    one.nodes()
    held_elsewhere(other, one, placement)
    assert {uuid: report.state for uuid, report in other.nodes(node, adopt=True).items()} == {
        node: "changed"
    }
    assert (
        mark(other) in placement.other.traits(node),
        mark(one) in placement.other.traits(node),
    ) == (True, False)
    ironic.maintenance(node, on=True)
    ironic.maintenance(stays, on=True)
    found = {
        report.uuid: (report.state, [problem.code for problem in report.errors])
        for report in one.run().nodes
    }
    assert found == {node: ("failed", ["node.elsewhere"]), stays: ("changed", [])}
    assert {report.uuid: report.state for report in other.run().nodes} == {
        node: "changed",
        stays: "failed",
    }
    assert [
        placement.other.inventory(uuid)["CUSTOM_BAREMETAL_GOLD"]["reserved"]
        for uuid in (node, stays)
    ] == [1, 1]


def test_a_node_is_taken_over_from_an_agent_with_another_store_once_its_mark_is_gone(
    apart: tuple[MetalAgent, MetalAgent], ironic: Ironic, placement: PlacementServer
) -> None:
    one, other = apart
    node = ironic.available()
    one.nodes()
    held_elsewhere(other, one, placement)
    one.stop()
    placement.other.set_traits(node, placement.other.traits(node) - {mark(one)})
    assert {uuid: report.state for uuid, report in other.nodes().items()} == {node: "changed"}
    held_elsewhere(one, other, placement)


def test_who_stands_by_promises_nothing_of_the_node(
    apart: tuple[MetalAgent, MetalAgent], ironic: Ironic, placement: PlacementServer
) -> None:
    one, other = apart
    node = ironic.available()
    one.nodes()
    held_elsewhere(other, one, placement)
    with pytest.raises(NodeUnavailable):
        check_ready(other.tracking.tracker.view(ProviderUuid(node)))
    one.stop()
    placement.other.set_traits(node, ())
    other.nodes()
    check_ready(other.tracking.tracker.view(ProviderUuid(node)))
