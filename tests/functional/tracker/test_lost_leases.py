"""A node that another agent managed for a while: what was remembered of it from before is not
believed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import ReshapeNeeded
from agent.model.names import child_uuid
from tests.support import faults
from tests.support.agent import LEASE, NAME, ROOT, AgentUnderTest, ScriptedDriver, shaped, total
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer
from tests.support.tracking import Time

GUEST = "c0000000-0000-4000-8000-000000000001"
MARK = "CUSTOM_COMPUTE_NODE_AGENT_{}"
Lose = Callable[[AgentUnderTest, AgentUnderTest, Time], None]


@pytest.fixture
def two(
    placement: PlacementServer, tmp_path: Path
) -> Iterator[tuple[AgentUnderTest, AgentUnderTest, Time]]:
    """Two agents of one node on one store, each with a name of its own."""
    time = Time()
    agents = [
        AgentUnderTest(
            placement, tmp_path / "state", ScriptedDriver(), host=name, identity=name, clock=time
        )
        for name in ("first", "second")
    ]
    yield agents[0], agents[1], time
    for agent in agents:
        agent.stop()


def offers(agent: AgentUnderTest, name: str) -> None:
    agent.driver.script = shaped({f"CUSTOM_{name}": total(1)})


def unheard(first: AgentUnderTest, second: AgentUnderTest, time: Time) -> None:
    """The first one is held for longer than its lease, and nobody tells it."""
    time.pass_by(LEASE + 1)
    offers(second, "GOLD")
    assert second.cycle(start=True).state == "changed"


def told(first: AgentUnderTest, second: AgentUnderTest, time: Time) -> None:
    """The same, and the first one sees meanwhile whose the node is."""
    unheard(first, second, time)
    assert [error.code for error in first.cycle().errors] == ["node.elsewhere"]


@pytest.mark.parametrize("lose", [unheard, told])
def test_an_agent_that_gets_its_node_back_does_not_take_its_old_journal_for_the_truth(
    two: tuple[AgentUnderTest, AgentUnderTest, Time], placement: PlacementServer, lose: Lose
) -> None:
    first, second, time = two
    offers(first, "SILVER")
    assert first.cycle(start=True).state == "changed"
    lose(first, second, time)
    second.stop()
    time.pass_by(LEASE + 1)
    offers(first, "BRONZE")
    first.cycle()
    assert set(placement.other.inventory(ROOT)) == {"CUSTOM_BRONZE"}
    assert {name for name in placement.other.traits(ROOT) if name.startswith(MARK.format(""))} == {
        MARK.format("FIRST")
    }
    assert first.cycle().state == "in-sync"


def test_a_lease_that_ran_out_while_a_plan_was_made_does_not_write_an_old_journal_over_the_new_one(
    two: tuple[AgentUnderTest, AgentUnderTest, Time], placement: PlacementServer
) -> None:
    first, second, time = two
    offers(first, "SILVER")
    assert first.cycle(start=True).state == "changed"
    offers(first, "BRONZE")

    def taken(_exchange: object) -> None:
        unheard(first, second, time)

    placement.faults.add(faults.before(taken), method="GET", path="in_tree")
    report = first.cycle()
    assert [error.code for error in report.errors] == ["node.elsewhere"]
    assert set(placement.other.inventory(ROOT)) == {"CUSTOM_GOLD"}
    assert second.cycle().state == "in-sync"
    offers(second, "PLATINUM")
    assert second.cycle().state == "changed"
    assert set(placement.other.inventory(ROOT)) == {"CUSTOM_PLATINUM"}


def test_a_node_that_was_elsewhere_is_known_by_what_the_other_agent_left(
    two: tuple[AgentUnderTest, AgentUnderTest, Time], placement: PlacementServer
) -> None:
    first, second, time = two
    first.driver.script = shaped({}, {f"{NAME}_A": (NAME, {"CUSTOM_SILVER": total(1)})})
    assert first.cycle(start=True).state == "changed"
    time.pass_by(LEASE + 1)
    second.driver.script = shaped({}, {f"{NAME}_B": (NAME, {"CUSTOM_SILVER": total(1)})})
    assert second.cycle(start=True).state == "changed"
    second.stop()
    time.pass_by(LEASE + 1)
    first.driver.script = shaped({}, {f"{NAME}_C": (NAME, {"CUSTOM_SILVER": total(1)})})
    first.cycle()
    assert {provider["name"] for provider in placement.dump()["providers"].values()} == {
        NAME,
        f"{NAME}_C",
    }


@pytest.mark.parametrize("seen", [False, True])
def test_a_node_whose_tree_the_other_agent_laid_out_in_its_own_way_is_laid_out_anew_without_a_restart(
    placement: PlacementServer, tmp_path: Path, *, seen: bool
) -> None:
    time = Time()
    first, second = (
        AgentUnderTest(
            placement, tmp_path / "state", NovaStyleDriver(), host=name, identity=name, clock=time
        )
        for name in ("first", "second")
    )
    first.driver.split = True
    assert first.cycle(start=True).state == "changed"
    time.pass_by(LEASE + 1)
    assert second.cycle(start=True).state == "changed"
    placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}}, GUEST)
    if seen:
        assert [error.code for error in first.cycle(start=True).errors] == ["node.elsewhere"]
    second.tracking.node_leases.release()
    second.stop()
    found = first.cycle(start=True)
    assert (found.state, found.errors) == ("changed", ())
    assert set(placement.other.inventory(ROOT)) == {"MEMORY_MB"}
    cell = child_uuid(ROOT, "_CELL0")
    held = {
        uuid: share["resources"]
        for uuid, share in placement.other.allocations(GUEST)["allocations"].items()
    }
    assert held == {ROOT: {"MEMORY_MB": 512}, cell: {"VCPU": 2}}
    assert first.cycle(start=True).state == "in-sync"
    first.stop()


def test_what_was_read_of_a_node_that_was_elsewhere_is_not_believed_once_it_is_here(
    placement: PlacementServer, tmp_path: Path
) -> None:
    # Both mark their nodes alike, so that taking the node over writes nothing that would show how
    # old the journal is.
    time = Time()
    first, second = (
        AgentUnderTest(placement, tmp_path / "state", ScriptedDriver(), host=name, clock=time)
        for name in ("first", "second")
    )
    first.driver.script = second.driver.script = shaped({"CUSTOM_SILVER": total(1)})
    assert first.cycle(start=True).state == "changed"
    assert [error.code for error in second.cycle(start=True).errors] == ["node.elsewhere"]
    first.driver.script = shaped({"CUSTOM_SILVER": total(1), "CUSTOM_GOLD": total(1)})
    assert first.cycle().state == "changed"
    first.stop()
    time.pass_by(LEASE + 1)
    assert second.cycle(start=True).state == "changed"
    assert set(placement.other.inventory(ROOT)) == {"CUSTOM_SILVER"}
    second.stop()


def test_nobody_takes_a_refused_node_over_while_it_pauses(
    two: tuple[AgentUnderTest, AgentUnderTest, Time], placement: PlacementServer
) -> None:
    first, second, time = two

    def refused(_tree: object) -> None:
        raise ReshapeNeeded

    offers(first, "SILVER")
    assert first.cycle(start=True).state == "changed"
    first.stop()
    first.driver.script = refused
    assert first.cycle(start=True).state == "refused"
    placement.clear()
    for _ in range(5):
        time.pass_by(LEASE / 2)
        assert (first.cycle(start=True).state, placement.requests) == ("refused", [])
    assert [error.code for error in second.cycle(start=True).errors] == ["node.elsewhere"]


def test_a_refused_node_that_another_agent_has_got_says_so_while_it_pauses(
    two: tuple[AgentUnderTest, AgentUnderTest, Time],
) -> None:
    first, second, time = two

    def refused(_tree: object) -> None:
        raise ReshapeNeeded

    first.driver.script = refused
    assert first.cycle(start=True).state == "refused"
    unheard(first, second, time)
    assert [error.code for error in first.cycle(start=True).errors] == [
        "reshape.failed",
        "node.elsewhere",
    ]
