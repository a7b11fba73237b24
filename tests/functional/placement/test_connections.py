"""How many connections to Placement an agent keeps, and whether agents with more than one request
under way can do their work where a server accepts few connections.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.http.bounded import bounded_session
from agent.model.provider_tree import ProviderTree
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import ScriptedDriver, new_uuid, total
from tests.support.exchange import Exchange
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand

CHILDREN = 24
IN_FLIGHT = 4


def host_file(file: Path) -> Path:
    """A root with many children, whose inventories and traits are written side by side."""
    providers = [{"name": "$NODE", "inventories": {"VCPU": {"total": 8}}}]
    providers += [
        {
            "name": f"$NODE_{number}",
            "inventories": {"PCPU": {"total": 4}},
            "traits": ["HW_NUMA_ROOT"],
        }
        for number in range(CHILDREN)
    ]
    file.write_text(yaml.safe_dump({"providers": providers}))
    return file


def command_for(
    folder: Path, url: str, driver: Mapping[str, Mapping[str, Any]], **placement: Any
) -> AgentCommand:
    folder.mkdir()
    default = {"host": "node-a", "state_path": folder / "nova", "update_resources_interval": 1}
    return AgentCommand(
        folder,
        {
            **driver,
            "DEFAULT": {**default, **driver["DEFAULT"]},
            "placement": {
                "auth_type": "admin_token",
                "endpoint": url,
                "token": "a-token",
                "max_in_flight": IN_FLIGHT,
                **placement,
            },
        },
    )


def one_node(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {"compute_driver": "fake.file"},
        "fake": {"host_file": host_file(folder / "host.yaml")},
    }


def many_nodes(_folder: Path) -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {"compute_driver": "fake.baremetal"},
        "fake": {"baremetal_nodes": CHILDREN},
        "compute": {"workers": IN_FLIGHT},
    }


@pytest.mark.parametrize("most", [2, 3])
@pytest.mark.parametrize("driver", [one_node, many_nodes])
def test_a_pass_ends_where_a_server_accepts_fewer_connections_than_are_wanted(
    most: int, driver: Any, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    """A connection without use must not hold up one that waits to be accepted."""
    proxy = FaultProxy(http_placement.url, most_connections=most)
    proxy.start()
    try:
        # Long for a pass, and short for a test that waits for it.
        command = command_for(tmp_path / "agent", proxy.url, driver(tmp_path), read_timeout=20)
        result = command.run("--once", "--format", "json")
    finally:
        proxy.stop()
    assert (result.code, result.stderr) == (0, "")
    assert len(http_placement.dump()["providers"]) >= CHILDREN


def test_many_nodes_with_children_open_few_connections(
    host: Host, http_placement: HttpPlacement
) -> None:
    proxy = FaultProxy(http_placement.url, most_connections=IN_FLIGHT)
    proxy.start()
    session = http_placement.session()
    session.session = bounded_session()
    nodes = {new_uuid(): f"node-{number}" for number in range(12)}

    def shape(tree: ProviderTree) -> None:
        root = tree.roots[0].uuid
        tree.update_inventory(root, {"VCPU": total(8)})
        for number in range(6):
            child = f"{tree.roots[0].name}-{number}"
            if not tree.exists(child):
                tree.new_child(child, root)
            tree.update_inventory(child, {"PCPU": total(4)})

    agent = host(
        driver=ScriptedDriver(shape, nodes),
        placement=http_placement,
        url=proxy.url,
        session=session,
        max_in_flight=IN_FLIGHT,
        read_timeout=20,
    )
    try:
        report = agent.period(start=True)
        until(lambda: proxy.connections == 1)
        first = proxy.accepted
        # The pass after a change reads what it changed.
        agent.period()
        settled = proxy.accepted
        for _ in range(3):
            steady = agent.period()
        later = proxy.accepted
    finally:
        proxy.stop()
    assert {(node.state, node.errors) for node in report.nodes} == {("changed", ())}
    assert {(node.state, node.errors) for node in steady.nodes} == {("in-sync", ())}
    # Those of the audits, those of the first node's batches, and those that the last audits closed.
    assert first <= 7 * IN_FLIGHT
    # Each pass asks for every node, some of them at a time.
    assert later - settled <= 3 * 2 * IN_FLIGHT


@pytest.mark.parametrize("driver", [one_node, many_nodes])
def test_between_passes_an_agent_keeps_one_connection(
    driver: Any, http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path
) -> None:
    begun, together = [], threading.Event()

    def meets_another(exchange: Exchange) -> None:
        """The first node is audited alone; later requests wait until two are under way."""
        begun.append(exchange)
        if len(begun) > 1 and not together.is_set():
            until(lambda: proxy.connections > 1)
            together.set()

    proxy.faults.add(faults.before(meets_another), method="PUT", path="/traits$", times=None)
    command = command_for(tmp_path / "agent", proxy.url, driver(tmp_path))
    with Service(command).running() as service:
        service.wait_for("READY", "1")
        assert together.is_set()
        until(lambda: proxy.connections == 1, lambda: service)

        def on_one_connection() -> bool:
            """Three steady passes, each with a request, open none."""
            accepted = proxy.accepted
            proxy.clear()
            until(lambda: len(proxy.requests) >= 3, lambda: service)
            return proxy.accepted == accepted

        until(on_one_connection, lambda: service)
