"""From any tree to any other, whatever goes wrong on the way, and nothing of others is touched."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.model.names import child_role, child_uuid
from agent.placement import exchange
from tests.functional.random_trees import (
    THEIR_AGGREGATE,
    Meddling,
    Tree,
    meddlings,
    shape_of,
    trees,
)
from tests.support import backends
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.crashes import KINDS, Disturbance, disturbances, disturbed

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("CONVERGENCE_EXAMPLES", "30"))
# Shrinking takes minutes, which CI has not: set this to see the smallest example that fails.
SHRINK = (Phase.shrink,) if os.environ.get("CONVERGENCE_SHRINK") else ()
# What the agent itself puts on every root.
AGENTS_OWN = {
    "COMPUTE_NODE",
    "OWNER_NOVA",
    "CUSTOM_COMPUTE_NODE_AGENT_0E1D2C3B_4A59_4687_8796_000000000009",
}


def uuid_of(name: str) -> str:
    return ROOT if name == NAME else child_uuid(ROOT, child_role(name, NAME))


@pytest.fixture(scope="module")
def placement() -> Iterator[Any]:
    """One Placement for all examples, emptied before each."""
    backends.require("placement.deploy")
    from tests.support.placement import PlacementServer

    server = PlacementServer()
    yield server
    server.close()


@pytest.fixture(autouse=True, scope="module")
def _short_waits() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(exchange, "LEAST_WAIT", 0.0)
    patch.setattr(exchange, "LONGEST_WAIT", 0.0)
    yield
    patch.undo()


@contextmanager
def host(placement: Any) -> Iterator[AgentUnderTest]:
    folder = Path(tempfile.mkdtemp(prefix="convergence-"))
    agent = AgentUnderTest(placement, folder / "store", ScriptedDriver())
    try:
        yield agent
    finally:
        agent.stop()
        shutil.rmtree(folder)


class Others:
    """What others have in the tree, as they left it."""

    def __init__(self, placement: Any, tree: Tree, meddling: Meddling) -> None:
        self.placement, other = placement, placement.other
        self.children: list[str] = []
        self.traits: dict[str, set[str]] = {}
        self.aggregates: dict[str, set[str]] = {}
        self.consumers: list[str] = []
        ours = [uuid_of(one.name) for one in tree]
        for number, place in enumerate(meddling.children):
            child = other.create_provider(f"theirs {number}", parent=ours[place % len(ours)])
            other.set_inventory(child, {"CUSTOM_THEIR_CLASS": 4})
            other.set_traits(child, ["CUSTOM_THEIRS"])
            self.children.append(child)
            self.consumers.append(other.claim({child: {"CUSTOM_THEIR_CLASS": 1}}))
        for place, trait in meddling.traits:
            uuid = ours[place % len(ours)]
            other.set_traits(uuid, other.traits(uuid) | {trait})
            self.traits.setdefault(uuid, set()).add(trait)
        for place in meddling.aggregates:
            uuid = ours[place % len(ours)]
            other.set_aggregates(uuid, other.aggregates(uuid) | {THEIR_AGGREGATE})
            self.aggregates.setdefault(uuid, set()).add(THEIR_AGGREGATE)
        stocked = [(uuid_of(one.name), name) for one in tree for name in one.inventory]
        self.on_ours = [
            other.claim({uuid: {name: 1}})
            for place in meddling.consumers
            if stocked
            for uuid, name in [stocked[place % len(stocked)]]
        ]
        self.consumers += self.on_ours
        self.before = self.state()

    def state(self) -> Any:
        """Their providers, and all that any consumer holds."""
        dump = self.placement.dump()
        providers = {
            uuid: {**dump["providers"][uuid], "generation": None} for uuid in self.children
        }
        return providers, {uuid: dump["consumers"][uuid] for uuid in self.consumers}

    def release(self) -> None:
        """Let go of everything on the agent's own providers."""
        for consumer in self.on_ours:
            self.placement.other.release(consumer)
            self.consumers.remove(consumer)


def kept_for(dump: Any, others: Others) -> set[str]:
    """The providers that stay because somebody else's hang from them, or somebody else has put
    something on them. A standard trait goes with what it describes.
    """
    custom = (
        uuid
        for uuid, traits in others.traits.items()
        if any(trait.startswith("CUSTOM_") for trait in traits)
    )
    kept = {*custom, *others.aggregates}
    for child in (*others.children, *kept):
        above = dump["providers"][child]["parent"]
        while above is not None:
            kept.add(above)
            above = dump["providers"][above]["parent"]
    return kept


def assert_is(placement: Any, tree: Tree, others: Others) -> None:
    """Placement holds the tree, what is somebody else's, what that hangs from, and nothing more."""
    dump = placement.dump()
    wanted = {uuid_of(one.name): one for one in tree}
    kept = kept_for(dump, others)
    assert set(dump["providers"]) == {*wanted, *others.children, *kept}
    for uuid in kept - wanted.keys():
        there = dump["providers"][uuid]
        assert there["inventories"] == {}
        assert set(there["traits"]) == others.traits.get(uuid, set())
        assert set(there["aggregates"]) == others.aggregates.get(uuid, set())
    for uuid, one in wanted.items():
        there = dump["providers"][uuid]
        assert there["name"] == one.name
        assert there["parent"] == (None if one.parent is None else uuid_of(one.parent))
        assert there["inventories"] == dict(one.inventory)
        assert set(there["traits"]) == one.traits | others.traits.get(uuid, set()) | (
            AGENTS_OWN if uuid == ROOT else set()
        )
        assert set(there["aggregates"]) == one.aggregates | others.aggregates.get(uuid, set())


def survives(others: Others, tree: Tree, placement: Any) -> None:
    """Forget the standard traits that others had put on a provider of ours that goes away."""
    stays = {uuid_of(one.name) for one in tree} | kept_for(placement.dump(), others)
    others.traits = {uuid: traits for uuid, traits in others.traits.items() if uuid in stays}


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, *SHRINK),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    first=trees(),
    second=trees(),
    meddling=meddlings(),
    disturbing=st.lists(disturbances(), min_size=1, max_size=4),
)
def converges(
    placement: Any,
    hits: Counter[str],
    first: Tree,
    second: Tree,
    meddling: Meddling,
    disturbing: list[Disturbance],
) -> None:
    placement.reset()
    with host(placement) as agent:
        agent.driver.script = shape_of(first)
        # Each kind in its turn, early enough that every run comes to it: dice alone would leave
        # some out.
        kind = KINDS[hits.total() % len(KINDS)]
        with disturbed(placement, Disturbance(kind, disturbing[0].at % 3), hits):
            agent.report()
        assert [agent.once().state for _ in range(3)][-1] == "in-sync"
        others = Others(placement, first, meddling)
        agent.driver.script = shape_of(second)
        for disturbance in disturbing[1:]:
            with disturbed(placement, disturbance, hits):
                agent.report()
            assert others.state() == others.before
        survives(others, second, placement)
        states = [agent.once().state for _ in range(3)]
        assert others.state() == others.before
        others.release()
        states += [agent.once().state for _ in range(2)]
        assert states[-1] == "in-sync", states
        assert_is(placement, second, others)
        placement.clear()
        assert agent.once().outcomes == ()
        assert not placement.writes()


@pytest.mark.timeout(1200 if EXAMPLES <= 100 else 0)
def test_any_tree_becomes_any_other_whatever_goes_wrong(placement: Any) -> None:
    hits: Counter[str] = Counter()
    converges(placement, hits)
    never = [kind for kind in KINDS if not hits[kind]]
    assert EXAMPLES < 100 or not never, "these were never met, so nothing is known of them"
