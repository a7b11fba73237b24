"""Hosts on a store in SQLite, and some in PostgreSQL too."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.store.store import open_store
from tests.support.tracking import Host, World

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL


# What these hold depends on who writes first, on leases, or on queries of their own. The rules that
# the others hold are the same on every database; tests/unit/store holds what is stored against
# both.
ON_BOTH = frozenset(
    {
        "test_claim_crashes",
        "test_deliveries",
        "test_evacuation",
        "test_idle_counts",
        "test_instance_claims",
        "test_listed_nodes",
        "test_lost_leases",
        "test_moves",
        "test_node_records",
        "test_own_stores",
        "test_races",
        "test_records_end",
        "test_shared_lease",
        "test_slow_fits",
        "test_waiting_claims",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make tests on the databases that they are about."""
    if "world" in metafunc.fixturenames:
        both = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH
        others = [pytest.param("postgresql", marks=pytest.mark.long)] if both else []
        metafunc.parametrize("world", ["sqlite", *others], indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store of records that all hosts share."""
    if request.param == "sqlite":
        with open_store(tmp_path / "state") as store:
            yield World(store)
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    database = server.create()
    with open_store(tmp_path / "state", server.url(database)) as store:
        yield World(store)
    server.drop(database)


@pytest.fixture
def ha(world: World) -> Host:
    """The plain host HA."""
    return world.plain("HA")


@pytest.fixture
def hb(world: World) -> Host:
    """The plain host HB."""
    return world.plain("HB")


@pytest.fixture
def hn(world: World) -> Host:
    """The host HN, of two cells."""
    return world.numa()
