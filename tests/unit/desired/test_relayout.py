import pytest

from agent.desired.policy import Policy
from agent.desired.relayout import check_relayout
from agent.desired.wish import Findings, desired_tree
from agent.errors import ReshapeFailed, ReshapeNeeded
from agent.model.journal import Journal
from agent.model.provider_tree import ProviderTree
from agent.numa.host_policy import HostPolicy
from tests.unit.desired.nodes import FACTS, NAME, ROOT, amount, root_only

CELL = f"{NAME}_NUMA0"
GUEST = "c0000000-0000-4000-8000-000000000001"


def tree(root=0, cell=0):
    made = root_only()
    made.update_inventory(ROOT, {"PCPU": amount(root)} if root else {})
    made.new_child(CELL, ROOT)
    made.update_inventory(CELL, {"PCPU": amount(cell)} if cell else {})
    return made


def using(place, resource_class="PCPU"):
    uuid = tree().data(place).uuid
    return {GUEST: {"allocations": {uuid: {"resources": {resource_class: 2}}}}}


MOVES = [(tree(root=4), tree(cell=4)), (tree(cell=4), tree(root=4))]


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_move_between_root_and_cells_needs_a_reshape(before, after):
    with pytest.raises(ReshapeNeeded, match="PCPU of node-a moves"):
        check_relayout(after, before, ROOT, None)
    check_relayout(after, before, ROOT, {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tree(), tree(cell=4)),
        (tree(root=4), tree()),
        (tree(root=4), tree(root=8)),
        (tree(cell=4), tree(cell=2)),
        (ProviderTree(), tree(cell=4)),
    ],
)
def test_what_comes_goes_or_grows_in_its_place_does_not_move(before, after):
    check_relayout(after, before, ROOT, None)


@pytest.mark.parametrize(("index", "place"), [(0, ROOT), (1, CELL)])
def test_dedicated_cpus_of_guests_do_not_move(index, place):
    before, after = MOVES[index]
    with pytest.raises(ReshapeFailed, match=f"1 consumers use it, the first {GUEST}") as refused:
        check_relayout(after, before, ROOT, using(place))
    assert "tree_layout" in refused.value.remedy


def test_who_uses_something_else_or_elsewhere_is_not_in_the_way():
    before, after = MOVES[0]
    check_relayout(after, before, ROOT, using(ROOT, "VCPU"))
    check_relayout(after, before, ROOT, using(CELL))


@pytest.mark.parametrize("adopted", [True, False])
def test_a_tree_that_is_not_adopted_keeps_what_it_has(adopted):
    policy = Policy(HostPolicy(dedicated=frozenset({1, 4})), layout="nested")

    def wish():
        return desired_tree(root_only(), tree(root=2), ROOT, Findings(FACTS, {}), policy, Journal(adopted=adopted), "agent")

    if adopted:
        with pytest.raises(ReshapeNeeded):
            wish()
    else:
        assert wish().has_inventory(CELL)
