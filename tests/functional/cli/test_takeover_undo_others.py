"""``agent takeover undo`` beside others: what is not this agent's stays, and is told with the command
that ends it.
"""

from pathlib import Path

import pytest

from tests.functional.cli.test_takeover_undo import (
    GPU,
    GPUS,
    MARK,
    NESTED,
    REPORTED,
    ROOT,
    WITH_GPU,
    Site,
)
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere
from tests.support.tracking import guest

OTHER_MARK = "CUSTOM_COMPUTE_NODE_AGENT_NODE_B"
STRANGER = guest("stranger")


@pytest.fixture
def site(tmp_path: Path, http_placement: HttpPlacement) -> Site:
    return Site(tmp_path, http_placement)


def test_a_node_with_the_mark_of_another_agent_is_not_written_at_all(site: Site) -> None:
    site.as_nova_has_it(REPORTED)
    site.take_over(REPORTED)
    site.other.call("PUT", f"/traits/{OTHER_MARK}")
    site.other.set_traits(ROOT, {*site.other.traits(ROOT), OTHER_MARK})
    # The shares of devices would go, because nova.conf does not report them.
    site.configure()
    site.placement.clear()
    result = site.undo("--yes")
    assert (result.code, result.json["released"], result.json["given_back"]) == (1, {}, [])
    assert result.json["nodes"][0]["errors"][0]["code"] == "node.elsewhere"
    assert site.placement.writes() == []
    # Nor does the plan promise anything.
    plan = site.undo().json
    assert (plan["released"], plan["deleted"]) == ({}, {"traits": [], "classes": []})


def test_a_node_that_placement_lacks_is_not_created(site: Site) -> None:
    site.as_nova_has_it()
    site.take_over()
    for consumer in site.placement.dump()["consumers"]:
        site.other.release(consumer)
    for row in sorted(site.other.tree(ROOT), key=lambda row: row["uuid"] == ROOT):
        site.other.delete_provider(row["uuid"])
    site.placement.clear()
    result = site.undo("--yes")
    (error,) = result.json["errors"]
    assert (result.code, error["code"]) == (1, "config.invalid")
    assert f"no provider {ROOT}" in error["message"]
    assert site.placement.writes() == []


def test_a_cell_with_something_of_others_stays_and_is_named(site: Site) -> None:
    site.as_nova_has_it()
    site.take_over(NESTED)
    other = site.other
    cells = {row["name"]: row["uuid"] for row in other.tree(ROOT)}
    first, second = cells["node-a_NUMA0"], cells["node-a_NUMA1"]
    port = other.create_provider("node-a:NIC", parent=first)
    other.set_inventory(port, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000})
    other.call("PUT", "/traits/CUSTOM_FAST")
    other.set_traits(second, {*other.traits(second), "CUSTOM_FAST"})
    other.call("PUT", "/resource_classes/CUSTOM_LICENSE")
    other.set_inventory(second, {**other.inventory(second), "CUSTOM_LICENSE": 5})
    result = site.undo("--yes")
    assert (result.code, result.json["given_back"]) == (0, [ROOT])
    left = {one["name"]: one["uuid"] for one in result.json["left_providers"]}
    assert left == {"node-a_NUMA0": first, "node-a_NUMA1": second}
    assert (other.inventory(first), other.traits(first)) == ({}, set())
    assert other.inventory(port)["NET_BW_EGR_KILOBIT_PER_SEC"]["total"] == 1000
    assert other.inventory(second).keys() == {"CUSTOM_LICENSE"}
    assert other.traits(second) == {"CUSTOM_FAST"}


def test_a_consumer_that_no_record_knows_keeps_its_device(site: Site) -> None:
    site.as_nova_has_it()
    site.take_over(REPORTED, NESTED)
    name = f"node-a_{GPUS[0].upper()}"
    (card,) = (row["uuid"] for row in site.other.tree(ROOT) if row["name"] == name)
    site.other.claim({card: {GPU: 1}}, STRANGER)
    site.configure(NESTED)
    assert site.undo().json["kept"] == {STRANGER: [name]}
    result = site.undo("--yes")
    # Scripts see that the host is not given back as a whole.
    assert (result.code, result.json["given_back"]) == (3, [])
    assert result.json["kept"] == {STRANGER: [name]}
    assert site.content()["consumers"][STRANGER]["allocations"] == {card: {GPU: 1}}
    text = site.agent.run("takeover", "undo").stdout
    unset = f"allocation unset --provider {card} {STRANGER}"
    assert f"&& openstack --os-placement-api-version 1.28 resource provider {unset}" in text
    # The guests, which the records know, have theirs no more.
    assert result.json["released"].keys() == {WITH_GPU}
    site.other.release(STRANGER)
    last = site.undo("--yes")
    assert (last.code, last.json["given_back"]) == (0, [ROOT])
    assert last.json["deleted"] == {"traits": [MARK], "classes": []}
    assert last.json["left"] == {"traits": [], "classes": [GPU]}


def test_cells_of_a_store_that_is_lost_stay_in_a_tree_that_is_not_adopted(site: Site) -> None:
    site.as_nova_has_it()
    site.take_over(NESTED)
    site.agent = AgentHere(site.folder / "anew")
    site.configure(NESTED)
    assert site.agent.run("--once").code == 0
    before = site.content()
    result = site.undo("--yes")
    assert (result.code != 0, result.json["given_back"]) == (True, [])
    assert "agent --once --adopt" in result.stdout
    assert site.content() == before


def test_the_plan_of_an_agent_that_observes_is_that_of_its_journal(site: Site) -> None:
    site.as_nova_has_it()
    site.take_over(NESTED)
    plan = site.undo().json
    site.configure(NESTED, {"DEFAULT": {"mode": "observe"}})
    observed = site.undo().json
    assert observed["deleted"] == plan["deleted"] == {"traits": [MARK], "classes": []}
    operations = [one["op"] for one in observed["nodes"][0]["operations"]]
    assert operations == [one["op"] for one in plan["nodes"][0]["operations"]]
