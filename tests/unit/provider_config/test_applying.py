"""Applying entries to a tree: a function of values."""

import pytest

from agent.model.provider_tree import ProviderTree
from agent.provider_config.applying import (
    COMPUTE_NODE,
    Absences,
    Entry,
    Key,
    ProviderConfig,
    apply,
)
from agent.yaml_files import TextPosition

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
CHILD = "5f9c2a34-7d1e-4a8b-9c46-000000000002"
OWNER = "OWNER_NOVA"
VCPU = {"total": 16}
L = {"total": 20}


def tree_with(traits=("COMPUTE_NODE",)):
    tree = ProviderTree()
    tree.new_root("c1", ROOT)
    tree.update_inventory(ROOT, {"VCPU": VCPU})
    tree.add_traits(ROOT, *traits)
    tree.new_child("gpu", ROOT, CHILD)
    return tree


def entry(by, value, *traits, line=1, **records):
    return Entry(Key(by, value), "a.yaml", TextPosition(line, 3), records, frozenset(traits))


def applied(*entries, tree=None, made=None, gone=frozenset(), last=None):
    tree = tree or tree_with()
    made = {ROOT: frozenset({"VCPU"}), CHILD: frozenset()} if made is None else made
    before = {provider.uuid: provider for provider in tree.providers()}
    found = apply(
        ProviderConfig(entries=entries), tree, ROOT, OWNER, made, gone=gone, last=last or {}
    )
    assert {provider.uuid: provider for provider in tree.providers()} == before, (
        "the tree that was given is left alone"
    )
    return found


def added(found, uuid):
    """What the provider has beside what it had."""
    one, before = found.tree.provider(uuid), tree_with().provider(uuid)
    return {
        name: record for name, record in one.inventory.items() if name not in before.inventory
    }, set(one.traits - before.traits)


DEFAULT = entry("uuid", COMPUTE_NODE, "CUSTOM_A")


@pytest.mark.parametrize("own", [entry("uuid", ROOT, "CUSTOM_B"), entry("name", "c1", "CUSTOM_B")])
def test_an_entry_of_its_own_goes_before_the_default(own):
    assert added(applied(DEFAULT, own), ROOT) == ({}, {"CUSTOM_B", OWNER})


def test_a_name_that_looks_like_a_uuid_is_a_name():
    assert applied(entry("name", CHILD, "CUSTOM_A")).found == set()


def test_all_conflicts_of_a_provider_are_told():
    found = applied(entry("name", "c1", VCPU=L), entry("uuid", ROOT, VCPU=L))
    assert len(found.problems) == 3


def test_a_provider_that_is_gone_is_absent():
    found = applied(
        entry("name", "gpu", "CUSTOM_A"), made={ROOT: frozenset()}, gone=frozenset({CHILD})
    )
    assert (found.problems, found.found, found.configured) == ([], set(), {})


# --- which entries are reported as absent, and when ---


GPU, NIC = Key("name", "gpu-0"), Key("uuid", "5f9c2a34-7d1e-4a8b-9c46-000000000002")
CONFIG = ProviderConfig(
    entries=tuple(
        Entry(key, "a.yaml", TextPosition(line, 3))
        for line, key in enumerate((GPU, NIC, Key("uuid", COMPUTE_NODE)), 1)
    )
)


def lines(caplog):
    found = [record.getMessage().partition(":3)")[0] for record in caplog.records]
    caplog.clear()
    return found


def test_each_is_told_once_and_again_after_it_was_there(caplog):
    absences = Absences()
    passes = [set(), set(), {GPU}, {GPU}, set(), {NIC}, set()]
    seen = []
    for found in passes:
        absences.warn(CONFIG, found, ["c1"])
        seen.append(lines(caplog))
    first, second = "name gpu-0 (a.yaml:1", f"uuid {NIC.value} (a.yaml:2"
    assert seen == [[first, second], [], [], [], [first], [], [second]]


def test_names_that_may_be_meant_come_first_and_are_few(caplog):
    names = [f"c{number}" for number in range(100)] + ["gpu-1", "gpu", "x\ny"]
    Absences().warn(ProviderConfig(entries=CONFIG.entries[:1]), set(), names)
    (record,) = caplog.records
    known = record.getMessage().partition("Known here: ")[2].split(", ")
    assert known[:2] == ["gpu-1", "gpu"]
    assert len(known) == 10


def test_names_are_shown_escaped(caplog):
    Absences().warn(CONFIG, {NIC}, ["x\nERROR"])
    assert "x\\nERROR" in caplog.text.splitlines()[0]


def test_the_default_is_for_a_compute_node_alone():
    assert added(applied(DEFAULT), ROOT) == ({}, {"CUSTOM_A", OWNER})
    assert applied(DEFAULT, tree=tree_with(())).configured == {}
