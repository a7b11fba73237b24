"""A daemon with two thousand nodes."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from agent.model.provider_tree import ProviderTree
from agent.tree.desired_tree import agent_trait
from tests.functional.placement.conftest import Host
from tests.support.agent import IDENTITY, NAME, ROOT, AgentUnderTest, shaped, total
from tests.support.placement import PlacementServer
from tests.support.settled import clean

pytestmark = pytest.mark.long

NODES = 2000
HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
LIST = f"GET /resource_providers?required={agent_trait(IDENTITY)} -> 200"
OTHERS = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {NODES - 1})"
UUID, OTHER_NAME = "printf('00000000-0000-4000-8000-%012d', i)", f"'{NAME}-' || i"


def columns_of(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def multiply(database: sqlite3.Connection, table: str, **others: str) -> None:
    """Have every row of a table ``NODES`` times, with ``others`` in place of the columns that make
    a row the first node's.
    """
    columns = columns_of(database, table)
    values = ", ".join(others.get(column, column) for column in columns)
    database.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) {OTHERS} SELECT {values} FROM {table}, n"
    )


def in_placement(placement: PlacementServer) -> None:
    database = placement.snapshot()
    (first,) = database.execute("SELECT id FROM resource_providers").fetchone()
    multiply(
        database,
        "resource_providers",
        id=f"{first} + i",
        uuid=UUID,
        name=OTHER_NAME,
        root_provider_id=f"{first} + i",
    )
    multiply(database, "inventories", id="NULL", resource_provider_id=f"{first} + i")
    multiply(database, "resource_provider_traits", resource_provider_id=f"{first} + i")
    database.commit()
    placement.restore(database)
    database.close()


def in_store(agent: AgentUnderTest) -> None:
    (file,) = agent.folder.glob("database/*.sqlite*")
    with closing(sqlite3.connect(file)) as database, database:
        (root,) = database.execute("SELECT root FROM mirror").fetchone()
        named = f'replace(contents, \'"name":"{NAME}"\', \'"name":"\' || {OTHER_NAME} || \'"\')'
        multiply(database, "mirror", root=UUID, contents=f"replace({named}, '{root}', {UUID})")
        multiply(database, "journal", root=UUID, contents=f"replace(contents, '{root}', {UUID})")


@pytest.fixture
def two_thousand(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """As many nodes, all synchronised, by a process that is no more."""
    agent = host(shaped(HAS))
    assert agent.once().state == "changed"
    in_placement(placement)
    in_store(agent)
    agent.driver.managed = {
        ROOT: NAME,
        **{
            f"00000000-0000-4000-8000-{number:012}": f"{NAME}-{number}"
            for number in range(1, NODES)
        },
    }
    placement.clear()
    return agent


def test_a_period_of_two_thousand_nodes_costs_one_request(
    two_thousand: AgentUnderTest,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: set[int] = set()

    def counted(tree: ProviderTree, *args: Any) -> ProviderTree:
        sizes.add(len(tree))
        return copy(tree, *args)

    copy = ProviderTree.copy
    monkeypatch.setattr(ProviderTree, "copy", counted)
    before = placement.dump()
    for _ in ("the first of the process", "another"):
        report = two_thousand.period(start=True)
        assert (len(report.nodes), {one.state for one in report.nodes}) == (NODES, {"in-sync"})
        assert placement.lines() == [LIST]
        clean(placement, agent_log)
        placement.clear()
    # Nobody ever copies more than one node's tree.
    assert sizes == {1}
    assert placement.dump() == before
