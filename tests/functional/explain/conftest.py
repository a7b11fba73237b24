"""Hosts whose explanations are checked."""

from collections.abc import Iterator

import pytest

from tests.support import backends


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list]:
    """One whose cells count dedicated CPUs, and one whose cells count everything."""
    backends.require("placement.deploy")
    from tests.functional.explain.explained_host import ExplainedHost

    found = [
        ExplainedHost(tmp_path_factory.mktemp(f"host-{strict}"), strict=strict)
        for strict in (False, True)
    ]
    yield found
    for host in found:
        host.close()
