"""The commands that an observer names, carried out by the real tools on the real Placement: what was
told is gone afterwards.

``OPENSTACK_CLIENT`` names an ``openstack`` command with osc-placement, ``NOVA_PYTHON`` a Python with
nova 34; without them this is left out.
"""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.functional.nova.test_mirrored_node import ROOT as NODE
from tests.functional.nova.test_mirrored_node import Node, flat
from tests.functional.nova.watched_host import ALLOCATION, GPU, HELD, ROOT, Watched, a_guest, host
from tests.support import backends
from tests.support.agent import new_uuid
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import write_config
from tests.support.placement import PROJECT, USER
from tests.support.shell import Shell
from tests.support.system import AgentCommand
from tests.support.tracking import guest

pytestmark = pytest.mark.long

NOVA = os.environ.get("NOVA_PYTHON")
OTHER_GPU = "0000:5e:00.0"
GPU_CLASS = "CUSTOM_PCI_10DE_1DB4"
OPTIONS = {"pci": {"device_spec": '{"vendor_id": "10de"}', "report_in_placement": True}}
BOTH, ASTRAY, BARE, OTHER = (guest(name) for name in ("both", "astray", "bare", "other"))


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    found = Watched(tmp_path, http_placement)
    found.as_nova_has_it(two_cards(), **OPTIONS)
    return found


class Nova:
    """nova-manage with databases of its own, on a Placement."""

    def __init__(self, folder: Path, placement: HttpPlacement) -> None:
        self.folder = folder
        self._config = write_config(
            folder / "nova.conf",
            {
                "DEFAULT": {"state_path": folder},
                "api_database": {"connection": self._database("api")},
                "database": {"connection": self._database("cell")},
                "placement": placement.credentials(),
            },
        )

    def _database(self, name: str) -> str:
        return f"sqlite:///{self.folder}/{name}.sqlite"

    def create(self, servers: Sequence[str]) -> None:
        """Create the databases, one cell, the node and these servers on it."""
        self.manage("api_db", "sync")
        self.manage("db", "sync", "--local_cell")
        self.manage("cell_v2", "map_cell0", "--database_connection", self._database("cell0"))
        self.manage("cell_v2", "create_cell", "--transport-url", "fake:///")
        told = {"node": ROOT, "project": PROJECT, "user": USER, "servers": servers}
        script = CHECKOUT / "tests" / "functional" / "nova" / "nova_records.py"
        self._run([str(NOVA), "-W", "ignore", str(script), str(self._config), json.dumps(told)])

    def manage(self, *arguments: str, code: int = 0) -> str:
        """What nova-manage prints."""
        command = Path(str(NOVA)).parent / "nova-manage"
        return self._run([str(command), "--config-file", str(self._config), *arguments], code)

    def carry_out(self, remedy: str, command: str, *more: str, code: int = 0) -> str:
        """Run the command of a remedy that begins with ``nova-manage`` and ``command``."""
        text = remedy[remedy.index(f"nova-manage {command}") :]
        first = re.split(r" \| | && |; ", text)[0]
        return self.manage(*first.split()[1:], *more, code=code)

    @staticmethod
    def _run(command: Sequence[str], code: int = 0) -> str:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert ran.returncode == code, ran
        return ran.stdout


@pytest.fixture
def nova(tmp_path: Path, http_placement: HttpPlacement) -> Nova:
    if not NOVA:
        pytest.skip(
            backends.reason(
                "nova-manage",
                "set NOVA_PYTHON to a Python with nova==34.0.0 'SQLAlchemy<2.1'",
            )
        )
    (tmp_path / "nova").mkdir()
    return Nova(tmp_path / "nova", http_placement)


def two_cards(*guests: Any) -> dict[str, Any]:
    found = host(*guests)
    (card,) = found["pci"]
    return {**found, "pci": [{**card, "address": address} for address in (GPU, OTHER_GPU)]}


def carry_out(agent: AgentCommand, placement: HttpPlacement, remedy: str, command: str) -> None:
    """Run the last command of a remedy, which the one before only makes sure of."""
    shell = Shell(agent.folder / "programs", agent, placement.url)
    shell.run(remedy[remedy.rindex(command) :])


def test_what_the_openstack_client_does_makes_the_drift_go(
    watched: Watched, http_placement: HttpPlacement
) -> None:
    other, evacuated, aborted = watched.other, new_uuid(), new_uuid()
    first, second = (watched.provider(name.upper()) for name in (GPU, OTHER_GPU))
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    watched.is_host(
        two_cards(a_guest(BOTH, "both"), a_guest(ASTRAY, "astray", devices=[OTHER_GPU])), **OPTIONS
    )
    other.claim({ROOT: HELD, elsewhere: HELD}, BOTH)
    other.claim({ROOT: {**HELD, "VCPU": 2}, first: {GPU_CLASS: 1}}, ASTRAY)
    other.claim({ROOT: HELD, elsewhere: HELD}, evacuated)
    other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, aborted)
    found: dict[str, str] = {}
    for one in watched.observe()["drift"]:
        found.setdefault(one["consumer"], one["remedy"])
    assert found.keys() == {BOTH, ASTRAY, evacuated, aborted}
    for remedy in found.values():
        carry_out(watched.agent, http_placement, remedy, f"{ALLOCATION} ")
    http_placement.clear()
    assert watched.observe()["drift"] == []
    held = {
        uuid: {
            provider: share["resources"]
            for provider, share in other.allocations(uuid)["allocations"].items()
        }
        for uuid in found
    }
    assert held == {
        BOTH: {ROOT: HELD},
        ASTRAY: {ROOT: HELD, second: {GPU_CLASS: 1}},
        evacuated: {elsewhere: HELD},
        aborted: {},
    }


def test_a_class_of_others_inside_nova_compute_goes_by_the_command_that_is_told(
    agent_command: AgentCommand,
    tmp_path: Path,
    http_placement: HttpPlacement,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, other = Node(http_placement, tmp_path / "mirror"), http_placement.other
    node.update(flat)
    other.set_inventory(NODE, {**other.inventory(NODE), "CUSTOM_LICENCE": 4})
    node.update(flat)
    (told,) = [one for one in caplog.messages if "somebody else put it there" in one]
    carry_out(agent_command, http_placement, told, "openstack --os")
    assert other.inventory(NODE).keys() == {"VCPU", "MEMORY_MB"}
    node.update(flat)
    assert caplog.messages == [told]


def test_what_nova_manage_does_makes_the_drift_go(
    watched: Watched, http_placement: HttpPlacement, nova: Nova
) -> None:
    other, aborted = watched.other, new_uuid()
    watched.is_host(two_cards(a_guest(BARE, "bare"), a_guest(OTHER, "other")), **OPTIONS)
    other.claim({ROOT: {**HELD, "MEMORY_MB": 4096}}, OTHER)
    other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, aborted)
    nova.create([BARE, OTHER])
    found = {one["consumer"]: one["remedy"] for one in watched.observe()["drift"]}
    assert found.keys() == {BARE, OTHER, aborted}
    # Networking is not here, which nova would ask for ports with resources of their own.
    for uuid in (BARE, OTHER):
        nova.carry_out(found[uuid], "placement heal_allocations", "--skip-port-allocations")
    # It lists the consumer and no other.
    listed = nova.carry_out(found[aborted], "placement audit", code=3)
    assert aborted in listed
    assert BARE not in listed
    assert OTHER not in listed
    http_placement.clear()
    drift = watched.observe()["drift"]
    assert [one["consumer"] for one in drift] == [aborted], [one["detail"] for one in drift]
    (left,) = drift
    assert left["consumer"] == aborted
    nova.carry_out(left["remedy"], "placement audit", "--delete", code=4)
    http_placement.clear()
    node = watched.observe()
    assert (node["operations"], node["drift"]) == ([], [])


def test_a_host_that_somebody_else_disabled_is_enabled_by_the_command_that_is_told(
    agent_command: AgentCommand, http_placement: HttpPlacement
) -> None:
    agent_command.configure(
        {
            "DEFAULT": {"compute_driver": "fake.small", "host": "node-a", "enabled": True},
            "placement": http_placement.credentials(),
        }
    )
    assert agent_command.run("--once").code == 0
    other = http_placement.other
    ((root, _),) = http_placement.dump()["providers"].items()
    before = other.traits(root)
    other.set_traits(root, {*before, "COMPUTE_STATUS_DISABLED"})
    ((drift,),) = (
        node["drift"] for node in agent_command.run("--once", "--format", "json").json["nodes"]
    )
    assert drift["kind"] == "disabled"
    Shell(agent_command.folder / "programs", agent_command, http_placement.url).run(drift["remedy"])
    assert other.traits(root) == before
    (node,) = agent_command.run("--once", "--format", "json").json["nodes"]
    assert (node["state"], node["drift"]) == ("in-sync", [])
