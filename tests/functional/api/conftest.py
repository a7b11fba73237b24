"""The local API in this process."""

import pytest

from tests.support.local_api import api_here
from tests.unit.render.reports import report


@pytest.fixture(scope="module")
def _api():
    with api_here() as found:
        yield found


@pytest.fixture
def api(_api):
    """An API that shows one node, and of which nobody has asked for anything."""
    _api.service.audited(report(), whole=True)
    for whole in (True, False):
        _api.service.audits.answer(_api.service.audits.take(whole=whole), b"{}")
    return _api
