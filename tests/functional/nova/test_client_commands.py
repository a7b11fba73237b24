"""The commands for servers, flavors and aggregates that a message names, carried out as they stand by
the real OpenStack client on nova's own API: nova begins what is meant, and once it has done it, the
trouble is gone.

``OPENSTACK_CLIENT`` names an ``openstack`` command with osc-placement, ``NOVA_PYTHON`` a Python with
nova 34; without them this is left out.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import from_file, uuids_of
from tests.functional.cli.test_guest_here import CASES, GUEST, Here, host
from tests.functional.cli.test_guest_here import ROOT as HOST_UUID
from tests.functional.cli.test_takeover_undo import NESTED, REPORTED
from tests.functional.cli.test_takeover_undo import Site as Given
from tests.functional.nova.nova_api import NovaApi
from tests.functional.nova.watched_host import ALLOCATION, HELD, ROOT, Watched, a_guest
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.shell import Shell, command_of
from tests.support.system import AgentHere

pytestmark = pytest.mark.long

UP = {"beat": 0}
"""nova-compute of the host tells of itself."""


@pytest.fixture
def here(tmp_path: Path, http_placement: HttpPlacement) -> Here:
    return Here(AgentHere(tmp_path / "agent"), http_placement)


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    found = Watched(tmp_path, http_placement)
    found.as_nova_has_it()
    return found


def shell_of(agent: AgentHere, placement: HttpPlacement, nova: NovaApi) -> Shell:
    return Shell(agent.folder / "programs", agent, placement.url, nova.url)


def doing(shell: Shell, server: str) -> str:
    """What nova does to a server."""
    return shell.run(f"openstack server show -f value -c OS-EXT-STS:task_state {server}").strip()


def told(watched: Watched) -> dict[str, Any]:
    return {one["consumer"]: one for one in watched.observe()["drift"]}


def test_a_misplaced_guest_is_moved_by_the_command_of_the_drift(
    here: Here, http_placement: HttpPlacement, nova: NovaApi
) -> None:
    one, change, _ = CASES["a trait that went"]
    there = host(one)
    here.becomes(there)
    assert (here.run("--once").code, here.run("guests", "import").code) == (0, 0)
    change(here, there)
    (drift,) = here.misplaced("--once")
    nova.has(servers=[GUEST], service=UP, node=HOST_UUID)
    shell = shell_of(here.agent, http_placement, nova)
    shell.run(command_of(drift["remedy"], "openstack"))
    assert doing(shell, GUEST) == "resize_prep"
    # nova has moved it: the guest is elsewhere, and its record is given back.
    change(here, host())
    assert here.run("guests", "forget", GUEST).code == 0
    assert here.misplaced("--once") == []


@pytest.mark.parametrize(
    ("command", "begun"),
    [("openstack server reboot --hard", "rebooting_hard"), ("openstack server delete", "deleting")],
)
def test_a_server_without_a_guest_is_made_anew_or_deleted_by_the_commands_of_the_drift(
    watched: Watched, http_placement: HttpPlacement, nova: NovaApi, command: str, begun: str
) -> None:
    failed = new_uuid()
    nova.has(servers=[failed], service=UP)
    watched.has(nova=nova.credentials())
    watched.other.claim({ROOT: HELD}, failed)
    shell = shell_of(watched.agent, http_placement, nova)
    shell.run(command_of(told(watched)[failed]["remedy"], command))
    assert doing(shell, failed) == begun
    # nova-compute has done it.
    if begun == "deleting":
        watched.other.release(failed)
    else:
        nova.has(servers=[])
        watched.has(a_guest(failed, "failed"))
    assert told(watched) == {}


def test_what_a_dead_migration_holds_goes_by_the_command_that_asks_nova(
    watched: Watched, http_placement: HttpPlacement, nova: NovaApi
) -> None:
    stays, died, moves, moving = (new_uuid() for _ in range(4))
    way = {"source_compute": "node-a", "dest_compute": "node-b", "status": "migrating"}
    nova.has(
        servers=[stays, {"uuid": moves, "task_state": "resize_migrating"}],
        migrations=[
            {"uuid": died, "instance_uuid": stays, **way},
            {"uuid": moving, "instance_uuid": moves, **way},
        ],
    )
    watched.has(a_guest(stays, "stays"))
    watched.other.claim({ROOT: HELD}, stays)
    for uuid in (died, moving):
        watched.other.claim({ROOT: {**HELD, "VCPU": 2}}, uuid)
    found, shell = told(watched), shell_of(watched.agent, http_placement, nova)
    assert found.keys() == {died, moving}
    for uuid, more in ((died, ""), (moving, " || true")):
        (command,) = re.findall(
            r"(openstack --os-compute-api-version .*?); if nova does", found[uuid]["remedy"]
        )
        assert command.endswith(f"{ALLOCATION} delete {uuid}")
        shell.run(command + more)
    http_placement.clear()
    assert told(watched).keys() == {moving}


def test_a_guest_of_which_no_flavor_is_known_is_explained_with_the_flavor_that_nova_shows(
    here: Here, http_placement: HttpPlacement, nova: NovaApi
) -> None:
    here.becomes(host({"uuid": GUEST, "name": "bare", "memory_mib": 512, "vcpus": 1}))
    assert here.run("--once").code == 0
    (error,) = here.run("explain", "--guest", GUEST, "--format", "json").json["errors"]
    shell = shell_of(here.agent, http_placement, nova)
    shell.run(
        "openstack flavor create --vcpus 2 --ram 1024 --disk 5 --property hw:cpu_policy=dedicated m2"
    )
    command = command_of(error["remedy"], "openstack").replace("FLAVOR", "m2")
    answer = shell.run(command)
    assert "resources=DISK_GB:5,MEMORY_MB:1024,PCPU:2" in answer
    assert "fits 1 of 1 node" in answer


def test_the_uuid_of_an_aggregate_is_what_the_client_shows(
    here: Here, http_placement: HttpPlacement, nova: NovaApi
) -> None:
    here.becomes(host())
    assert here.run("--once").code == 0
    refused = here.run("aggregate", "remove-host", new_uuid(), "node-a")
    assert "openstack aggregate show displays it" in " ".join(refused.stderr.split())
    shell = shell_of(here.agent, http_placement, nova)
    shell.run("openstack aggregate create fast")
    (uuid,) = re.findall(r"uuid\s*\|\s*(\S+)", shell.run("openstack aggregate show fast"))
    for command in ("add-host", "remove-host"):
        assert here.run("aggregate", command, uuid, "node-a").code == 0


def test_what_a_takeover_leaves_for_others_goes_by_the_commands_that_undo_names(
    tmp_path: Path, http_placement: HttpPlacement, nova: NovaApi
) -> None:
    given = Given(tmp_path, http_placement)
    given.as_nova_has_it()
    given.take_over(REPORTED, NESTED)
    uuids = uuids_of(http_placement)
    card = next(uuid for name, uuid in uuids.items() if name.startswith("0000:"))
    (card_class,) = given.other.inventory(card)
    given.other.claim({card: {card_class: 1}}, new_uuid())
    port = given.other.create_provider("node-a:NIC", parent=uuids["NUMA1"])
    given.configure(NESTED)
    shell = shell_of(given.agent, http_placement, nova)

    def named() -> list[str]:
        text = given.agent.run("takeover", "undo", "--yes").stdout
        return re.findall(r": (openstack .*)$", text, re.M)

    first = named()
    (unset,) = (one for one in first if " allocation unset " in one)
    (removed,) = (one for one in first if one.endswith(f" delete {uuids['NUMA1']}"))
    # As in a shell of an operator: the client fails where there is no such server.
    shell.run(f"set +o pipefail; {unset}")
    given.other.delete_provider(port)
    shell.run(removed)
    (left,) = named()
    assert " resource class delete " in left
    shell.run(left)
    assert named() == []
    assert card_class not in str(http_placement.dump())


def test_a_name_that_another_provider_has_is_freed_by_the_command_of_the_remedy(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    blades = [{"name": f"blade-{number}", "memory_mib": 1024} for number in (1, 2)]
    agent = from_file(http_placement, tmp_path / "agent", {"nodes": blades})
    http_placement.other.create_provider("blade-2")
    *_, taken = agent.run("--once", "--format", "json").json["nodes"]
    (remedy,) = (one["remedy"] for one in taken["errors"])
    shell = Shell(agent.folder / "programs", agent, http_placement.url)
    shell.run(command_of(remedy, "openstack"))
    assert agent.run("--once").code == 0


def test_the_provider_of_a_host_that_lost_its_identity_is_listed_by_the_command_of_the_remedy(
    here: Here, http_placement: HttpPlacement
) -> None:
    nameless = {key: value for key, value in host().items() if key != "uuid"}
    here.becomes(nameless)
    assert here.run("--once").code == 0
    shutil.rmtree(here.agent.store)
    told = here.run("identity", "show", "--format", "json").json["errors"][0]["remedy"]
    shell = Shell(here.agent.folder / "programs", here.agent, http_placement.url)
    listed = shell.run(command_of(told, "openstack").partition("; and ")[0])
    (uuid,) = (one for one in http_placement.dump()["providers"] if one in listed)
    shell.run(command_of(told, "agent identity set").replace("UUID", uuid))
    assert here.run("--once").code == 0
    assert uuids_of(http_placement)[""] == uuid
