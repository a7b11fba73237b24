"""A killed agent of a walk leaves its store as ``kill -9`` does."""

import pytest

from tests.support.placement import PlacementServer
from tests.support.tracking import Time
from tests.support.walked_host import WalkedHost


@pytest.mark.parametrize("killed", [True, False])
def test_only_an_agent_that_ends_in_order_closes_its_store(
    placement: PlacementServer, tmp_path, killed: bool
) -> None:
    host = WalkedHost("a", placement, tmp_path, None, Time())
    assert host.start().state == "changed"
    (host.kill if killed else host.stop)()
    log = tmp_path / "database/store.sqlite-wal"
    assert (log.exists() and log.stat().st_size > 0) == killed
    assert host.start().state == "in-sync"
    host.stop()
