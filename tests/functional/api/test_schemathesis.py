"""Requests that a machine makes up from openapi.yaml, good ones and bad ones, over the real socket."""

import os

import pytest
from hypothesis import HealthCheck, settings

from agent.api.description import read
from tests.support import backends
from tests.support.local_api import api_here
from tests.support.unix_requests import session
from tests.unit.render.reports import node, report

backends.require("schemathesis")
import schemathesis  # noqa: E402

EXAMPLES = int(os.environ.get("API_EXAMPLES", "15"))
"""Requests of each operation, beside those that try every limit of its schemas."""

described = schemathesis.openapi.from_dict(read()).include(path_regex=r"^/(healthz|readyz|metrics|v1/nodes$|v1/nodes/.uuid.(/tree)?$|v1/audits|v1/reload)")


@pytest.fixture(scope="module")
def talk():
    with api_here() as api, api.answering(b'{"schema": "compute-node-agent/report/1"}'):
        api.service.audited(report(nodes=(node(state="in-sync", errors=()),)), whole=True)
        with session(api.path) as found:
            yield found


@described.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_the_answer_is_as_described(talk, case):
    case.call_and_validate(base_url="http://localhost", session=talk)
