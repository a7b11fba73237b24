"""A real ironic for the tests of this folder, all in one process of pytest, because it takes
seconds to start.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.ironic.ironic import Ironic
from tests.functional.ironic.metal import MetalAgent
from tests.support import backends
from tests.support.placement import PlacementServer
from tests.support.proxy import FaultProxy
from tests.support.store_place import Place

Metal = Callable[..., MetalAgent]

# So that a few nodes are a list of many pages.
PAGE = 2


@pytest.fixture(scope="session")
def _ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    backends.require("ironic.version", "bcrypt")
    server = Ironic(tmp_path_factory.mktemp("ironic"), page=PAGE)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ironic(_ironic: Ironic) -> Iterator[Ironic]:
    """A running ironic without nodes, which asks for no credentials and gives two nodes a page; a
    test may hold or stop it.
    """
    yield _ironic
    if not _ironic.running:
        _ironic.start()
    _ironic.resume()
    _ironic.clear()


@pytest.fixture(scope="session")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    backends.require("ironic.version", "bcrypt")
    server = Ironic(tmp_path_factory.mktemp("guarded-ironic"), basic=True, group="racka", slow=1)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def guarded(_guarded: Ironic) -> Iterator[Ironic]:
    """Another one, which asks for a user and a password, deploys slowly, and whose nodes are all of
    the conductor group racka.
    """
    yield _guarded
    _guarded.clear()


@pytest.fixture
def agent_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All that is logged, down to DEBUG."""
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.fixture
def between(ironic: Ironic) -> Iterator[FaultProxy]:
    """A fault-injecting proxy in front of ``ironic``, which sees its path whole."""
    proxy = FaultProxy(ironic.url)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def metal(
    placement: PlacementServer, ironic: Ironic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Metal]:
    """Makes agents for ``ironic``, or another one's ``credentials``, in one store:
    ``metal(host=..., shard=...)``.
    """
    monkeypatch.setattr("drivers.ironic.managed.LONGEST_WAIT", 0.0)
    made: list[MetalAgent] = []
    shared = Place(tmp_path / "state", f"sqlite:///{tmp_path}/shared.sqlite")

    def make(
        credentials: Any = None, *, place: Place = shared, scope: Any = None, **more: Any
    ) -> MetalAgent:
        made.append(
            MetalAgent(
                more.pop("placement", placement),
                place,
                {**(credentials or ironic.credentials()), **(scope or {})},
                **more,
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.kill()
