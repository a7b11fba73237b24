"""Errors become problems by one table."""

from http import HTTPStatus

import pytest

import agent.api.problem
import agent.tracker.errors
from agent import errors
from agent.api.problem import KINDS, REFUSALS, Fault, InvalidApiRequest, phrase, problem_of
from agent.errors import AgentError

SERVERS_OWN = {
    "agent.error",
    "usage.invalid",
    "output.failed",
    "driver.failed",
    "driver.cancelled",
    "reshape.needed",
    "reshape.failed",
    "store.locked",
    "identity.mismatch",
    "placement.error",
    "placement.name-conflict",
    "placement.identity-conflict",
    "tree.invalid",
    "tree.not-adopted",
    "api.socket",
    "api.metrics-address",
    "agent.already-told",
    "fit.undecided",
}
"""Codes of errors that no request can bring about, or that are nobody's fault but the agent's."""


def everything(kind=AgentError):
    yield kind
    for one in kind.__subclasses__():
        yield from everything(one)


@pytest.mark.parametrize(
    "module", [agent.api.problem, agent.tracker.errors, errors], ids=lambda module: module.__name__
)
def test_every_error_that_a_request_may_meet_has_a_status_of_its_own(module):
    codes = {one.code for one in everything() if one.__module__ == module.__name__} - {None}
    assert codes - SERVERS_OWN <= KINDS.keys()


def test_no_code_stands_in_the_table_for_nothing():
    known = {one.code for one in everything()} | {code for code, _ in REFUSALS.values()}
    assert KINDS.keys() <= known


@pytest.mark.parametrize("code", KINDS)
def test_every_status_is_an_http_error(code):
    status, title = KINDS[code]
    assert 400 <= status < 600
    assert title
    assert phrase(status) == f"{status} {HTTPStatus(status).phrase}"


def test_all_faults_of_a_request_are_listed():
    found = problem_of(
        InvalidApiRequest([Fault("body", "/a", "is bad"), Fault("query", "/b", "is worse")])
    )
    assert found["errors"] == [
        {"in": "body", "pointer": "/a", "detail": "is bad"},
        {"in": "query", "pointer": "/b", "detail": "is worse"},
    ]
    many = problem_of(InvalidApiRequest([Fault("body", f"/{n}", "is bad") for n in range(1000)]))
    assert len(many["detail"]) < 300
    assert len(many["errors"]) == 1000
