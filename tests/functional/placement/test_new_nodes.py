"""The first pass of many nodes: POST and traits for each, and one request for the inventories of all
but the first, which is alone.
"""

import threading
from typing import Any

import pytest

from agent.audit import fleet
from agent.model.mirror import Journal
from agent.model.names import ProviderUuid
from agent.store.store import open_store
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import AgentUnderTest, ScriptedDriver, operations, shaped, total
from tests.support.broken_store import counted, failing
from tests.support.placement import PlacementServer
from tests.support.settled import clean

NAMES = [f"node-{number}" for number in range(6)]
UUIDS = {
    name: f"5f9c2a34-7d1e-4a8b-9c46-0000000000{number:02}" for number, name in enumerate(NAMES)
}
ONE, MANY = NAMES[3], len(NAMES)
HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
LEARNED = 4
"""Discovery, the list of the agent's roots, the list of traits, the agent's own trait."""
BATCH = "^/reshaper$"


@pytest.fixture
def agent(host: Host) -> AgentUnderTest:
    """An agent that has written nothing yet, of many nodes."""
    return new_agent(host)


def new_agent(host: Host, **options: Any) -> AgentUnderTest:
    driver = ScriptedDriver(shaped(HAS), {uuid: name for name, uuid in UUIDS.items()})
    return host(driver=driver, **options)


def first_pass(agent: AgentUnderTest) -> dict[str, str]:
    """The states of the nodes after a start, by name."""
    return {node.name: node.state for node in agent.period(start=True).nodes}


def is_true(agent: AgentUnderTest, placement: PlacementServer, *but: str) -> None:
    """Placement has all nodes whole but those named, and a further pass finds nothing to do."""
    found = {one["name"]: one["inventories"] for one in placement.dump()["providers"].values()}
    assert found == {name: {} if name in but else HAS for name in NAMES}
    if not but:
        placement.clear()
        assert {node.state for node in agent.period().nodes} == {"in-sync"}
        assert placement.count() == 1


def of_batch(placement: PlacementServer) -> list[str]:
    return [line for line in placement.lines() if line.startswith("POST /reshaper")]


def inventories(placement: PlacementServer) -> int:
    return sum(
        one.method == "PUT" and one.path.endswith("/inventories") for one in placement.requests
    )


def test_the_inventories_of_new_nodes_are_written_in_one_request(
    agent: AgentUnderTest, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    assert set(first_pass(agent).values()) == {"changed"}
    assert of_batch(placement) == ["POST /reshaper -> 204"]
    assert placement.count() == LEARNED + 2 * MANY + 1 + 1
    is_true(agent, placement)
    clean(placement, agent_log)


def test_many_new_nodes_cost_the_store_four_statements_in_two_transactions(
    agent: AgentUnderTest,
) -> None:
    with counted() as sent:
        assert set(first_pass(agent).values()) == {"changed"}
    tables = ("compute_node", "lease", "journal", "mirror")
    written = [text.split()[2] for text in sent if text.startswith(("INSERT", "UPDATE"))]
    # Of the first node, and of all others together.
    assert {table: written.count(table) for table in tables} == dict.fromkeys(tables, 2)
    # One statement asks for all nodes of which the store has something.
    (asked,) = [text for text in sent if text.startswith("SELECT compute_node.")]
    assert "UNION" in asked
    assert [text for text in sent if text.startswith(("SELECT lease", "SELECT mirror"))] == []
    assert [text for text in sent if text.startswith("SELECT journal")] == []
    # Records, journal and mirror of the first; records with journals, and mirrors of all others;
    # the tables, what is kept of Placement (three), what ended long ago, and what was found.
    assert sent.count("COMMIT") == 3 + 2 + 6
    assert written.count("last_audit") == 1
    with counted() as again:
        assert set(first_pass(agent).values()) == {"in-sync"}
    assert [text for text in again if "last_audit" in text] == []


def test_of_two_new_nodes_of_one_name_one_is_told_and_the_others_are_written(
    host: Host, placement: PlacementServer
) -> None:
    double = "5f9c2a34-7d1e-4a8b-9c46-0000000000ff"
    nodes = {uuid: name for name, uuid in UUIDS.items()} | {double: ONE}
    agent = host(driver=ScriptedDriver(shaped(HAS), nodes))
    for _ in range(2):
        report = agent.period(start=True)
        told = [(node.name, error.code) for node in report.nodes for error in node.errors]
        assert told == [(ONE, "config.invalid")]
    found = {one["name"]: one["inventories"] for one in placement.dump()["providers"].values()}
    assert found == dict.fromkeys(NAMES, HAS)


def test_a_dry_run_shows_what_the_run_does(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    foreseen = [operations(node) for node in agent.report(dry_run=True).nodes]
    assert placement.dump()["providers"] == {}
    done = agent.report()
    assert [operations(node) for node in done.nodes] == foreseen
    assert {node.state for node in done.nodes} == {"changed"}


@pytest.mark.parametrize("status", [403, 404])
def test_where_they_must_not_be_written_together_each_is_written_by_itself(
    host: Host, placement: PlacementServer, status: int
) -> None:
    agent = new_agent(host, roles="admin" if status == 403 else "admin,service")
    if status == 404:
        placement.faults.add(faults.answer(404), path=BATCH, times=None)
    assert set(first_pass(agent).values()) == {"changed"}
    assert of_batch(placement) == [f"POST /reshaper -> {status}"]
    assert (inventories(placement), placement.count()) == (MANY, LEARNED + 3 * MANY + 1)
    is_true(agent, placement)


def test_a_batch_that_is_refused_for_one_is_written_for_the_others_and_the_one_is_told(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.faults.add(faults.answer(400), path=BATCH)
    refuses = placement.faults.add(
        faults.answer(400), method="PUT", path=f"{UUIDS[ONE]}/inventories", times=None
    )
    report = agent.period(start=True)
    states = {node.name: node.state for node in report.nodes}
    assert states == {name: "degraded" if name == ONE else "changed" for name in NAMES}
    (error,) = [error for node in report.nodes for error in node.errors]
    assert (error.code, refuses.hits) == ("placement.refused", 1)
    is_true(agent, placement, ONE)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("change", ["deleted", "written"])
def test_one_that_somebody_changes_meanwhile_costs_the_others_no_other_plan(
    agent: AgentUnderTest, placement: PlacementServer, change: str
) -> None:
    def meddle(_exchange: object) -> None:
        if change == "deleted":
            placement.other.delete_provider(UUIDS[ONE])
        else:
            placement.other.set_aggregates(UUIDS[ONE], [])

    placement.faults.add(faults.before(meddle), path=BATCH)
    report = agent.period(start=True)
    assert {node.state for node in report.nodes} == {"changed"}
    assert [node.name for node in report.nodes if node.attempts > 1] == [ONE]
    is_true(agent, placement)


@pytest.mark.usefixtures("short_waits")
def test_a_batch_that_is_confirmed_and_not_done_is_found_out(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    placement.faults.add(faults.Action("swallowed", reply=faults.Reply(204)), path=BATCH)
    assert set(first_pass(agent).values()) == {"changed"}
    is_true(agent, placement)


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_to_a_batch_is_resolved_by_the_next_pass(
    agent: AgentUnderTest, placement: PlacementServer, applied: bool
) -> None:
    placement.faults.add(faults.cut(applied=applied), path=BATCH)
    states = first_pass(agent)
    assert states.pop(NAMES[0]) == "changed"
    assert set(states.values()) == {"degraded"}
    assert {node.state for node in agent.period().nodes} <= {"changed", "in-sync"}
    is_true(agent, placement)


def test_a_journal_that_another_agent_wrote_meanwhile_is_read_again(
    agent: AgentUnderTest, placement: PlacementServer
) -> None:
    def meddle(_exchange: object) -> None:
        with open_store(agent.folder) as store:
            store.save_journal(ProviderUuid(UUIDS[ONE]), Journal(adopted=True))

    placement.faults.add(faults.before(meddle), method="PUT", path=f"{UUIDS[NAMES[0]]}/traits")
    assert set(first_pass(agent).values()) == {"changed"}
    is_true(agent, placement)


@pytest.mark.parametrize("table", ["journal", "mirror"])
def test_a_store_that_takes_nothing_of_a_batch_is_told_and_the_next_pass_makes_up_for_it(
    agent: AgentUnderTest, placement: PlacementServer, table: str
) -> None:
    with failing(f"INSERT INTO {table} ", f"SELECT {table}.", after=1) as failures:
        report = agent.period(start=True)
    assert failures
    first, *others = report.nodes
    assert (first.state, first.errors) == ("changed", ())
    assert {node.state for node in others} == {"failed" if table == "journal" else "degraded"}
    assert [[error.code for error in node.errors] for node in others] == [["store.unusable"]] * 5
    # Without its journal nothing is created.
    created = 1 if table == "journal" else MANY
    assert len(placement.dump()["providers"]) == created
    assert {node.state for node in agent.period().nodes} <= {"changed", "in-sync"}
    is_true(agent, placement)
    agent.crash()
    assert {node.state for node in agent.report().nodes} == {"in-sync"}


class Killed(BaseException):
    """The process ends."""


@pytest.mark.parametrize("moment", [faults.before, faults.after])
def test_who_is_killed_between_a_creation_and_its_inventory_goes_on_from_there(
    agent: AgentUnderTest, placement: PlacementServer, moment: Any
) -> None:
    def kill(_exchange: object) -> None:
        raise Killed

    placement.faults.add(moment(kill), path=BATCH)
    with pytest.raises(Killed):
        agent.period(start=True)
    agent.crash()
    assert len(placement.dump()["providers"]) == MANY
    assert {node.state for node in agent.report().nodes} == {"changed", "in-sync"}
    is_true(agent, placement)


def test_a_node_that_hangs_does_not_hold_the_others(
    agent: AgentUnderTest, placement: PlacementServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "PATIENCE", 0.01)
    facts, others_written = agent.driver.facts_of, threading.Event()

    def slow(name: str) -> Any:
        if name == ONE:
            assert others_written.wait(60)
        return facts(name)

    agent.driver.facts_of = slow
    placement.faults.add(
        faults.after(lambda _exchange: others_written.set()),
        method="PUT",
        path=f"{UUIDS[NAMES[-1]]}/traits",
    )
    assert set(first_pass(agent).values()) == {"changed"}
    is_true(agent, placement)


def test_a_second_node_that_comes_and_goes_is_deleted_like_any_other(
    host: Host, placement: PlacementServer
) -> None:
    alone = {UUIDS[ONE]: ONE}
    driver = ScriptedDriver(shaped(HAS), alone)
    agent = host(driver=driver)
    for nodes in (alone, {UUIDS[NAMES[0]]: NAMES[0], **alone}, alone):
        driver.managed = nodes
        agent.period(start=True)
        assert placement.dump()["providers"].keys() == nodes.keys()
