"""The driver by itself: a test of a driver needs neither an agent nor a Placement."""

import json
from pathlib import Path

import pytest
from inventory_driver import InventoryDriver
from oslo_config import cfg

from agent.driver.interface import HostContext
from agent.errors import ConfigError, DriverError, NotReady
from agent.model.provider_tree import ProviderTree

HOST = {
    "name": "n1",
    "uuid": "0d9a5a52-6c1f-4f3e-9d55-4a1b0c7e1a01",
    "site": "berlin",
    "cpus": 4,
    "memory_mib": 2048,
    "disk_gib": 50,
}
OTHER = {**HOST, "name": "n2", "uuid": "0d9a5a52-6c1f-4f3e-9d55-4a1b0c7e1a02", "site": "oslo"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "inventory.json"


def driver(file: Path, *hosts: object, **options: str) -> InventoryDriver:
    file.write_text(json.dumps({"hosts": hosts}))
    conf = cfg.ConfigOpts()
    conf([])
    made = InventoryDriver(conf)
    conf.set_override("file", str(file), group="inventory")
    for name, value in options.items():
        conf.set_override(name, value, group="inventory")
    made = InventoryDriver(conf)
    made.start(HostContext("agent-1", HOST["uuid"], file.parent, read_only=True))
    return made


def test_the_nodes_are_the_hosts_of_the_site(file):
    assert driver(file, HOST, OTHER).nodes() == {HOST["uuid"]: "n1", OTHER["uuid"]: "n2"}
    assert driver(file, HOST, OTHER, site="oslo").nodes() == {OTHER["uuid"]: "n2"}


def test_a_broken_file_is_not_an_empty_list_of_nodes(file):
    made = driver(file, HOST)
    file.write_text("{")
    with pytest.raises(NotReady):
        made.nodes(True)
    assert made.nodes() == {HOST["uuid"]: "n1"}


def test_only_a_host_that_the_inventory_retired_is_deleted(file):
    made = driver(file, HOST, OTHER)
    file.write_text(json.dumps({"hosts": [OTHER]}))
    assert (made.is_node_deleted("n1"), made.is_node_deleted("n2")) == (True, False)


def test_a_disk_that_is_not_known_is_incomplete_and_not_zero(file):
    facts = driver(file, {**HOST, "disk_gib": None}).facts("n1")
    assert (facts.disk_gib, list(facts.incomplete)) == (None, ["disk"])


def test_licences_are_counted_by_a_child(file):
    made = driver(file, {**HOST, "licences": {"CUSTOM_LICENCE_DATABASE": 4}})
    tree = ProviderTree()
    tree.new_root("n1", HOST["uuid"])
    made.shape(tree, made.facts("n1"), None)
    assert tree.data("n1_licences").inventory["CUSTOM_LICENCE_DATABASE"]["total"] == 4


def test_what_cannot_be_used_is_said(file):
    made = driver(file, HOST, site=" ")
    assert len(made.option_warnings()) == 1
    with pytest.raises(DriverError):
        made.facts("n9")
    file.unlink()
    with pytest.raises(ConfigError):
        made.check("agent-1")


def test_every_promise_is_kept(check_driver):
    check_driver(InventoryDriver, Path("agent.conf"))
