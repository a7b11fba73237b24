"""The commands of the OpenStack client that messages about bare metal nodes name, carried out on a
real ironic.

``OPENSTACK_CLIENT`` names an ``openstack`` command with python-ironicclient; without it this is left
out.
"""

from pathlib import Path

import pytest

from tests.functional.ironic.ironic import Ironic
from tests.functional.ironic.test_processes import GOLD, config
from tests.support.http_placement import HttpPlacement
from tests.support.shell import Shell, command_of, need_openstack
from tests.support.system import AgentHere

pytestmark = pytest.mark.long


def shell_of(agent: AgentHere, ironic: Ironic) -> Shell:
    """A shell whose ``openstack`` asks this ironic."""
    shell = Shell(agent.folder / "programs", agent)
    shell.has(
        "openstack",
        "unset OS_TOKEN OS_IDENTITY_ENDPOINT_OVERRIDE",
        f'OS_AUTH_TYPE=none OS_ENDPOINT={ironic.url} exec {need_openstack()} "$@"',
    )
    return shell


def test_a_node_without_a_class_gets_one_by_the_command_of_its_error(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    bare, good = ironic.available(None), ironic.available()
    agent = AgentHere(tmp_path / "agent", config(tmp_path, "metal-1", ironic, http_placement))
    (error,) = (
        one
        for node in agent.run("--once", "--format", "json").json["nodes"]
        for one in node["errors"]
    )
    assert set(http_placement.dump()["providers"]) == {good}
    command = command_of(error["remedy"], "openstack baremetal node set")
    shell_of(agent, ironic).run(command.replace("<class>", "baremetal-gold"))
    assert agent.run("--once").code == 0
    assert all(http_placement.other.inventory(node)[GOLD]["reserved"] == 0 for node in (bare, good))


def test_nodes_that_ironic_really_lost_are_seen_by_the_command_of_the_error_and_go_by_the_next(
    ironic: Ironic, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    lost, kept = [ironic.available() for _ in range(4)], ironic.available()
    agent = AgentHere(tmp_path / "agent", config(tmp_path, "metal-1", ironic, http_placement))
    assert agent.run("--once").code == 0
    for node in lost:
        ironic.delete(node)
    (error,) = agent.run("--once", "--format", "json").json["errors"]
    shell = shell_of(agent, ironic)
    listed = shell.run(command_of(error["remedy"], "openstack baremetal node list"))
    assert kept in listed
    assert not any(node in listed for node in lost)
    before = http_placement.dump()
    seen = shell.run(command_of(error["remedy"], "agent --once --remove"))
    assert "4 operations (4 planned)" in seen
    assert http_placement.dump() == before
    shell.run(command_of(error["remedy"].split("; then: ")[1], "agent"))
    assert set(http_placement.dump()["providers"]) == {kept}
