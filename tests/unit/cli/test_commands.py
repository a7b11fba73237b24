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


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_tree_shows_what_the_store_knows_and_writes_nothing(agent, filled):
    before = contents(filled / "database")
    code, out, _ = agent("tree")
    assert code == 0
    assert out.startswith("node-1 as last seen at http://placement\n")
    assert "├─ node-1_NUMA0" in out
    assert "accelerator  foreign" in out
    assert contents(filled / "database") == before


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


def test_tree_as_json(agent, filled):
    code, out, _ = agent("tree", "--offline", "--format", "json")
    document = json.loads(out)
    assert (code, document["exit_code"], document["errors"]) == (0, 0, [])
    (node,) = document["nodes"]
    assert (node["name"], node["uuid"], node["endpoint"]) == ("node-1", ROOT, "http://placement")
    assert [(row["name"], row["owned"]) for row in node["tree"]] == [
        ("node-1", True),
        ("node-1_NUMA0", True),
        ("accelerator", False),
    ]


@pytest.mark.parametrize("wanted", ["node-1", "node-*", ROOT])
def test_tree_of_named_nodes(agent, filled, wanted):
    assert agent("tree", "--node", wanted)[0] == 0


def test_tree_of_an_unknown_node_names_those_that_are_known(agent, filled):
    code, out, err = agent("tree", "--node", "other")
    assert (code, out) == (1, "")
    assert "--node other" in err
    assert "it has node-1" in err


def test_tree_of_an_empty_store_says_what_to_do_and_makes_no_store(agent, folder):
    code, _, err = agent("tree")
    assert code == 1
    assert "agent --once" in err
    assert not folder.exists()


def test_identity_that_is_not_there_yet(agent, folder):
    code, out, err = agent("identity", "show")
    assert (code, out) == (1, "")
    assert "agent --once makes one" in err
    assert not folder.exists()


def test_the_first_line_of_the_identity_is_the_uuid(agent, folder):
    folder.mkdir()
    (folder / "compute_id").write_text(f"{ROOT}\n")
    shown = f"{ROOT}\nthe agent's store: {folder / 'compute_id'}\n"
    assert agent("identity", "show") == (0, shown, "")


def test_identity_of_nova_is_found(agent, tmp_path):
    (tmp_path / "nova").mkdir()
    (tmp_path / "nova" / "compute_id").write_text(f"{ROOT}\n")
    code, out, _ = agent("identity", "show", "--format", "json")
    assert code == 0
    assert json.loads(out) == {
        "schema": "compute-node-agent/identity/1",
        "host": "node-1",
        "uuid": ROOT,
        "source": "nova",
        "place": str(tmp_path / "nova" / "compute_id"),
        "errors": [],
        "exit_code": 0,
    }


def test_a_damaged_identity_is_an_error(agent, folder):
    folder.mkdir()
    (folder / "compute_id").write_text("not a uuid\n")
    code, _, err = agent("identity", "show")
    assert code == 1
    assert "compute_id" in err


def test_db_upgrade_makes_the_store(agent, folder):
    code, out, _ = agent("db", "upgrade")
    assert code == 0
    assert str(folder / "database/store.sqlite") in out
    assert (folder / "database/store.sqlite").exists()
    code, out, _ = agent("db", "upgrade", "--format", "json")
    assert code == 0
    assert json.loads(out)["store"] == str(folder / "database/store.sqlite")


def test_config_check_of_the_defaults(agent, folder):
    code, out, _ = agent("config", "check")
    assert code == 0
    assert "nothing wrong" in out
    assert not folder.exists()


def test_config_check_names_the_files(agent, tmp_path):
    file = tmp_path / "x.conf"
    file.write_text("[DEFAULT]\n")
    assert str(file) in agent("config", "check", "--config-file", str(file))[1]
    assert json.loads(agent("config", "check", "--config-file", str(file), "--format", "json")[1])[
        "files"
    ] == [str(file)]


def test_config_check_finds_what_is_wrong_between_options(agent):
    code, out, err = agent(
        "config",
        "check",
        "--compute_driver",
        "no-such",
        "--compute-cpu_shared_set",
        "1-x",
        "--compute-cpu_dedicated_set",
        "9-1",
        "--store-connection",
        "nonsense",
        "--placement-auth_type",
        "password",
        "--reserved_huge_pages",
        "node:0",
        "--reserved_huge_pages",
        "size:4",
        "--neutron-physnets",
        "red",
        "--compute-monitors",
        "cpu,cqu",
    )
    assert (code, out) == (1, "")
    for wrong in (
        "no-such",
        "cpu_shared_set",
        "cpu_dedicated_set",
        "[store] connection",
        "[placement]",
        "reserved_huge_pages = node:0",
        "reserved_huge_pages = size:4",
        "[neutron_physnet_red] numa_nodes",
        "cqu: no such monitor",
    ):
        assert wrong in err
    assert err.count("✗") == 9
