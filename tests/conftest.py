"""Fixtures of all tests. The real parts are imported only by the tests that use them."""

from __future__ import annotations

import gc
import logging
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

from tests.support import backends
from tests.support.monotonic import Clock

if TYPE_CHECKING:
    from tests.support.http_placement import HttpPlacement
    from tests.support.keystone import Keystone
    from tests.support.placement import OtherClient, PlacementServer
    from tests.support.postgresql import PostgreSQL
    from tests.support.proxy import FaultProxy
    from tests.support.store_place import Place
    from tests.support.system import AgentCommand


# Because a deadline for each example would measure how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


# A run in the background of a shell ignores SIGINT, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Until everything is collected, because a third of that time went into the search for garbage.
gc.disable()


LONG = "mark.long"
WHOLLY_LONG = re.compile(r"^pytestmark = .*mark\.long\b", re.M)
"""A module of long tests only."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what has no test for this run, because the imports of all tests take each
    worker half a minute.
    """
    if not collection_path.match("test_*.py") or str(collection_path) in config.args:
        return None
    wanted = config.option.markexpr
    if wanted == "not long and not soak" and WHOLLY_LONG.search(collection_path.read_text()):
        return True
    if wanted == "long and not soak":
        # Helpers of the same folder may mark tests too.
        helpers = {*collection_path.parent.glob("*.py")} - {*collection_path.parent.glob("test_*")}
        if not any(LONG in one.read_text() for one in (collection_path, *helpers)):
            return True
    return None


# First, because xdist reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that use one of these in one process, because it takes long to start."""
    for item in items:
        for fixture, group in (("_keystone_stack", "keystone"), ("served_nova", "nova's API")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(group))
        kind, folder = item.path.parts[-3:-1]
        if kind == "functional" and folder in {"ironic", "libvirt"}:
            item.add_marker(pytest.mark.xdist_group(folder))


def pytest_collection_finish() -> None:
    """Take what is loaded so far out of the garbage collector's sight, because a quarter of the
    tests' time went into searching hundreds of megabytes of modules and collected tests.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _handlers_of_the_log() -> Iterator[None]:
    """Leaves the root's handlers as they were: a daemon in this process puts its queue before
    pytest's own, which would see each line of the following tests twice.
    """
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    if root.handlers != before:
        root.handlers = before


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what is missing here, in a line each instead of one for each test."""
    if lines := backends.left_out(terminalreporter.stats.get("skipped", [])):
        terminalreporter.section("left out")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture
def placement() -> Iterator[PlacementServer]:
    """An empty Placement in this process: a millisecond, no socket."""
    backends.require("placement.deploy")
    from tests.support.placement import PlacementServer

    server = PlacementServer()
    yield server
    server.close()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is tried again is tried at once."""
    for wait in ("LEAST_WAIT", "LONGEST_WAIT", "LEAST_READ_WAIT", "LONGEST_READ_WAIT"):
        monkeypatch.setattr(f"agent.placement.exchange.{wait}", 0.0)
    monkeypatch.setattr("agent.placement.exchange.REPETITION_WAITS", (0.0, 0.0, 0.0))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which a refused node is tried again."""
    clock = Clock()
    monkeypatch.setattr("agent.audit.node_audit.time", clock)
    return clock


@pytest.fixture
def other(placement: PlacementServer) -> OtherClient:
    """Somebody else who uses ``placement``."""
    return placement.other


@pytest.fixture(scope="session")
def _http_placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPlacement]:
    backends.require("placement.deploy", "waitress")
    from tests.support.http_placement import HttpPlacement

    server = HttpPlacement(tmp_path_factory.mktemp("placement"))
    yield server
    server.stop()


@pytest.fixture
def http_placement(_http_placement: HttpPlacement) -> Iterator[HttpPlacement]:
    """A running, empty Placement in a process of its own; a test may stop or kill it,
    or hold it.
    """
    if not _http_placement.running:
        _http_placement.start()
    _http_placement.reset()
    yield _http_placement
    # A test that failed while it held the process must not take the others along.
    if _http_placement.running:
        _http_placement.resume()


@pytest.fixture
def proxy(http_placement: HttpPlacement) -> Iterator[FaultProxy]:
    """A fault-injecting proxy in front of ``http_placement``."""
    from tests.support.proxy import FaultProxy

    proxy = FaultProxy(http_placement.url)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture(scope="session")
def _keystone_stack(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Keystone, HttpPlacement]]:
    backends.require("placement.deploy", "waitress", "keystone")
    from tests.support.http_placement import HttpPlacement
    from tests.support.keystone import PLACEMENT, Keystone

    keystone = Keystone(tmp_path_factory.mktemp("keystone"))
    keystone.start()
    server = HttpPlacement(
        tmp_path_factory.mktemp("placement-with-keystone"),
        keystone=keystone.for_placement(),
        admin_session=lambda: keystone.session(PLACEMENT),
    )
    server.start()
    yield keystone, server
    server.stop()
    keystone.stop()


@pytest.fixture
def keystone(_keystone_stack: tuple[Keystone, HttpPlacement]) -> Keystone:
    """A running keystone whose catalog has ``keystone_placement``, its users enabled."""
    keystone, server = _keystone_stack
    if not keystone.running:
        keystone.start()
    keystone.restore(server.url)
    return keystone


@pytest.fixture
def keystone_placement(_keystone_stack: tuple[Keystone, HttpPlacement]) -> HttpPlacement:
    """A running, empty Placement that asks ``keystone`` about every token."""
    _, server = _keystone_stack
    if not server.running:
        server.start()
    server.reset()
    return server


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[PostgreSQL]:
    backends.require("psycopg")
    from tests.support.postgresql import PostgreSQL

    server = PostgreSQL()
    yield server
    server.remove()


@pytest.fixture
def postgresql(_postgresql: PostgreSQL) -> PostgreSQL:
    """A running PostgreSQL; a test may stop or kill it, and makes the databases that it needs."""
    if not _postgresql.running:
        _postgresql.start()
    return _postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where a store can be made: in a new folder, or an empty database on a server."""
    from tests.support.store_place import Place

    if request.param == "sqlite":
        yield Place(tmp_path / "state", None)
        return
    yield request.getfixturevalue("postgresql_place")


@pytest.fixture
def postgresql_place(postgresql: PostgreSQL, tmp_path: Path) -> Iterator[Place]:
    """The same, on a server only."""
    from tests.support.store_place import Place

    database = postgresql.create()
    yield Place(tmp_path / "state", postgresql.url(database))
    postgresql.drop(database)


@pytest.fixture
def agent_command(tmp_path: Path) -> AgentCommand:
    """The command line, with a folder of its own."""
    from tests.support.system import AgentCommand

    return AgentCommand(tmp_path / "agent")


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no processes but those of this test, because tests beside it have some that
    look like nova-compute.
    """
    every = psutil.process_iter

    def started_here(attrs: list[str]) -> Iterator[psutil.Process]:
        own = {process.pid for process in psutil.Process().children(recursive=True)}
        return (process for process in every(attrs) if process.pid in own)

    monkeypatch.setattr(psutil, "process_iter", started_here)
