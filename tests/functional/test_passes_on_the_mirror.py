"""A pass on the mirror asks Placement nothing as long as host and records give nothing to do; what
they give is published at once, and what others changed is seen in the next pass that asks.
"""

import pytest

from agent.model.names import child_uuid
from agent.placement import clock
from agent.placement.mirror import Freshness
from agent.tracker.errors import NodeHeldElsewhere
from agent.tree.desired_tree import agent_trait
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver, new_uuid, shaped, total
from tests.support.consumer_book import Book

TREE = shaped({"VCPU": total(8), "MEMORY_MB": total(1024)}, {"N0": (NAME, {"PCPU": total(4)})})
GROWN = shaped({"VCPU": total(9), "MEMORY_MB": total(1024)}, {"N0": (NAME, {"PCPU": total(4)})})


@pytest.fixture
def agent(placement, tmp_path):
    """A host that is in sync, whose agent is not running."""
    made = AgentUnderTest(placement, tmp_path / "state", ScriptedDriver(TREE))
    assert made.once().state == "changed"
    assert made.once().state == "in-sync"
    placement.clear()
    yield made
    made.stop()


def test_a_start_on_a_saved_mirror_asks_nothing_and_the_next_pass_asks_once(agent, placement):
    node = agent.cycle(start=True, on_mirror=True)

    assert (node.state, node.errors, placement.count()) == ("in-sync", (), 0)
    assert node.tree.exists("N0")
    assert set(node.requests.values()) == {0}
    assert agent.cycle(start=True).state == "in-sync"
    assert placement.count() == 1


def test_without_a_saved_mirror_the_first_pass_is_as_ever(placement, tmp_path):
    counts = []
    for mode in ({}, {"on_mirror": True}):
        agent = AgentUnderTest(placement, tmp_path / str(mode), ScriptedDriver(TREE))
        assert agent.cycle(start=True, **mode).state == "changed"
        counts.append([(one.method, one.path) for one in placement.requests])
        agent.stop()
        placement.reset()
    assert counts[0] == counts[1]


def test_what_the_host_has_more_is_published_at_once(agent, placement):
    agent.driver.script = GROWN

    node = agent.cycle(start=True, on_mirror=True)

    assert node.state == "changed"
    assert placement.other.inventory(ROOT)["VCPU"]["total"] == 9
    # The structure and the write, as in any pass.
    assert [one.method for one in placement.requests][:2] == ["GET", "PUT"]


def test_what_others_did_is_seen_in_the_next_pass_that_asks(agent, placement):
    placement.other.delete_provider(child_uuid(ROOT, "N0"))
    placement.clear()

    assert agent.cycle(start=True, on_mirror=True).state == "in-sync"
    assert placement.count() == 0
    assert agent.cycle().state == "changed"
    assert placement.other.inventory(child_uuid(ROOT, "N0"))["PCPU"]["total"] == 4


def test_an_allocation_that_is_over_by_the_records_is_removed_at_once(agent, placement):
    book = Book(agent.folder, ROOT)
    book.instance(new_uuid())
    guest = placement.other.claim({ROOT: {"VCPU": 1}})
    agent.cycle(start=True)
    agent.cycle()
    book.instance(guest, deleted=True)

    assert agent.cycle(on_mirror=True).state == "changed"
    assert placement.other.allocations(guest)["allocations"] == {}


def test_a_start_on_the_mirror_leaves_the_reshape_of_a_start_to_the_pass_that_asks(
    agent, placement
):
    assert agent.cycle(start=True, on_mirror=True).state == "in-sync"
    audit = agent.fleet._audits[ROOT]
    assert not audit._moved
    assert agent.cycle(start=True).state == "in-sync"
    assert audit._moved


def test_what_the_mirror_makes_impossible_is_tried_with_what_placement_has(agent, placement):
    agent.cycle(start=True)
    own = placement.other.traits(ROOT)
    placement.other.set_traits(ROOT, [*own, agent_trait("another")])
    assert [error.code for error in agent.cycle().errors] == [NodeHeldElsewhere.code]
    placement.other.set_traits(ROOT, own)

    assert agent.cycle(on_mirror=True).state == "in-sync"


def test_holders_whose_turn_it_is_wait_for_the_next_pass_that_asks(agent, placement, monkeypatch):
    agent.freshness = Freshness(sharing=1e9)
    Book(agent.folder, ROOT).instance(new_uuid())
    agent.cycle(start=True)
    agent.cycle()
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 700)
    placement.clear()

    assert agent.cycle(on_mirror=True).state == "in-sync"
    assert placement.count() == 0
    assert agent.cycle().state == "in-sync"
    assert placement.count() == 2


def test_many_nodes_on_their_mirrors_ask_nothing_and_one_that_changed_asks_for_itself(
    placement, tmp_path
):
    nodes = {new_uuid(): f"node-{number}" for number in range(3)}
    changing = next(iter(nodes))
    driver = ScriptedDriver(shaped({"VCPU": total(8)}), nodes)
    agent = AgentUnderTest(placement, tmp_path, driver)
    agent.period(start=True)
    agent.stop()
    placement.clear()

    report = agent.period(start=True, on_mirror=True)
    assert [node.state for node in report.nodes] == ["in-sync"] * 3
    assert placement.count() == 0

    def script(tree):
        shaped({"VCPU": total(9 if tree.exists(changing) else 8)})(tree)

    driver.script = script
    states = {node.uuid: node.state for node in agent.period(on_mirror=True).nodes}
    assert states == dict.fromkeys(nodes, "in-sync") | {changing: "changed"}
    assert placement.count() == 2
    agent.stop()
