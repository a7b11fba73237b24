"""What an audit tells of consumers that no record knows, and the command that it names."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent.placement import clock
from tests.functional.cli.setups import on
from tests.support.consumer_book import Book
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere
from tests.support.tracking import guest

PURGE = {"compute": {"purge_unknown_allocations": True, "purge_unknown_allocations_grace": 0}}
REFRESH = 600
"""The default of [placement] consumers_refresh."""


def test_the_command_that_the_drift_of_an_unknown_consumer_names_ends_it(
    http_placement: HttpPlacement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, other, begun = AgentHere(tmp_path / "agent"), http_placement.other, clock.now()
    agent.configure(on(http_placement))

    def audited() -> Any:
        (node,) = agent.run("--once", "--format", "json").json["nodes"]
        return node

    def told(consumer: str) -> list[Any]:
        return [one for one in audited()["drift"] if one.get("consumer") == consumer]

    def carry_out(consumer: str, later: float) -> None:
        (drift,) = told(consumer)
        (command,) = re.findall(r"agent (allocation remove-tree \S+ \S+)", drift["remedy"])
        assert agent.run(*command.split()).code == 0
        # What is given back moves no generation, and is seen when the holders are read again.
        monkeypatch.setattr(clock, "now", lambda: begun + later)
        assert told(consumer) == []
        assert other.allocations(consumer)["allocations"].keys() == {elsewhere}

    root = audited()["uuid"]
    Book(agent.store, root, "node-a").instance(guest("elsewhere"), host="b", node=None)
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 4})
    held = {uuid: {"VCPU": 1} for uuid in (root, elsewhere)}
    leftover, volume = (
        other.claim(held, guest(kind), kind=kind) for kind in ("INSTANCE", "VOLUME")
    )
    carry_out(leftover, REFRESH + 60)
    agent.configure(on(http_placement, "fake.numa", PURGE))
    (drift,) = told(volume)
    assert "of type VOLUME" in drift["detail"]
    carry_out(volume, 2 * (REFRESH + 60))
