"""The local API in this process."""

import pytest

from tests.support.local_api import api_here
from tests.support.site import site_here, with_devices
from tests.unit.render.reports import report


@pytest.fixture(scope="module")
def _api():
    with api_here() as found:
        yield found


@pytest.fixture
def api(_api):
    """An API that shows one node, and of which nobody has asked for anything."""
    _api.service.take_report(report(), whole=True)
    for whole in (True, False):
        _api.service.audits.answer(_api.service.audits.take(whole=whole), b"{}")
    return _api


@pytest.fixture
def new_site(tmp_path, placement):
    """An API over real records and an empty Placement, before any driver is started."""
    with site_here(tmp_path, placement) as found:
        yield found


@pytest.fixture
def site(tmp_path, placement, _api):
    """The same, for tests that have a host serve at once."""
    with site_here(tmp_path, placement, _api) as found:
        yield found


@pytest.fixture
def ha(site):
    """The host HA, with devices and persistent memory, whose agent answers."""
    return site.serve(with_devices(site.world.pmem("HA")))
