"""An account of ironic that loses its role: it sees no node, and is told of each that it does not
exist. The ironic is a recorded one, Placement a real one over HTTP.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.ironic.recorded_ironic import RecordedIronic, node_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand, AgentHere

ZONE = "5e0ff1ce-0000-4000-8000-000000000001"
NODES = 12


@pytest.fixture
def ironic() -> Iterator[RecordedIronic]:
    made = RecordedIronic(NODES)
    made.start()
    yield made
    made.stop()


def config(ironic: RecordedIronic, placement: HttpPlacement) -> dict[str, dict[str, object]]:
    return {
        "DEFAULT": {
            "compute_driver": "ironic",
            "host": "metal-1",
            "update_resources_interval": 1,
            "log_file": "agent.log",
        },
        "ironic": ironic.credentials(),
        "placement": {**placement.credentials(), "interval": 0},
    }


@pytest.fixture
def agent(ironic: RecordedIronic, http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """An agent whose nodes are in Placement, each in an aggregate of its operator."""
    made = AgentHere(tmp_path, config(ironic, http_placement))
    assert made.run("--once").code == 0
    for number in range(NODES):
        http_placement.other.set_aggregates(node_uuid(number), [ZONE])
    return made


def lose(ironic: RecordedIronic, *numbers: int) -> dict[str, object]:
    """Ironic neither lists nor knows these nodes; return what it had."""
    return {node_uuid(number): ironic.nodes.pop(node_uuid(number)) for number in numbers}


@pytest.mark.parametrize("lost", [NODES, NODES - 1, 4], ids=["all", "all but one", "four"])
def test_nodes_that_are_gone_all_at_once_stay_until_the_operator_says_so(
    agent: AgentHere, ironic: RecordedIronic, http_placement: HttpPlacement, lost: int
) -> None:
    before = http_placement.dump()
    lose(ironic, *range(lost))
    for _ in range(2):
        result = agent.run("--once", "--format", "json")
        (error,) = result.json["errors"]
        assert (error["code"], result.code) == ("driver.failed", 1 if lost == NODES else 3)
        assert f"no longer lists {lost} of the {NODES} that it had" in error["message"]
        assert http_placement.dump() == before
    assert "openstack baremetal node list; if they are deleted, stop" in error["remedy"]
    dry = agent.run("--once", "--remove-deleted", "--dry-run", "--format", "json")
    assert sum(len(node["operations"]) for node in dry.json["nodes"]) == lost
    assert all(
        f"aggregate {ZONE}" in node["drift"][0]["detail"]
        for node in dry.json["nodes"]
        if node["operations"]
    )
    assert http_placement.dump() == before
    assert agent.run("--once", "--remove-deleted").code == 0
    assert set(http_placement.dump()["providers"]) == set(ironic.nodes)
    assert agent.run("--once").code == 0


def test_three_nodes_go_as_ever_and_a_single_one_that_is_the_last_too(
    agent: AgentHere, ironic: RecordedIronic, http_placement: HttpPlacement
) -> None:
    while ironic.nodes:
        lose(
            ironic,
            *range(len(ironic.nodes) - min(3, len(ironic.nodes) - 1 or 1), len(ironic.nodes)),
        )
        assert agent.run("--once").code == 0
        assert set(http_placement.dump()["providers"]) == set(ironic.nodes)


def test_a_daemon_is_degraded_while_the_role_is_lost_and_ready_once_it_is_back(
    agent: AgentHere, ironic: RecordedIronic, http_placement: HttpPlacement
) -> None:
    before = http_placement.dump()
    with Service(AgentCommand(agent.folder, config(ironic, http_placement))).running() as service:
        until(lambda: service.status.startswith(f"ready: {NODES}"), lambda: f"{service}")
        kept = lose(ironic, *range(1, NODES))
        until(lambda: service.status.startswith("degraded: 1 in-sync"), lambda: f"{service}")
        asked = len(ironic.asked)
        # The list is read in each pass; nobody is asked about each node in each of them.
        until(lambda: len(ironic.asked) > asked + 3)
        assert not [one for one in ironic.asked[asked:] if not one.startswith("/v1/nodes?")]
        told = "so many at once are not believed"
        assert service.logged(told).count(told) == 1
        ironic.nodes.update(kept)  # type: ignore[arg-type]
        until(lambda: service.status.startswith(f"ready: {NODES}"), lambda: f"{service}")
        assert http_placement.dump() == before
