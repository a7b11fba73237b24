"""The host of the scenarios, on a Placement of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.device_host import DeviceHost
from tests.support.placement import PlacementServer

Made = Callable[..., DeviceHost]


@pytest.fixture
def made(placement: PlacementServer, tmp_path: Path) -> Iterator[Made]:
    """Makes hosts: ``made(layout="nested")``; stopped at the end."""
    hosts: list[DeviceHost] = []

    def make(**options: Any) -> DeviceHost:
        hosts.append(DeviceHost(options.pop("placement", placement), tmp_path / "state", **options))
        return hosts[-1]

    yield make
    for one in hosts:
        one.stop()


@pytest.fixture
def host(made: Made) -> DeviceHost:
    """A flat one."""
    return made()
