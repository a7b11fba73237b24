"""What an observer tells where it may ask nova: nova 34's own API answers, over HTTP, from records in
its own databases.

``NOVA_PYTHON`` names a Python with nova 34; without it this is left out.
"""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.functional.nova.nova_api import NovaApi
from tests.functional.nova.watched_host import (
    ALLOCATION,
    HEAL,
    HELD,
    ROOT,
    Watched,
    a_guest,
    at_rest,
    unknown,
)
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement

pytestmark = pytest.mark.long


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    found = Watched(tmp_path, http_placement)
    found.as_nova_has_it()
    return found


def told(watched: Watched) -> dict[str, Any]:
    node = watched.observe()
    assert node["errors"] == []
    return {one.get("consumer"): one for one in node["drift"]}


def test_a_guest_that_nova_does_not_know_is_told_though_its_allocation_is_right(
    watched: Watched, nova: NovaApi
) -> None:
    good, ghost, copy, arriving = (new_uuid() for _ in range(4))
    on_b = {"host": "node-b", "node": "node-b"}
    nova.has(
        servers=[
            good,
            {"uuid": copy, **on_b},
            {"uuid": arriving, "task_state": "migrating", **on_b},
        ]
    )
    watched.has(a_guest(good, "good"), nova=nova.credentials())
    watched.other.claim({ROOT: HELD}, good)
    assert told(watched) == {}
    assert nova.requests == ["GET /v2.1/servers/detail"]
    guests = {good: "good", ghost: "ghost", copy: "copy", arriving: "arriving"}
    watched.has(*(a_guest(*one) for one in guests.items()), nova=nova.credentials())
    for uuid in (ghost, copy, arriving):
        watched.other.claim({ROOT: HELD}, uuid)
    found = told(watched)
    assert {uuid: (one["kind"], one["severity"]) for uuid, one in found.items()} == {
        ghost: ("unknown-domain", "warning"),
        copy: ("unknown-domain", "warning"),
    }
    assert "nova knows no such server: it was deleted" in found[ghost]["detail"]
    remedy = found[ghost]["remedy"]
    assert remedy.startswith("if nova-compute is down: openstack server show ")
    assert "it destroys the guests of all deleted servers" in remedy
    assert remedy.endswith(f"; then: {unknown(ghost)}{ALLOCATION} delete {ghost}")
    assert "nova has the server on host node-b, status ACTIVE" in found[copy]["detail"]
    assert found[copy]["remedy"].endswith(
        f": {at_rest(copy, 'node-b')}virsh destroy {copy} && virsh undefine --nvram {copy}"
    )


def test_a_migration_whose_server_does_not_move_is_a_leftover(
    watched: Watched, nova: NovaApi
) -> None:
    elsewhere = watched.other.create_provider("node-b")
    watched.other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    moves, stays, went, doubled = (new_uuid() for _ in range(4))
    moving, died, finished, leaked = (new_uuid() for _ in range(4))
    way = {"source_compute": "node-a", "dest_compute": "node-b"}
    nova.has(
        servers=[
            {"uuid": moves, "task_state": "resize_migrating"},
            stays,
            {"uuid": went, "host": "node-b", "node": "node-b"},
            doubled,
        ],
        migrations=[
            {"uuid": moving, "instance_uuid": moves, "status": "migrating", **way},
            {"uuid": died, "instance_uuid": stays, "status": "migrating", **way},
            {"uuid": finished, "instance_uuid": went, "status": "post-migrating", **way},
        ],
    )
    guests = {moves: "moves", stays: "stays", doubled: "doubled"}
    watched.has(*(a_guest(*one) for one in guests.items()), nova=nova.credentials())
    for uuid in (moves, stays, went):
        watched.other.claim({elsewhere: HELD}, uuid)
    for uuid in (moving, died, finished, doubled, leaked):
        watched.other.claim({ROOT: HELD}, uuid)
    found = told(watched)
    severities = {uuid: one["severity"] for uuid, one in found.items()}
    warned = dict.fromkeys((stays, died, finished, leaked), "warning")
    assert {uuid: severities[uuid] for uuid in (moves, *warned)} == {moves: "info", **warned}
    assert severities.keys() <= {moves, moving, *warned}
    assert severities.get(moving, "info") == "info"
    assert (
        "but the server does not move: nova has the server on host node-b"
        in (found[finished]["detail"])
    )
    assert {uuid: found[uuid]["remedy"] for uuid in warned} == {
        **dict.fromkeys(
            (stays, died),
            f"{at_rest(stays)}{ALLOCATION} delete {died}; then: "
            f"{at_rest(stays)}{HEAL} {stays} --force",
        ),
        finished: f"{at_rest(went, 'node-b')}{ALLOCATION} delete {finished}",
        leaked: f"{unknown(leaked)}{ALLOCATION} delete {leaked}",
    }


def test_what_nova_is_at_work_on_is_told_for_information(watched: Watched, nova: NovaApi) -> None:
    built, migration, moved, deleted, resized = (new_uuid() for _ in range(5))
    nova.has(
        servers=[
            {"uuid": built, "vm_state": "building", "task_state": "spawning"},
            {"uuid": deleted, "task_state": "deleting"},
            {"uuid": resized, "vm_state": "resized"},
            {"uuid": moved, "host": "node-b", "node": "node-b", "vm_state": "resized"},
        ],
        migrations=[
            {
                "uuid": migration,
                "instance_uuid": moved,
                "source_compute": "node-a",
                "dest_compute": "node-b",
                "status": "finished",
            }
        ],
    )
    guests = [a_guest(deleted, "deleted"), a_guest(resized, "resized")]
    watched.has(*guests, nova=nova.credentials())
    watched.other.claim({ROOT: HELD}, built)
    watched.other.claim({ROOT: HELD}, migration)
    watched.other.claim({ROOT: {**HELD, "MEMORY_MB": 4096}}, resized)
    found = told(watched)
    assert {one["severity"] for one in found.values()} == {"info"}
    assert found.keys() == {built, migration, deleted, resized}
    assert "nova has the server on this host, status BUILD, task spawning" in found[built]["detail"]
    assert "status ACTIVE, task deleting" in found[deleted]["detail"]
    assert "status VERIFY_RESIZE" in found[resized]["detail"]
    what = f"nova has it as a migration of server {moved} from node-a to node-b, status finished"
    assert what in found[migration]["detail"]
    assert found[migration]["remedy"].startswith("wait while the move goes on")
    assert {request.partition(" ")[0] for request in nova.requests} == {"GET"}


def test_the_remedy_of_the_rest_is_exact(watched: Watched, nova: NovaApi) -> None:
    other = watched.other
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})
    over, moved, evacuated, astray, shelved, failed, nothing, bare, left, strange = (
        new_uuid() for _ in range(10)
    )
    on_b = {"host": "node-b", "node": "node-b"}
    nova.has(
        servers=[
            *({"uuid": uuid, **on_b} for uuid in (moved, evacuated, astray, left)),
            {"uuid": shelved, "host": None, "node": None, "vm_state": "shelved_offloaded"},
            {"uuid": failed, "vm_state": "error"},
            bare,
        ],
        migrations=[
            {
                "uuid": over,
                "instance_uuid": moved,
                "source_compute": "node-a",
                "dest_compute": "node-b",
                "status": "error",
            },
            # More than one page of others.
            *(
                {
                    "uuid": new_uuid(),
                    "instance_uuid": moved,
                    "source_compute": "node-a",
                    "dest_compute": "node-b",
                    "status": "confirmed",
                }
                for _ in range(4)
            ),
        ],
    )
    guests = [a_guest(bare, "bare"), a_guest(left, "left"), a_guest(strange, "strange")]
    watched.has(*guests, nova=nova.credentials())
    small = {"VCPU": 1, "MEMORY_MB": 512}
    for uuid in (over, astray, shelved, failed, nothing):
        other.claim({ROOT: small}, uuid)
    other.claim({ROOT: small, elsewhere: HELD}, evacuated)
    found = told(watched)
    assert {uuid: one["remedy"] for uuid, one in found.items() if uuid not in (left, strange)} == {
        over: f"{ALLOCATION} delete {over}",
        evacuated: f"{at_rest(evacuated, 'node-b')}{ALLOCATION} unset --provider {ROOT} {evacuated}",
        astray: (f"{at_rest(astray, 'node-b')}{ALLOCATION} delete {astray} && {HEAL} {astray}"),
        shelved: f"{at_rest(shelved, 'None')}{ALLOCATION} delete {shelved}",
        failed: (
            f"make the guest anew: openstack server reboot --hard {failed}; if nobody wants it: "
            f"openstack server delete {failed}"
        ),
        nothing: f"{unknown(nothing)}{ALLOCATION} delete {nothing}",
        bare: f"{HEAL} {bare}",
    }
    assert {one["severity"] for one in found.values()} == {"warning"}
    assert "nova has the server on host node-b, status ACTIVE" in found[astray]["detail"]
    assert "nova has the server on host node-b, status ACTIVE" in found[left]["detail"]
    assert "heal_allocations" not in found[left]["remedy"]
    assert "nova knows neither such a server nor such a migration" in found[nothing]["detail"]
    assert "nova knows no such server" in found[strange]["detail"]
    assert "nova has the server on no host" in found[shelved]["detail"]
    assert nova.requests.count("GET /v2.1/os-migrations") >= 2


def test_nova_is_asked_with_the_credentials_of_placement(watched: Watched, nova: NovaApi) -> None:
    nothing = new_uuid()
    watched.has(nova={"auth_section": "placement", "endpoint_override": nova.url})
    watched.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, nothing)
    assert told(watched)[nothing]["remedy"] == (f"{unknown(nothing)}{ALLOCATION} delete {nothing}")


def test_an_account_that_may_not_list_servers_is_told_and_the_rest_stays(
    watched: Watched, nova: NovaApi
) -> None:
    bare = new_uuid()
    watched.has(a_guest(bare, "bare"), nova=nova.credentials("reader"))
    found = told(watched)
    assert found[bare]["remedy"].endswith(f"heal_allocations --instance {bare}")
    warning = found[None]
    assert (warning["kind"], warning["severity"]) == ("nova-not-asked", "warning")
    assert "GET /servers/detail -> 403" in warning["detail"]
    assert "what is told rests on the hypervisor alone" in warning["detail"]
    assert "role admin" in warning["remedy"]


def test_a_nova_that_hangs_delays_an_audit_no_longer_than_its_timeout(watched: Watched) -> None:
    bare = new_uuid()
    # The kernel takes connections for it; nobody answers.
    with socket.create_server(("127.0.0.1", 0)) as nova:
        port = nova.getsockname()[1]
        options = {"endpoint": f"http://127.0.0.1:{port}/v2.1", "timeout": 2}
        watched.has(
            a_guest(bare, "bare"), nova={"auth_type": "admin_token", "token": "admin", **options}
        )
        node = watched.observe()
        nova.settimeout(0)
        # One request, so that the timeout is waited for once.
        nova.accept()[0].close()
        with pytest.raises(BlockingIOError):
            nova.accept()
    # Without the option it would be 10.
    assert 2 <= node["seconds"]["total"] < 10
    assert (node["state"], node["errors"]) == ("in-sync", [])
    assert [one["kind"] for one in node["drift"]] == ["missing-allocation", "nova-not-asked"]
