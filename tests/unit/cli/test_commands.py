import json

import pytest

from agent.cli.main import run
from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.provider_tree import ProviderTree
from agent.store.store import open_store
from tests.unit.render.reports import CELL, ROOT, tree


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def agent(folder, tmp_path, capsys):
    def call(*argv):
        code = run(
            [
                *argv,
                "--store-path",
                str(folder),
                "--state_path",
                str(tmp_path / "nova"),
                "--host",
                "node-1",
            ]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def filled(folder):
    with open_store(folder) as store:
        store.save_view("http://placement", ROOT, None, PlacementView(tree().freeze()))
        store.save_journal(ROOT, Journal({ROOT: Ownership(), CELL: Ownership()}))
    return folder


def test_trees_are_sorted_by_the_names_of_their_nodes(agent, filled):
    with open_store(filled) as store:
        for number, name in enumerate(("node-3", "node-0", "node-2")):
            uuid, other = f"5f9c2a34-7d1e-4a8b-9c46-00000000010{number}", ProviderTree()
            other.new_root(name, uuid)
            store.save_view("http://placement", uuid, None, PlacementView(other.freeze()))
    code, out, _ = agent("tree", "--format", "json")
    assert code == 0
    assert [node["name"] for node in json.loads(out)["nodes"]] == [
        "node-0",
        "node-1",
        "node-2",
        "node-3",
    ]
