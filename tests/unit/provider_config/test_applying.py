"""Applying entries to a tree: a function of values."""

import pytest

from agent.model.mirror import Configured
from agent.model.provider_tree import ProviderTree
from agent.provider_config.applying import (
    COMPUTE_NODE,
    Addition,
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


def test_an_entry_adds_to_what_is_there_and_is_remembered_as_the_operator_s():
    found = applied(entry("uuid", CHILD, "CUSTOM_A", CUSTOM_L=L))
    assert added(found, CHILD) == ({"CUSTOM_L": L}, {"CUSTOM_A", OWNER})
    assert added(found, ROOT) == ({}, set())
    assert found.configured == {
        CHILD: Configured(frozenset({"CUSTOM_L"}), frozenset({"CUSTOM_A", OWNER}))
    }
    assert (found.problems, found.found) == ([], {Key("uuid", CHILD)})


def test_a_trait_that_was_there_is_not_the_operator_s():
    tree = tree_with(["COMPUTE_NODE", "CUSTOM_A", OWNER])
    assert applied(DEFAULT, tree=tree).configured == {ROOT: Configured()}


def test_the_default_is_for_a_compute_node_alone():
    assert added(applied(DEFAULT), ROOT) == ({}, {"CUSTOM_A", OWNER})
    assert applied(DEFAULT, tree=tree_with(())).configured == {}


@pytest.mark.parametrize("own", [entry("uuid", ROOT, "CUSTOM_B"), entry("name", "c1", "CUSTOM_B")])
def test_an_entry_of_its_own_goes_before_the_default(own):
    assert added(applied(DEFAULT, own), ROOT) == ({}, {"CUSTOM_B", OWNER})


def test_a_name_that_looks_like_a_uuid_is_a_name():
    assert applied(entry("name", CHILD, "CUSTOM_A")).found == set()


def test_a_provider_by_name_and_by_uuid_gets_nothing_not_even_the_default():
    found = applied(
        DEFAULT, entry("uuid", ROOT, "CUSTOM_B", line=4), entry("name", "c1", "CUSTOM_C", line=7)
    )
    assert added(found, ROOT) == ({}, set())
    (problem,) = found.problems
    assert problem.message == (
        f"provider c1 ({ROOT}) has more than one entry: uuid {ROOT} (a.yaml:4:3) and name c1 "
        "(a.yaml:7:3)"
    )
    assert not problem.fatal


def test_a_class_of_the_node_is_a_conflict_and_nothing_of_the_entry_is_applied():
    found = applied(
        entry("name", "c1", "CUSTOM_A", VCPU=L, CUSTOM_L=L), entry("name", "gpu", "CUSTOM_G")
    )
    assert added(found, ROOT) == ({}, set())
    assert found.tree.provider(ROOT).inventory == {"VCPU": VCPU}
    assert added(found, CHILD) == ({}, {"CUSTOM_G", OWNER}), "another entry is applied all the same"
    assert [problem.message for problem in found.problems] == [
        (
            "name c1 (a.yaml:1:3): VCPU of provider c1 is what the node itself has, by its driver "
            "or its devices"
        )
    ]


def test_all_conflicts_of_a_provider_are_told():
    found = applied(entry("name", "c1", VCPU=L), entry("uuid", ROOT, VCPU=L))
    assert len(found.problems) == 3


def test_a_provider_of_somebody_else_gets_nothing():
    found = applied(entry("name", "gpu", "CUSTOM_A"), made={ROOT: frozenset()})
    assert added(found, CHILD) == ({}, set())
    assert [problem.data for problem in found.problems] == [{"provider": CHILD}]


def test_a_provider_that_is_gone_is_absent():
    found = applied(
        entry("name", "gpu", "CUSTOM_A"), made={ROOT: frozenset()}, gone=frozenset({CHILD})
    )
    assert (found.problems, found.found, found.configured) == ([], set(), {})


def test_what_was_given_before_stays_in_place_of_an_entry_with_a_conflict():
    last = {ROOT: Addition({"CUSTOM_L": L, "VCPU": {"total": 3}}, frozenset({"CUSTOM_OLD"}))}
    found = applied(entry("name", "c1", "CUSTOM_A", VCPU=L), last=last)
    assert added(found, ROOT) == ({"CUSTOM_L": L}, {"CUSTOM_OLD"})
    assert found.tree.provider(ROOT).inventory["VCPU"] == VCPU
    assert found.configured == {
        ROOT: Configured(frozenset({"CUSTOM_L"}), frozenset({"CUSTOM_OLD"}))
    }


def test_what_was_given_before_and_has_no_entry_any_more_goes():
    assert applied(last={ROOT: Addition({"CUSTOM_L": L})}).configured == {}
