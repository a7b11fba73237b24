"""Hosts that are unusual and as they should be: an observer tells nothing of them that is wrong."""

from pathlib import Path
from typing import Any

import pytest

from tests.functional.nova.watched_host import HELD, ROOT, Watched, a_guest, host
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.placement import PROJECT, USER
from tests.support.tracking import guest

GOOD = guest("good")


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    found = Watched(tmp_path, http_placement)
    found.as_nova_has_it()
    found.has(a_guest(GOOD, "good"))
    return found


def told(watched: Watched) -> tuple[Any, Any, Any]:
    node = watched.observe()
    return node["operations"], node["drift"], node["errors"]


def test_what_other_services_and_operators_have_in_the_tree_is_theirs(watched: Watched) -> None:
    other = watched.other
    for name in ("CUSTOM_FAST", "CUSTOM_PHYSNET_A"):
        other.call("PUT", f"/traits/{name}")
    for name in ("CUSTOM_LICENSE", "CUSTOM_RESERVATION_A"):
        other.call("PUT", f"/resource_classes/{name}")
    # As a provider config file of nova's, an operator, and the disabled service have it.
    other.set_inventory(ROOT, {**other.inventory(ROOT), "CUSTOM_LICENSE": 5})
    marks = {"CUSTOM_FAST", "COMPUTE_STATUS_DISABLED"}
    other.set_traits(ROOT, other.traits(ROOT) | marks)
    other.set_aggregates(ROOT, {new_uuid()})
    children = {
        "node-a:Open vSwitch agent:br-a": ("NET_BW_EGR_KILOBIT_PER_SEC", {"CUSTOM_PHYSNET_A"}),
        "node-a_FPGA_1": ("FPGA", {"OWNER_CYBORG"}),
        "blazar_node-a": ("CUSTOM_RESERVATION_A", set[str]()),
    }
    shares = {ROOT: {**HELD, "CUSTOM_LICENSE": 1}}
    for name, (resource, traits) in children.items():
        child = other.create_provider(name, parent=ROOT)
        other.set_inventory(child, {resource: 10})
        other.set_traits(child, traits)
        shares[child] = {resource: 1}
    other.claim(shares, GOOD)
    operations, drift, errors = told(watched)
    assert (operations, errors) == ([], [])
    assert {(one["kind"], one["severity"]) for one in drift} == {("foreign-provider", "info")}


def test_a_consumer_of_another_service_is_told_as_such_and_not_as_a_leftover(
    watched: Watched,
) -> None:
    other, consumer = watched.other, new_uuid()
    other.claim({ROOT: HELD}, GOOD)
    body = {
        "allocations": {ROOT: {"resources": HELD}},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": None,
        "consumer_type": "CONTAINER",
    }
    path = f"/allocations/{consumer}"
    answer = other.adapter.request(path, "PUT", json=body, microversion="1.38")
    assert answer.status_code == 204
    operations, (drift,), errors = told(watched)
    assert (operations, errors) == ([], [])
    assert (drift["kind"], drift["severity"]) == ("foreign-allocation", "info")
    assert drift["consumer"] == consumer
    assert "CONTAINER" in drift["detail"]
    assert "delete" not in drift["remedy"]


def test_a_ratio_that_no_option_gives_is_placements(watched: Watched) -> None:
    other = watched.other
    inventory = other.inventory(ROOT)
    inventory["VCPU"]["allocation_ratio"] = 3.5
    other.set_inventory(ROOT, inventory)
    other.claim({ROOT: HELD}, GOOD)
    assert told(watched) == ([], [], [])


def test_a_host_whose_uuid_is_not_known_is_told_as_that_and_nothing_else(watched: Watched) -> None:
    watched.other.claim({ROOT: HELD}, GOOD)
    described = {key: value for key, value in host(a_guest(GOOD, "good")).items() if key != "uuid"}
    watched.is_host(described)
    (watched.agent.folder / "nova" / "compute_id").unlink()
    node = watched.observe()
    assert [one["kind"] for one in node["drift"]] == ["name-conflict"]
    assert (node["operations"], [one["code"] for one in node["errors"]]) == (
        [],
        ["placement.name-conflict"],
    )


def test_each_command_that_writes_is_refused_and_writes_nothing(watched: Watched) -> None:
    other, stranger, aggregate = watched.other, new_uuid(), new_uuid()
    other.claim({ROOT: HELD}, GOOD)
    watched.has(DEFAULT={"mode": "observe"})
    shown = watched.agent.run("allocation", "show", GOOD, "--format", "json")
    record = watched.folder / "record.json"
    record.write_text(shown.stdout)
    owner = ("--project-id", PROJECT, "--user-id", USER)
    before = watched.placement.dump()
    watched.placement.clear()
    for arguments in (
        ("allocation", "claim", stranger, "resources=VCPU:1", *owner),
        ("allocation", "put", GOOD, str(record)),
        ("allocation", "add", GOOD, ROOT, "VCPU=1"),
        ("allocation", "remove", GOOD, ROOT, "VCPU=1"),
        ("allocation", "move", GOOD, stranger),
        ("allocation", "delete", GOOD),
        ("allocation", "delete", GOOD, "--force"),
        ("allocation", "remove-tree", GOOD, ROOT),
        ("aggregate", "add-host", aggregate, ROOT),
        ("decommission", ROOT, "--consumer", GOOD, "--all-providers"),
    ):
        result = watched.agent.run(*arguments, "--format", "json")
        assert result.code == 1, (arguments, result)
        codes = {error["code"] for error in result.json["errors"]}
        assert codes == {"agent.observes-only"}, (arguments, result)
    assert watched.placement.writes() == []
    assert watched.placement.dump() == before
