"""What messages call things: by names, few of many, and nothing goes while the agent observes."""

from pathlib import Path

from tests.functional.cli.setups import from_file, uuids_of
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere


def test_of_many_nodes_five_are_named_and_the_others_counted(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    nodes = [{"name": f"blade-{number}", "memory_mib": 1024} for number in range(7)]
    agent = from_file(http_placement, tmp_path / "agent", {"nodes": nodes})
    named = "it has blade-0, blade-1, blade-2, blade-3, blade-4 and 2 more"
    assert named in agent.run("--once", "--node", "nobody").stdout
    assert agent.run("--once").code == 0
    assert named in agent.run("tree", "--node", "nobody").stderr


def test_drift_of_a_provider_is_told_by_its_name(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    root = uuids_of(http_placement)[""]
    other = http_placement.other
    other.set_traits(root, [*other.traits(root), "COMPUTE_STATUS_DISABLED"])
    result = agent.run("--once", "--enabled")
    assert "! disabled node-a: node-a has COMPUTE_STATUS_DISABLED" in result.stdout
    (drift,) = agent.run("--once", "--enabled", "--format", "json").json["nodes"][0]["drift"]
    assert drift["provider"] == root


def test_nothing_goes_while_the_agent_observes(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    cell, other = uuids_of(http_placement)["NUMA3"], http_placement.other
    for change in (
        lambda: other.set_traits(cell, ["CUSTOM_OF_OTHERS"]),
        lambda: other.set_inventory(cell, {}),
        lambda: other.delete_provider(cell),
    ):
        change()
        before = http_placement.dump()
        result = agent.run("--once", "--observe")
        assert result.code == 0
        assert " goes" not in result.stdout + result.stderr
        assert http_placement.dump() == before
