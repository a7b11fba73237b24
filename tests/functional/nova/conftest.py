"""nova's own API for the tests that ask it."""

from collections.abc import Iterator

import pytest

from tests.functional.nova.nova_api import NOVA, NovaApi
from tests.support import backends
from tests.support.http_placement import HttpPlacement


@pytest.fixture(scope="session")
def served_nova(
    tmp_path_factory: pytest.TempPathFactory, _http_placement: HttpPlacement
) -> Iterator[NovaApi]:
    if not NOVA:
        pytest.skip(
            backends.reason(
                "nova's API", "set NOVA_PYTHON to a Python with nova==34.0.0 'SQLAlchemy<2.1'"
            )
        )
    if not _http_placement.running:
        _http_placement.start()
    nova = NovaApi(tmp_path_factory.mktemp("nova-api"), _http_placement)
    try:
        nova.start()
        yield nova
    finally:
        nova.stop()


@pytest.fixture
def nova(served_nova: NovaApi) -> NovaApi:
    served_nova.clear()
    return served_nova
