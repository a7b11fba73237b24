"""What ``agent takeover check`` tells of the record that nova-compute keeps of itself: nova 34's own API
answers, over HTTP, from its own databases.

``NOVA_PYTHON`` names a Python with nova 34; without it this is left out.
"""

from pathlib import Path

import pytest

from tests.functional.cli.test_takeover_check import Site, the
from tests.functional.nova.nova_api import NovaApi
from tests.support.http_placement import HttpPlacement

pytestmark = pytest.mark.long

CHECK = "nova-compute-service"


@pytest.fixture
def site(tmp_path: Path, http_placement: HttpPlacement) -> Site:
    return Site(tmp_path, http_placement)


def test_a_record_that_beats_blocks_a_takeover(site: Site, nova: NovaApi) -> None:
    site.has(nova=nova.credentials())
    assert the(site.checks(), CHECK)[:2] == ("ok", "nova has no record of nova-compute on node-a")
    nova.has(service={"beat": 3})
    verdict, detail, remedy = the(site.checks(), CHECK)
    assert verdict == "blocks"
    assert "nova-compute on node-a is up and enabled" in detail
    assert "stop nova-compute" in remedy
    # What an operator says of a service does not stop it.
    nova.has(service={"beat": 3, "disabled": True})
    assert the(site.checks(), CHECK)[0] == "blocks"
    nova.has(service={"beat": 3, "forced_down": True})
    verdict, detail, _ = the(site.checks(), CHECK)
    assert (verdict, "is down and enabled" in detail) == ("blocks", True)
    nova.has(service={"beat": 600})
    verdict, detail, _ = the(site.checks(), CHECK)
    assert verdict == "ok"
    assert "nova-compute on node-a is down and enabled, last beat 20" in detail
    assert {request.partition(" ")[0] for request in nova.requests} == {"GET"}


def test_an_account_that_may_not_read_the_record_is_told(site: Site, nova: NovaApi) -> None:
    site.has(nova=nova.credentials("reader"))
    verdict, detail, remedy = the(site.checks(), CHECK)
    assert (verdict, "GET /os-services -> 403" in detail) == ("warning", True)
    assert "role admin" in remedy
