"""Fixtures of the reshapes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.reshapes.cases import Case, States, Way
from tests.functional.reshapes.reshape_host import Layout, ReshapeHost
from tests.support.placement import PlacementServer


@pytest.fixture(scope="package")
def states(tmp_path_factory: pytest.TempPathFactory) -> States:
    """Hosts in the layouts from which reshapes begin."""
    return States(tmp_path_factory.mktemp("hosts"))


@pytest.fixture(autouse=True)
def _short_waits(short_waits: None) -> None:
    pass


@pytest.fixture
def goal(case: Case, way: Way) -> Layout:
    """To where it goes."""
    return case.ends(way)[1]


@pytest.fixture
def host(
    case: Case, way: Way, count: int, states: States, placement: PlacementServer, tmp_path: Path
) -> Iterator[ReshapeHost]:
    """A host from where it goes, with ``count`` consumers."""
    found = states.host(case.guests, case.ends(way)[0], count, placement, tmp_path / "state")
    yield found
    found.stop()
