"""Whatever operators, drivers and others do in turn: each has in Placement what it said last, and a
second pass changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.inventory import DEFAULTS, completed
from agent.model.mirror import Journal, PlacementView, ServerCapabilities
from agent.model.provider_tree import ProviderTree
from agent.placement.merge import Merge
from agent.placement.ownership import MergeInputs, foreign_share
from agent.placement.plan import make_plan
from agent.provider_config.applying import COMPUTE_NODE, Entry, Key, ProviderConfig
from agent.tree.desired_tree import put_operators_files
from agent.yaml_files import TextPosition

NODE, CHILD = "node-a", "node-a_gpu"
ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
OWNER, MARK = "OWNER_NOVA", "COMPUTE_NODE"
KNOWLEDGE = ServerCapabilities("http://placement", "1.39")

Records = Mapping[str, int]


@dataclass
class Host:
    """What each of the three says now, by provider name. ``shape``: how the driver goes about it;
    ``given``: what is there of the files.
    """

    shape: Callable[["Host", ProviderTree], None]
    driver: dict[str, Records] = field(default_factory=lambda: {NODE: {"VCPU": 1}})
    files: dict[Key, tuple[Records, frozenset[str]]] = field(default_factory=dict)
    others: dict[str, set[str]] = field(default_factory=dict)
    given: dict[str, tuple[Records, frozenset[str]]] = field(default_factory=dict)
    view: PlacementView = field(default_factory=PlacementView)
    journal: Journal = field(default_factory=Journal)

    @property
    def whole(self) -> bool:
        return self.shape is not Host.outright

    def outright(self, tree: ProviderTree) -> None:
        """A driver that starts from what is not the agent's."""
        for name, records in self.driver.items():
            if not tree.exists(name):
                tree.new_child(name, NODE)
            tree.update_inventory(name, {**tree.provider(name).inventory, **full(records)})

    def anew(self, tree: ProviderTree) -> None:
        """A driver that writes all inventories as they should be, and removes what it
        has no more.
        """
        self.removed(tree)
        for name, records in self.driver.items():
            tree.update_inventory(name, full(records))

    def over_what_is_there(self, tree: ProviderTree) -> None:
        """A driver that takes away what may be its own, and puts its own over the rest."""
        self.removed(tree)
        for name, records in self.driver.items():
            kept = {
                one: record
                for one, record in tree.data(name).inventory.items()
                if one not in DRIVERS or record["total"] > MOST
            }
            tree.update_inventory(name, {**kept, **full(records)})

    def removed(self, tree: ProviderTree) -> None:
        for name in {NODE, CHILD} - self.driver.keys():
            if tree.exists(name):
                tree.remove(name)
        for name in self.driver:
            if not tree.exists(name):
                tree.new_child(name, NODE)

    def one_pass(self) -> tuple[int, int]:
        """How many operations it takes, and how many entries do not fit."""
        there = self.view.tree.exists(ROOT)
        base = (
            self.view.tree.scoped(ROOT)
            if self.whole and there
            else foreign_share(self.view, self.journal, ROOT, NODE)
        )
        desired = base.copy()
        self.shape(self, desired)
        desired.add_traits(ROOT, MARK, OWNER)
        by = MergeInputs.of(self.view, self.journal, base, desired, ROOT)
        entries = tuple(
            Entry(
                key,
                "a.yaml",
                TextPosition(),
                {name: completed({"total": total}) for name, total in records.items()},
                traits,
            )
            for key, (records, traits) in self.files.items()
        )
        applied = put_operators_files(ProviderConfig(entries=entries), by, OWNER)
        target = Merge(
            replace(by, desired=applied.tree), KNOWLEDGE, {}, applied.configured
        ).target()
        plan = make_plan(self.view, target, KNOWLEDGE, ROOT)
        self.view, self.journal = PlacementView(target.tree), target.journal
        changes = [one for one in plan.operations if not one.op.startswith("ensure-")]
        return len(changes), len(applied.problems)

    def somebody_adds(self, name: str, trait: str) -> None:
        if self.view.tree.exists(name):
            tree = self.view.tree.copy()
            tree.add_traits(name, trait)
            tree.update_inventory(
                name,
                {**tree.provider(name).inventory, f"CUSTOM_OF_{trait}": {**DEFAULTS, "total": 1}},
            )
            self.view = PlacementView(tree.freeze())
            self.others.setdefault(name, set()).add(trait)

    def entries_of(self, name: str) -> list[tuple[Records, frozenset[str]]]:
        uuid = self.view.tree.provider(name).uuid
        own = [said for key, said in self.files.items() if key.value in (name, uuid)]
        return own or [said for key, said in self.files.items() if key.is_default and name == NODE]


MOST = 5
DRIVERS = ("VCPU", "CUSTOM_D", "CUSTOM_SHARED")
FILES = ("CUSTOM_C", "CUSTOM_L", "CUSTOM_SHARED")


def full(records: Records) -> dict[str, Any]:
    return {name: {**DEFAULTS, "total": total} for name, total in records.items()}


def records(names: tuple[str, ...], least: int) -> st.SearchStrategy[Records]:
    return st.dictionaries(st.sampled_from(names), st.integers(least + 1, least + MOST), max_size=3)


keys = st.sampled_from(
    [
        Key("name", NODE),
        Key("name", CHILD),
        Key("uuid", ROOT),
        Key("uuid", COMPUTE_NODE),
        Key("name", "nowhere"),
    ]
)
said = st.tuples(records(FILES, 10), st.frozensets(st.sampled_from(["CUSTOM_T", "CUSTOM_U"])))
steps = st.one_of(
    st.tuples(st.just("files"), st.dictionaries(keys, said, max_size=3)),
    st.tuples(
        st.just("driver"),
        st.fixed_dictionaries({NODE: records(DRIVERS, 0)}, optional={CHILD: records(DRIVERS, 0)}),
    ),
    st.tuples(
        st.just("others"),
        st.tuples(st.sampled_from([NODE, CHILD]), st.sampled_from(["CUSTOM_X", "CUSTOM_Y"])),
    ),
)


@settings(deadline=None)
@given(
    st.sampled_from([Host.outright, Host.anew, Host.over_what_is_there]),
    st.lists(steps, max_size=6),
)
def test_each_has_what_it_said_last(shape: Any, script: list[tuple[str, Any]]) -> None:
    host = Host(shape)
    host.one_pass()
    for who, what in script:
        if who == "others":
            host.somebody_adds(*what)
        else:
            setattr(host, who, what)
        _, misfits = host.one_pass()
        assert host.one_pass() == (0, misfits), "a second pass finds nothing to do"
        check(host, misfits)


def check(host: Host, misfits: int) -> None:
    tree = host.view.tree
    host.others, host.given = (
        {name: one for name, one in each.items() if name in host.driver}
        for each in (host.others, host.given)
    )
    assert {one.name for one in tree.providers()} == {NODE, *host.driver}
    conflicts = 0
    for name, own in host.driver.items():
        one, entries, theirs = (
            tree.provider(name),
            host.entries_of(name),
            host.others.get(name, set()),
        )
        clash = len(entries) > 1 or any(records.keys() & own.keys() for records, _ in entries)
        conflicts += clash
        if clash:
            # What an earlier configuration gave stays, but for what is the driver's now.
            before, marks = host.given.get(name, ({}, frozenset()))
            host.given[name] = (
                {each: total for each, total in before.items() if each not in own},
                marks,
            )
        else:
            host.given[name] = next(
                ((records, traits | {OWNER}) for records, traits in entries), ({}, frozenset())
            )
        records, traits = host.given[name]
        totals = {each: record["total"] for each, record in one.inventory.items()}
        assert totals == {**own, **records, **{f"CUSTOM_OF_{trait}": 1 for trait in theirs}}
        assert one.traits == theirs | traits | ({MARK, OWNER} if name == NODE else set())
    assert bool(conflicts) == bool(misfits)
