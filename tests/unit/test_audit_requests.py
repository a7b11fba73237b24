"""Audits that are asked for: one for many, none twice, none for ever."""

import pytest

from agent.api.problem import TooManyAudits
from agent.service.audit_queue import KEPT, AuditRequests


@pytest.fixture
def asked():
    requests = AuditRequests(lambda: requests.woken.append(True))
    requests.woken = []
    return requests


def test_what_waits_is_not_dropped_for_what_comes(asked):
    for number in range(KEPT):
        asked.request([f"node-{number}"], dry_run=False)
    with pytest.raises(TooManyAudits):
        asked.request([], dry_run=False)
    assert len(asked.take(whole=False)) == KEPT
