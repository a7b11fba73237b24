"""A store on a database server: what can go wrong with the server, and what hosts that share it
must not do to each other.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, make_url

from agent import deadline
from agent.errors import StoreError
from agent.model.mirror import ServerCapabilities
from agent.store import tables
from agent.store.engines import Location
from agent.store.store import Store, open_read_only, open_store
from agent.store.tables import VERSIONS
from tests.support.service_manager import until
from tests.support.store_place import Place
from tests.unit.store.trees import ENDPOINT, ROOT, contents, node_view

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL

SECRET = "horse&battery"
OPENINGS = [open_store, open_read_only]


@pytest.fixture
def place(postgresql_place: Place) -> Place:
    return postgresql_place


def _refusals(folder: Path, url: str) -> list[StoreError]:
    """How both ways of opening refuse, without a word of the password."""
    errors = []
    for opening in OPENINGS:
        with pytest.raises(StoreError) as refused:
            opening(folder, url)
        error = refused.value
        assert error.message.startswith("[store] connection")
        assert "\n" not in str(error)
        assert error.remedy
        assert SECRET not in str(error)
        assert SECRET not in repr(error.data)
        errors.append(error)
    return errors


def test_a_server_that_does_not_answer_is_named_and_the_password_is_not(folder: Path) -> None:
    for error in _refusals(
        folder,
        f"postgresql://agent:horse%26battery@127.0.0.1:1/records?password={SECRET.replace('&', '%26')}",
    ):
        assert "postgresql+psycopg://agent:***@127.0.0.1:1/records" in error.message
        assert "Connection refused" in error.message
        assert "check that the database server runs" in error.remedy


def test_without_its_driver_in_python_it_is_said_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for error in _refusals(
        folder, f"postgresql://agent:{SECRET.replace('&', '%26')}@server/records"
    ):
        assert f"{sys.executable} -m pip install 'psycopg" in error.remedy


def test_a_wrong_password_is_refused(postgresql: "PostgreSQL", place: Place) -> None:
    from tests.support.postgresql import ASKED, PASSWORD

    url = make_url(place.url or "").set(username=ASKED)
    for error in _refusals(
        place.folder, url.set(password=SECRET).render_as_string(hide_password=False)
    ):
        assert "password authentication failed" in error.message
    with postgresql.connected(str(url.database)) as connection:
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {ASKED}".encode())
    with open_store(
        place.folder, url.set(password=PASSWORD).render_as_string(hide_password=False)
    ) as store:
        assert PASSWORD not in str(store)


def test_a_server_that_has_no_connection_left_is_not_said_to_be_down(
    postgresql: "PostgreSQL", place: Place
) -> None:
    import psycopg

    from tests.support.postgresql import ASKED, PASSWORD

    url = (
        make_url(place.url or "")
        .set(username=ASKED, password=PASSWORD)
        .render_as_string(hide_password=False)
    )
    with ExitStack() as stack:
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(
                    closing(
                        psycopg.connect(
                            host=str(postgresql.folder),
                            user=ASKED,
                            password=PASSWORD,
                            dbname=make_url(url).database,
                        )
                    )
                )
        for error in _refusals(place.folder, url):
            assert error.remedy.startswith("the database server has no connection left: ")
            assert "check that the database server runs" not in error.remedy


@pytest.mark.parametrize("limited", ["ROLE asked", "DATABASE {}"])
def test_a_user_or_a_database_that_has_no_connection_left_is_told_as_such(
    limited: str, postgresql: "PostgreSQL", place: Place
) -> None:
    from tests.support.postgresql import ASKED, PASSWORD

    url = make_url(place.url or "").set(username=ASKED, password=PASSWORD)
    with postgresql.connected() as connection:
        connection.execute(f"ALTER {limited.format(url.database)} CONNECTION LIMIT 0".encode())
        try:
            for error in _refusals(place.folder, url.render_as_string(hide_password=False)):
                assert error.remedy.startswith("the database server has no connection left: ")
        finally:
            connection.execute(f"ALTER {limited.format(url.database)} CONNECTION LIMIT -1".encode())


def test_a_user_who_may_make_no_tables_is_told(place: Place) -> None:
    from tests.support.postgresql import ASKED, PASSWORD

    url = (
        make_url(place.url or "")
        .set(username=ASKED, password=PASSWORD)
        .render_as_string(hide_password=False)
    )
    with pytest.raises(StoreError, match="permission denied for schema public") as refused:
        open_store(place.folder, url)
    assert "grant the user" in refused.value.remedy


def test_a_database_that_is_not_there_is_named(postgresql: "PostgreSQL", folder: Path) -> None:
    for error in _refusals(folder, postgresql.url("nowhere")):
        assert 'database "nowhere" does not exist' in error.message


def test_somebody_elses_database_is_refused_and_left_alone(place: Place) -> None:
    place.execute("CREATE TABLE alembic_version (version_num text)")
    for error in _refusals(place.folder, place.url or ""):
        assert "is not a store of this agent" in error.message
    with place.outside() as connection:
        assert list(
            connection.exec_driver_sql(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
        ) == [("alembic_version",)]


@pytest.mark.parametrize(("version", "whose"), [("0999", "a newer"), ("0014", "an earlier")])
def test_a_store_of_another_version_is_refused_and_an_empty_database_is_the_way_on(
    postgresql: "PostgreSQL", place: Place, version: str, whose: str
) -> None:
    place.open().close()
    place.execute(f"UPDATE {VERSIONS.name} SET version_num = '{version}'")
    for error in _refusals(place.folder, place.url or ""):
        assert f"made by {whose} agent" in error.message
        assert "name an empty database in [store] connection" in error.remedy
    open_store(place.folder, postgresql.url(postgresql.create())).close()


@pytest.mark.parametrize("again", range(4))
def test_of_many_agents_that_start_at_once_on_an_empty_database_each_starts(
    place: Place, again: int
) -> None:
    together = threading.Barrier(16)

    def start(number: int) -> None:
        together.wait()
        # One that only looks meets the same moments.
        store = (
            open_read_only(place.folder / str(number), place.url)
            if number % 4 == 0
            else open_store(place.folder / str(number), place.url)
        )
        store.close()

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(start, range(16)))


@pytest.mark.parametrize("open_one", OPENINGS)
def test_a_store_that_is_made_while_another_agent_looks_is_not_taken_for_somebody_elses(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_one: Callable[[Path, str | None], Store],
) -> None:
    look, pause = tables._has_tables, threading.Lock()

    def looked(connection: Connection, location: Location) -> bool:
        found = look(connection, location)
        if pause.acquire(blocking=False):
            # Meanwhile another one starts, as far as it can.
            others.append(threads.submit(open_store, tmp_path / "other", place.url))
            until(lambda: others[0].done() or waits_for_a_lock(place))
        return found

    others: list[Future[Store]] = []
    monkeypatch.setattr(tables, "_has_tables", looked)
    with ThreadPoolExecutor(1) as threads:
        open_one(place.folder, place.url).close()
        others[0].result().close()


def waits_for_a_lock(place: Place) -> bool:
    with place.outside() as connection:
        return bool(
            connection.exec_driver_sql(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            ).scalar()
        )


def test_agents_that_learn_of_one_server_at_the_same_time_all_keep_it(place: Place) -> None:
    with ThreadPoolExecutor(8) as threads, place.open() as first:

        def learn(number: int) -> None:
            with open_store(place.folder, place.url) as store:
                for round_ in range(10):
                    store.save_capabilities(
                        ServerCapabilities(f"http://placement-{round_}/", f"1.{number}")
                    )

        list(threads.map(learn, range(8)))
        assert all(first.capabilities(f"http://placement-{round_}/") for round_ in range(10))


def test_a_server_that_was_restarted_is_used_again(postgresql: "PostgreSQL", place: Place) -> None:
    with place.open() as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
        postgresql.kill()
        with pytest.raises(StoreError, match="cannot be read") as refused:
            store.view(ENDPOINT, ROOT)
        assert "check that the database server runs" in refused.value.remedy
        with pytest.raises(StoreError, match="cannot be written"):
            store.save_view(ENDPOINT, ROOT, node_view(), node_view(cells=5))
        postgresql.start()
        assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view())
        store.save_view(ENDPOINT, ROOT, node_view(), node_view(cells=5))
        assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view(cells=5))


def test_a_server_that_takes_everything_and_answers_nothing_is_waited_for_no_longer_than_the_work_may_take(
    postgresql: "PostgreSQL", place: Place
) -> None:
    with place.open() as store:
        with postgresql.suspended():
            # On the connection that there is, and then on a new one.
            for seconds in (0.5, 0.5, 0):
                with (
                    pytest.raises(
                        StoreError, match=r"does not answer|connection timeout|no time left"
                    ),
                    deadline.within(seconds),
                ):
                    store.views()
        assert not store.views()
        with deadline.within(60):
            assert not store.views()


def test_the_connections_notice_a_peer_that_is_gone(place: Place) -> None:
    with place.open(), place.outside() as connection:
        settings = dict(connection.exec_driver_sql("SELECT name, setting FROM pg_settings").all())
        assert settings["idle_in_transaction_session_timeout"] == "60000"
        assert settings["lock_timeout"] == "10000"
        assert settings["application_name"] == "compute-node-agent"


def test_an_option_of_the_url_is_not_overridden(place: Place) -> None:
    named = Place(
        place.folder,
        make_url(place.url or "")
        .update_query_dict({"application_name": "mine"})
        .render_as_string(hide_password=False),
    )
    with named.outside() as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar() == "mine"
