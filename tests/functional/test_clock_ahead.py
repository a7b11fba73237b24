"""Hosts that share a PostgreSQL, one of them with a clock that is ahead."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.placement import clock
from tests.support.http_placement import HttpPlacement
from tests.support.postgresql import PostgreSQL
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand, AgentHere

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000d001"
HOST = f"uuid: {ROOT}\ncpu: {{online: 0-7}}\nmemory_mib: 65536\ndisk_gib: 500\n"
HOUR = 3600.0


@pytest.fixture
def database(postgresql: PostgreSQL) -> Iterator[str]:
    made = postgresql.create()
    yield postgresql.url(made)
    postgresql.drop(made)


def config(folder: Path, host: str, url: str, placement: HttpPlacement) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    (folder / "host.yaml").write_text(HOST)
    return {
        "DEFAULT": {
            "compute_driver": "fake.file",
            "host": host,
            "update_resources_interval": 1,
            "log_file": folder / "agent.log",
        },
        "store": {"connection": url},
        "fake": {"host_file": folder / "host.yaml"},
        "placement": placement.credentials(),
    }


@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_no_clock_takes_the_node_of_a_living_host(
    http_placement: HttpPlacement,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: float,
) -> None:
    """Of a copied identity, as after the clone of a virtual machine. A host whose clock is behind
    would have renewed a lease that has ended for all others.
    """
    living = AgentCommand(
        tmp_path / "a", config(tmp_path / "a", "node-a", database, http_placement)
    )
    other = AgentHere(tmp_path / "b", config(tmp_path / "b", "node-b", database, http_placement))
    # As if the clock had been wrong since before the process began.
    real = time.time
    monkeypatch.setattr(clock, "_BEGAN", clock._BEGAN + ahead)
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    with Service(living).running() as service:
        until(lambda: service.status.startswith("ready: 1 in-sync"), lambda: f"{service}")
        messages = set()
        for _ in range(2):
            result = other.run("--once", "--format", "json")
            (node,) = result.json["nodes"]
            (error,) = node["errors"]
            assert (result.code, error["code"]) == (1, "node.elsewhere")
            messages.add(error["message"])
        # The same line in each pass, not one with other seconds.
        assert len(messages) == 1
        assert service.stop()[0] == 0
    # The remedy: that agent was stopped. (The name of the root is another matter.)
    (node,) = other.run("--once", "--format", "json").json["nodes"]
    assert "node.elsewhere" not in [error["code"] for error in node["errors"]]
