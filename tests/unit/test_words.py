"""One word for one state everywhere, and counts with nouns that fit them."""

import re
from typing import get_args

import pytest
import yaml

from agent.driver.worker import Outcome as CallOutcome
from agent.errors import StandingBy
from agent.model.devices import DeviceState
from agent.model.facts import DomainState
from agent.model.finding import WELL, AgentState, AuditState, Problem
from agent.model.names import number_of
from agent.model.node_records import ClaimState
from agent.model.report import OperationStatus
from agent.render.look import STATE_STYLES
from agent.service.background import agent_state, summary
from agent.tracker.domains import Outcome
from tests.support.child import CHECKOUT
from tests.unit.render.reports import node

STATES = {
    "The agent": AgentState,
    "A node": AuditState,
    "An operation": OperationStatus,
    "A claim": ClaimState,
    "A device": DeviceState,
    "A guest on the hypervisor": DomainState,
    "A guest in an import": Outcome,
    "A call of the driver": CallOutcome,
}


def test_the_table_of_states_is_what_the_code_says():
    sections = re.split(
        r"^## ", (CHECKOUT / "docs" / "states.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )[1:]
    found = {
        one.partition("\n")[0]: re.findall(r"^- `([^`]+)`: ", one, re.MULTILINE) for one in sections
    }
    assert found == {title: list(get_args(states)) for title, states in STATES.items()}


def test_the_api_has_the_same_words():
    schemas = yaml.safe_load(
        (CHECKOUT / "agent" / "api" / "openapi.yaml").read_text(encoding="utf-8")
    )["components"]["schemas"]
    assert schemas["AgentState"]["enum"] == list(get_args(AgentState))
    assert schemas["NodeState"]["enum"] == list(get_args(AuditState))
    assert schemas["Operation"]["properties"]["status"]["enum"] == list(get_args(OperationStatus))
    enums = [set(enum) for enum in _enums(schemas)]
    for states in (ClaimState, DeviceState, DomainState, Outcome):
        assert set(get_args(states)) in enums


def _enums(found):
    if isinstance(found, dict):
        if isinstance(found.get("enum"), list):
            yield found["enum"]
        for one in found.values():
            yield from _enums(one)
    elif isinstance(found, list):
        for one in found:
            yield from _enums(one)


def test_reports_colour_every_state():
    assert STATE_STYLES.keys() == set(get_args(AuditState))
    assert set(WELL) < set(get_args(AuditState))


@pytest.mark.parametrize("state", get_args(AuditState))
def test_the_status_line_begins_with_the_agents_state(state):
    line = summary((), [node(state=state)], 0)
    assert agent_state(line) == ("ready" if state in WELL else "degraded")
    assert (
        agent_state(summary([Problem(StandingBy.code, "standing by: host b has them", "")], (), 0))
        == "standing by"
    )


def test_one_is_not_several():
    assert [number_of(count, "candidate") for count in range(3)] == [
        "0 candidates",
        "1 candidate",
        "2 candidates",
    ]


# Of these there are never one: limits, and what is told only of several.
NEVER_ONE = re.compile(
    r"len\((name|text|self\._all|elements|entries|found|there|ids|nodes|some|left|consumers|uuids)\b|\{count\} "
    r"times"
)


def test_no_count_is_printed_before_a_plural_that_may_not_fit():
    """``{count} candidates`` says "1 candidates" some day; :func:`number_of` does not."""
    counted = re.compile(
        r"\{(?P<what>len\([^{}]+\)|[a-z_.]*(?:count|amount|number|total)[a-z_.]*)\} (?:[a-z]+ "
        r")?(?P<noun>[a-z]+[^s\W]s)\b"
    )
    verbs = {"is", "has", "was", "does", "hangs", "waits", "wants", "stands", "takes", "fails"}
    wrong = []
    for folder in ("agent", "drivers"):
        for file in sorted((CHECKOUT / folder).rglob("*.py")):
            for line_number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for match in counted.finditer(line):
                    if match["noun"] not in verbs and not NEVER_ONE.search(match[0]):
                        wrong.append(f"{file.relative_to(CHECKOUT)}:{line_number}: {match[0]}")
    assert wrong == []
