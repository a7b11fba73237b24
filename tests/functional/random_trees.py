"""Random trees that a driver wants, and random things that others put in between."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from agent.model.provider_tree import ProviderTree
from tests.support.agent import NAME, total

OUR_CLASSES = ("VCPU", "MEMORY_MB", "SRIOV_NET_VF", "CUSTOM_A", "CUSTOM_B")
OUR_TRAITS = ("HW_NUMA_ROOT", "HW_CPU_X86_AVX2", "CUSTOM_T1", "CUSTOM_T2")
OUR_AGGREGATES = tuple(f"aaaaaaaa-0000-4000-8000-00000000000{n}" for n in range(3))
THEIR_TRAITS = ("CUSTOM_THEIRS", "STORAGE_DISK_SSD")
THEIR_AGGREGATE = "bbbbbbbb-0000-4000-8000-000000000001"
# What hosts, devices and people are called: with everything that means something in a URL, a query
# or a shell.
ODD = ("rack 7", "a&b=c", "a#b", "50%", "c+d", "x/y", "Ünï", "名前", "?q", "'\"", "$NODE")


@dataclass(frozen=True)
class Wanted:
    """One provider that a driver wants; ``parent`` is another one's name, None for the
    root itself.
    """

    name: str
    parent: str | None
    inventory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


Tree = tuple[Wanted, ...]


def shape_of(tree: Tree) -> Any:
    """The tree as the shape of a scripted driver."""

    def shape(target: ProviderTree) -> None:
        for one in tree:
            if one.parent is not None and not target.exists(one.name):
                target.new_child(one.name, one.parent)
            elif (
                one.parent is not None
                and target.provider(one.name).parent_uuid != target.provider(one.parent).uuid
            ):
                target.reparent(one.name, one.parent)
            target.update_inventory(one.name, one.inventory)
            target.add_traits(one.name, *one.traits)
            target.add_aggregates(one.name, *one.aggregates)

    return shape


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A root and up to seven children, up to four deep, their names out of a small pool so that two
    trees share some.
    """
    names = draw(st.lists(st.sampled_from(ODD), max_size=7, unique=True))
    depth, tree = {NAME: 0}, [_wanted(draw, NAME, None)]
    for name in names:
        parent = draw(st.sampled_from([one for one, deep in depth.items() if deep < 4]))
        depth[name] = depth[parent] + 1
        tree.append(_wanted(draw, name, parent))
    return tuple(tree)


def _wanted(draw: st.DrawFn, name: str, parent: str | None) -> Wanted:
    classes = draw(st.lists(st.sampled_from(OUR_CLASSES), max_size=3, unique=True))
    inventory = {
        one: total(draw(st.integers(2, 64)), allocation_ratio=draw(st.sampled_from((1.0, 4.0))))
        for one in classes
    }
    traits = draw(st.frozensets(st.sampled_from(OUR_TRAITS), max_size=3))
    return Wanted(
        name,
        parent,
        inventory,
        traits,
        draw(st.frozensets(st.sampled_from(OUR_AGGREGATES), max_size=2)),
    )


@dataclass(frozen=True)
class Meddling:
    """What others put into a tree: by index of the provider, wrapped around if the tree
    is smaller.
    """

    children: tuple[int, ...]
    traits: tuple[tuple[int, str], ...]
    aggregates: tuple[int, ...]
    consumers: tuple[int, ...]


def meddlings() -> st.SearchStrategy[Meddling]:
    """A few of each."""
    places = st.integers(0, 7)
    return st.builds(
        Meddling,
        children=st.lists(places, max_size=2).map(tuple),
        traits=st.lists(st.tuples(places, st.sampled_from(THEIR_TRAITS)), max_size=2).map(tuple),
        aggregates=st.lists(places, max_size=1).map(tuple),
        consumers=st.lists(places, max_size=2).map(tuple),
    )
