"""``agent pci unreport``: the devices of a node go from Placement, as far as nobody has any."""

import json

import pytest

from tests.functional.cli.refusals import contents, the_only
from tests.functional.cli.setups import on
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

R = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
CARD = "5f9c2a34-7d1e-4a8b-9c46-0000000000f0"
USED = "5f9c2a34-7d1e-4a8b-9c46-0000000000f1"
C = "c0000000-0000-4000-8000-00000000000c"
MARKS = {"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"}


@pytest.fixture
def cards(http_placement: HttpPlacement) -> HttpPlacement:
    """Two cards of ``node-a``; and providers that look like one, but are none."""
    other = http_placement.other
    other.create_provider("node-a", R)
    for uuid, name in ((CARD, "node-a_0000:81:00.0"), (USED, "node-a_0000:AF:00.0")):
        other.create_provider(name, uuid, R)
        other.set_inventory(uuid, {"PGPU": 1})
        other.set_traits(uuid, MARKS)
    other.set_traits(other.create_provider("node-a_0000:af:01.0", parent=R), MARKS)
    other.create_provider("node-a_0000:83:00.0", parent=R)
    http_placement.clear()
    return http_placement


def names(cards: HttpPlacement) -> list[str]:
    return sorted(one["name"] for one in cards.dump()["providers"].values())


def test_the_cards_go_and_once_more_it_is_no_error(agent: AgentHere, cards: HttpPlacement) -> None:
    document = agent.run(
        "pci", "unreport", "node-a", "--format", "json", "--detailed-exitcode"
    ).json
    assert (document["schema"], document["exit_code"], document["errors"]) == (
        "compute-node-agent/pci-unreport/1",
        2,
        [],
    )
    assert document["result"] == {
        "root": {"uuid": R, "name": "node-a"},
        "deleted": {USED: "node-a_0000:AF:00.0", CARD: "node-a_0000:81:00.0"},
        "kept": {},
    }
    assert names(cards) == ["node-a", "node-a_0000:83:00.0", "node-a_0000:af:01.0"]
    cards.clear()
    assert agent.run("pci", "unreport", R, "--detailed-exitcode").code == 0
    assert cards.writes() == []


def test_a_card_in_use_stays_and_its_user_is_named(agent: AgentHere, cards: HttpPlacement) -> None:
    cards.other.claim({USED: {"PGPU": 1}}, C)
    result = agent.run("pci", "unreport", "node-a", "--format", "json")
    assert result.code == 3
    assert list(result.json["result"]["kept"]) == [USED]
    assert C in the_only(result.json["errors"])["message"]
    assert CARD not in cards.dump()["providers"]
    text = agent.run("pci", "unreport", "node-a")
    assert text.code == 1
    assert "0 providers of devices deleted, 1 kept" in text.stdout
    assert USED in cards.dump()["providers"]


def test_a_dry_run_shows_what_would_go(agent: AgentHere, cards: HttpPlacement) -> None:
    before, folder = cards.dump(), contents(agent.folder)
    text = agent.run("pci", "unreport", "node-a", "--dry-run")
    assert "2 providers of devices to be deleted" in text.stdout
    assert "node-a_0000:81:00.0" in text.stdout
    assert (cards.dump(), contents(agent.folder), cards.writes()) == (before, folder, [])


def test_devices_that_would_come_again_are_not_taken_out(
    agent: AgentHere, cards: HttpPlacement
) -> None:
    agent.configure(on(cards, "fake.numa", {"pci": {"report_in_placement": "true"}}))
    before = cards.dump()
    refused = agent.run("pci", "unreport", "node-a", "--format", "json")
    assert (refused.code, the_only(json.loads(refused.stdout)["errors"])["code"]) == (
        1,
        "config.invalid",
    )
    assert cards.dump() == before


def test_an_agent_starts_once_the_cards_are_gone(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    other, root = (
        http_placement.other,
        next(
            uuid
            for uuid, one in http_placement.dump()["providers"].items()
            if one["name"] == "node-a"
        ),
    )
    other.set_traits(other.create_provider("node-a_0000:81:00.0", parent=root), MARKS)
    refused = agent.run("--once", "--format", "json")
    assert refused.code == 1
    problem = the_only(refused.json["nodes"][0]["errors"])
    assert (problem["code"], "agent pci unreport node-a" in problem["remedy"]) == (
        "config.invalid",
        True,
    )
    assert agent.run("pci", "unreport", "node-a").code == 0
    assert agent.run("--once").code == 0
