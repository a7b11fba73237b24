"""What an observer tells where nova's API answers as a test says: a guest that has no domain for a
while, and answers that are not nova's.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.nova.watched_host import HELD, ROOT, Watched, a_guest
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.scripted_nova import Scripted, said, server


@pytest.fixture
def nova() -> Iterator[Scripted]:
    found = Scripted()
    yield found
    found.close()


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement, nova: Scripted) -> Watched:
    found = Watched(tmp_path, http_placement)
    found.as_nova_has_it()
    credentials = {"auth_type": "admin_token", "endpoint": nova.url, "token": "secret-token"}
    found.has(nova=credentials)
    return found


def told(watched: Watched) -> list[Any]:
    node = watched.observe()
    assert (node["state"], node["errors"]) == ("in-sync", [])
    return list(node["drift"])


@pytest.mark.parametrize("task", ["reboot_started_hard", "powering-on"])
def test_a_guest_whose_domain_is_made_anew_is_no_leftover(
    watched: Watched, nova: Scripted, task: str
) -> None:
    rebooted = new_uuid()
    watched.other.claim({ROOT: HELD}, rebooted)
    here = server(rebooted, status="HARD_REBOOT", **{"OS-EXT-STS:task_state": task})
    nova.answers["/servers/detail"] = lambda: said({"servers": [here]})
    (drift,) = told(watched)
    assert (drift["consumer"], drift["severity"]) == (rebooted, "info")
    assert "reboot --hard" not in drift["remedy"]


@pytest.mark.parametrize(
    "page",
    [
        {"servers": [{"id": []}]},
        {"servers": [{"id": {}, "status": None}]},
        {"servers": [server(new_uuid(), **{"OS-EXT-SRV-ATTR:host": ["node-a"]})]},
    ],
)
def test_an_answer_that_is_not_novas_is_a_warning_and_the_rest_stays(
    watched: Watched, nova: Scripted, page: Any
) -> None:
    leftover = new_uuid()
    watched.other.claim({ROOT: HELD}, leftover)
    nova.answers["/servers/detail"] = lambda: said(page)
    kinds = {one["kind"]: one["severity"] for one in told(watched)}
    assert kinds == {"orphaned-allocation": "warning", "nova-not-asked": "warning"}


def test_no_answer_becomes_a_part_of_a_command(watched: Watched, nova: Scripted) -> None:
    leftover = new_uuid()
    watched.other.claim({ROOT: HELD}, leftover)
    migration = {"uuid": leftover, "instance_uuid": "$(reboot)", "status": "error"}
    nova.answers["/servers/detail"] = lambda: said({"servers": []})
    nova.answers["/os-migrations"] = lambda: said({"migrations": [migration]})
    assert not [one for one in told(watched) if "$(reboot)" in one["remedy"]]


def test_a_guest_without_an_allocation_is_told_though_nova_leads_nowhere(watched: Watched) -> None:
    bare = new_uuid()
    credentials = {"auth_type": "admin_token", "endpoint": "http://[x", "token": "secret-token"}
    watched.has(a_guest(bare, "bare"), nova=credentials)
    found = {one["kind"]: one for one in told(watched)}
    assert found.keys() == {"missing-allocation", "nova-not-asked"}
    assert "secret-token" not in found["nova-not-asked"]["detail"]
