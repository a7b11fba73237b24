"""Stores that former versions wrote, kept in tests/data as SQL: they open in this version, and
nothing that they hold is lost. A store of a newer version is refused.
"""

import sqlite3
from contextlib import closing

import pytest

from agent.store.schema import VERSION
from tests.functional.cli.setups import on
from tests.support.child import CHECKOUT
from tests.support.folder import all_of
from tests.support.system import AgentHere

# The schema's version, and the node's uuid.
KEPT = {
    "0001": "21e1a349-c298-4db6-b677-5b006b17932d",
    "0005": "97b7a4c1-9204-4732-8926-6655565ff584",
}
CLAIM = "0b5e5a30-6e0c-4a64-8f3e-6a8a3d8e1c11"
GUEST = "c0ffee00-0000-4000-8000-000000000001"


@pytest.fixture(params=KEPT)
def kept(request, http_placement, tmp_path):
    """An agent with the store of a former version: the version, the agent."""
    agent = AgentHere(tmp_path / "agent", on(http_placement, "fake.pci"))
    agent.store.mkdir()
    with closing(sqlite3.connect(agent.store / "database/store.sqlite")) as store:
        store.executescript((CHECKOUT / "tests/data" / f"store-{request.param}.sql").read_text())
    return request.param, agent


def rows(agent):
    """The rows of each table by column, without the table of the version."""
    with closing(sqlite3.connect(agent.store / "database/store.sqlite")) as store:
        store.row_factory = sqlite3.Row
        names = [
            name
            for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name != "compute_node_agent_schema"
        ]
        return {
            name: [dict(row) for row in store.execute(f"SELECT * FROM {name}")] for name in names
        }


def schema(agent):
    with closing(sqlite3.connect(agent.store / "database/store.sqlite")) as store:
        (found,) = store.execute("SELECT version_num FROM compute_node_agent_schema").fetchone()
        return found


def test_what_a_former_version_kept_is_there_after_the_upgrade(kept):
    version, agent = kept
    before = rows(agent)
    assert schema(agent) == version
    result = agent.run("db", "upgrade")
    assert (result.code, schema(agent)) == (0, VERSION), result
    after = rows(agent)
    for table in ("identity", "instance", "claim", "compute_node", "mirror_provider", "journal"):
        kept_rows = before.get(table, [])
        found = after[table]
        assert len(found) == len(kept_rows)
        for row, former in zip(found, kept_rows, strict=True):
            common = row.keys() & former.keys()
            assert {name: row[name] for name in common} == {name: former[name] for name in common}


def test_reading_upgrades_nothing(kept):
    version, agent = kept
    before = all_of(agent.store)
    (node,) = agent.run("tree", "--offline", "--format", "json").json["nodes"]
    assert (node["name"], node["uuid"]) == ("node-a", KEPT[version])
    assert agent.run("--once", "--dry-run").code == 0
    after = all_of(agent.store)
    assert {name: state[3] for name, state in after.items()} == {
        name: state[3] for name, state in before.items()
    }


def test_an_audit_goes_on_where_the_former_version_stopped(kept, http_placement):
    version, agent = kept
    result = agent.run("--once", "--format", "json")
    assert result.code == 0, result
    (node,) = result.json["nodes"]
    assert (node["uuid"], node["state"], schema(agent)) == (KEPT[version], "changed", VERSION)
    assert http_placement.other.tree(KEPT[version])[0]["name"] == "node-a"
    assert agent.run("--once", "--format", "json").json["nodes"][0]["state"] == "in-sync"
    claims = agent.run("claims", "--offline", "--format", "json").json["claims"]
    wanted = [] if version == "0001" else [(CLAIM, GUEST)]
    assert [(claim["id"], claim["instance"]) for claim in claims] == wanted
    assert node["usage"]["memory_mb_used"] == 512 + 2048 * len(claims)


@pytest.mark.parametrize("arguments", [("--once",), ("db", "upgrade"), ("claims", "--offline")])
def test_a_store_of_a_newer_version_is_refused_with_a_remedy(kept, arguments):
    _, agent = kept
    assert agent.run("db", "upgrade").code == 0
    with closing(sqlite3.connect(agent.store / "database/store.sqlite")) as store, store:
        store.execute("UPDATE compute_node_agent_schema SET version_num = '0999'")
    before = rows(agent)
    result = agent.run(*arguments)
    assert result.code == 1
    assert f"has schema 0999, made by a newer agent; this one knows {VERSION}" in result.stderr
    assert "install the newer agent again" in result.stderr
    assert (schema(agent), rows(agent)) == ("0999", before)
