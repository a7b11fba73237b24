"""As test_convergence.py, with real processes, real kills and a network that fails in between."""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.functional.random_trees import ODD, OUR_AGGREGATES, OUR_CLASSES, OUR_TRAITS, Tree, Wanted
from tests.support import faults
from tests.support.agent import total
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config
from tests.support.proxy import FaultProxy
from tests.support.system import AgentCommand

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("CONVERGENCE_KILLS", "4"))
NODE = "node-a"
FAULTS = [
    faults.cut(),
    faults.cut(applied=True),
    faults.answer(503),
    faults.answer(503, applied=True),
    faults.html(502),
    faults.delay(0.2),
]


def host_file(tree: Tree) -> str:
    """The tree as a host file; JSON is YAML."""
    providers = []
    for one in tree:
        above = {"parent": one.parent} if one.parent else {}
        contents = {
            "inventories": one.inventory,
            "traits": sorted(one.traits),
            "aggregates": sorted(one.aggregates),
        }
        providers.append({"name": one.name, **above, **contents})
    return json.dumps({"providers": providers})


def any_tree(dice: random.Random) -> Tree:
    """A root and four to six children, without the name that means something in a host file."""
    names = dice.sample([name for name in ODD if "$" not in name], dice.randint(4, 6))
    tree = [Wanted(NODE, None, {"VCPU": total(dice.randint(2, 64))})]
    for name in names:
        inventory = {
            one: total(dice.randint(2, 64)) for one in dice.sample(OUR_CLASSES, dice.randint(0, 2))
        }
        traits = frozenset(dice.sample(OUR_TRAITS, dice.randint(0, 2)))
        parents = [one.name for one in tree][-3:]
        tree.append(
            Wanted(
                name,
                dice.choice(parents),
                inventory,
                traits,
                frozenset(dice.sample(OUR_AGGREGATES, dice.randint(0, 1))),
            )
        )
    return tuple(tree)


def killed_at(command: AgentCommand, seconds: float) -> None:
    """Start a run and kill it; it may have come to its end before."""
    with command.started("--once") as process:
        time.sleep(seconds)
        process.kill()
        process.communicate()


def assert_settles(command: AgentCommand) -> None:
    """Run until nothing goes wrong any more: what the killed agent had sent may still lock
    Placement's SQLite file.
    """
    for _ in range(5):
        result = command.run("--once")
        if result.code == 0:
            return
    raise AssertionError(str(result))


def own(state: Any, tree: Tree) -> dict[str, Any]:
    """What Placement has of the tree, by name."""
    names = {one.name for one in tree}
    uuids = {uuid: one["name"] for uuid, one in state["providers"].items()}
    return {
        one["name"]: (
            uuids.get(one["parent"]),
            one["inventories"],
            set(one["traits"]) - {"COMPUTE_NODE", "OWNER_NOVA"},
            set(one["aggregates"]),
        )
        for one in state["providers"].values()
        if one["name"] in names
    }


@pytest.mark.timeout(0 if EXAMPLES > 15 else 900)
def test_a_killed_agent_ends_where_an_undisturbed_one_would(
    http_placement: HttpPlacement, proxy: FaultProxy, tmp_path: Path
) -> None:
    killed = 0
    for number in range(EXAMPLES):
        dice = random.Random(number)
        http_placement.reset()
        proxy.faults.clear()
        other = http_placement.other
        file = tmp_path / f"host-{number}.yaml"
        config: Config = {
            "DEFAULT": {"compute_driver": "fake.file", "host": NODE},
            "fake": {"host_file": file},
            "placement": {**http_placement.credentials(proxy.url), "read_timeout": "5"},
        }
        command = AgentCommand(tmp_path / f"agent-{number}", config)
        theirs = None
        for tree in (any_tree(dice), any_tree(dice)):
            file.write_text(host_file(tree))
            proxy.faults.add(FAULTS, probability=0.1, times=None, seed=number)
            for _ in range(2):
                killed_at(command, dice.uniform(0.3, 1.0))
                killed += 1
            proxy.faults.clear()
            assert_settles(command)
            mark = {"CUSTOM_COMPUTE_NODE_AGENT_NODE_A"}
            wanted = {
                one.name: (
                    one.parent,
                    dict(one.inventory),
                    one.traits | (mark if one.parent is None else set()),
                    set(one.aggregates),
                )
                for one in tree
            }
            assert own(http_placement.dump(), tree) == wanted
            if theirs is None:
                root = next(
                    uuid
                    for uuid, one in http_placement.dump()["providers"].items()
                    if one["name"] == NODE
                )
                theirs = other.create_provider("theirs", parent=root)
                other.set_inventory(theirs, {"CUSTOM_THEIR_CLASS": 4})
                other.claim({theirs: {"CUSTOM_THEIR_CLASS": 1}})
                before = http_placement.dump()["providers"][theirs]
        assert {**http_placement.dump()["providers"][theirs], "parent": None} == {
            **before,
            "parent": None,
        }
    assert killed == 4 * EXAMPLES
