"""A node of ironic that is enrolled anew under its uuid, with another class, while somebody has it,
or whose provider has another name.
The ironic is a recorded one, Placement a real one over HTTP.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.ironic.recorded_ironic import RecordedIronic, node_uuid
from tests.functional.ironic.test_lost_roles import config
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere
from tests.support.tracking import guest

GOLD, SILVER = "CUSTOM_BAREMETAL_GOLD", "CUSTOM_BAREMETAL_SILVER"


@pytest.fixture
def ironic() -> Iterator[RecordedIronic]:
    made = RecordedIronic(1)
    made.start()
    yield made
    made.stop()


def test_who_keeps_the_former_class_of_a_node_is_named_with_the_command_that_ends_it(
    ironic: RecordedIronic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent, node = AgentHere(tmp_path, config(ironic, http_placement)), node_uuid(0)

    def told() -> list[Any]:
        (audited,) = agent.run("--once", "--format", "json").json["nodes"]
        return list(audited["drift"])

    assert told() == []
    http_placement.other.claim({node: {GOLD: 1}}, guest("server"))
    ironic.nodes[node]["resource_class"] = "baremetal-silver"
    for _ in range(2):
        (drift,) = told()
        assert (drift["kind"], drift["consumer"]) == ("held-device", guest("server"))
        assert drift["detail"].endswith(
            f"{GOLD} is gone from the node but 1 of it are allocated to {guest('server')}"
        )
    (command,) = re.findall(
        r"if they go on without it: agent (allocation remove \S+ \S+ \S+);", drift["remedy"]
    )
    assert agent.run(*command.split()).code == 0
    assert told() == []
    assert http_placement.other.inventory(node)[SILVER]["reserved"] == 0
    assert GOLD not in http_placement.other.inventory(node)


def test_a_node_whose_provider_has_another_name_gets_it_by_the_command_that_is_named(
    ironic: RecordedIronic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent, node = AgentHere(tmp_path, config(ironic, http_placement)), node_uuid(0)
    agent.run("--once")
    name = http_placement.other.provider(node)["name"]
    http_placement.other.rename(node, "renamed")
    (audited,) = agent.run("--once", "--format", "json").json["nodes"]
    (error,) = audited["errors"]
    assert error["code"] == "placement.identity-conflict"
    assert "compute_id" not in error["remedy"]
    (command,) = re.findall(r"agent (identity rename)", error["remedy"])
    assert agent.run(*command.split()).code == 0
    assert http_placement.other.provider(node)["name"] == name
    (audited,) = agent.run("--once", "--format", "json").json["nodes"]
    assert (audited["state"], audited["errors"]) == ("in-sync", [])
