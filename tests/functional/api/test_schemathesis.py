"""Requests that a machine makes up from openapi.yaml, good ones and bad ones, to a daemon over its
socket.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from agent.api.openapi import read
from tests.support import backends
from tests.support.ini import Config
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand
from tests.support.unix_requests import session

backends.require("schemathesis")
import schemathesis  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("API_EXAMPLES", "12"))
"""Requests of each operation, beside those that try every limit of its schemas."""

# A missing precondition has a status of its own, RFC 6585.
CONFIG = {"checks": {"missing_required_header": {"expected-statuses": [400, 428]}}}

described = schemathesis.openapi.from_dict(read(), config=schemathesis.Config.from_dict(CONFIG))


def _ready(client: ApiClient) -> bool:
    try:
        return bool(client.readiness())
    except (ApiProblem, ApiUnreachable):
        return False


@pytest.fixture(scope="module")
def daemon(_http_placement, tmp_path_factory):
    """A daemon with a node that has devices."""
    if not _http_placement.running:
        _http_placement.start()
    _http_placement.reset()
    folder = tmp_path_factory.mktemp("api")
    config: Config = {
        "DEFAULT": {
            "compute_driver": "fake.pci",
            "host": "node-a",
            "state_path": folder / "nova",
            "log_file": folder / "agent.log",
        },
        "placement": {**_http_placement.credentials(), "max_in_flight": 1},
    }
    service = Service(AgentCommand(folder, config))
    with service.running():
        until(lambda: _ready(ApiClient(service.command.socket)), lambda: service)
        yield service
        assert service.stop()[0] == 0, service
    assert "Traceback" not in service.log


@pytest.fixture(scope="module")
def talk(daemon):
    with session(daemon.command.socket) as found:
        yield found


@described.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_whatever_is_asked_the_answer_is_as_described(talk, case):
    answer = case.call(base_url="http://localhost", session=talk)
    # Only this fault may be found in a request that fits the schema, because a schema cannot compare
    # the number of a group's providers with its count of devices.
    beyond = answer.status_code == 400 and answer.json()["code"] == "request.devices"
    case.validate_response(answer, excluded_checks=[positive_data_acceptance] if beyond else [])
