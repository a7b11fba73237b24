"""A Placement that lies: answers of one pass changed at a random place, and what is left of that
after the next honest pass.

LIES=2000 tells more of them, LIES_SEED others.
"""

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from agent.model.finding import Problem
from agent.placement.mirror import Freshness
from tests.functional.placement.conftest import Host
from tests.functional.placement.test_foreign_and_sharing import AGGREGATE, bandwidth, storage
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, shaped, total
from tests.support.placement import PlacementServer

LIES = int(os.environ.get("LIES", "40"))
SEED = int(os.environ.get("LIES_SEED", "1"))
INVENTORY = {"VCPU": total(16), "MEMORY_MB": total(16384)}
ALWAYS = Freshness(sharing=1e-6)
"""Sharing providers are asked for in each pass."""

pytestmark = pytest.mark.usefixtures("short_waits")


class Pass(NamedTuple):
    """The states of all nodes, and all that went wrong."""

    states: set[str]
    errors: list[Problem]


MISSING = object()
NONSENSE: tuple[Any, ...] = (
    MISSING,
    None,
    "",
    "\x1b[31m\n",
    "../../resource_providers",
    -1,
    0,
    1.5,
    10**30,
    2**63,
    True,
    [],
    {},
    [[]],
    [None],
    {"": None},
    "é" * 300,
    float("nan"),
    float("inf"),
    ROOT,
    new_uuid(),
)
PAGES = (
    b"",
    b"{",
    b"[" * 200_000,
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"{}",
    b'"x"',
    b'{"a":' * 100_000,
    b"<html>",
)


def places(body: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a body, itself included."""
    yield way
    for key, value in (
        body.items()
        if isinstance(body, dict)
        else enumerate(body)
        if isinstance(body, list)
        else ()
    ):
        yield from places(value, (*way, key))


def lie(dice: random.Random, told: list[str]) -> Callable[[Any], Any]:
    def change(body: Any) -> Any:
        if dice.random() < 0.05:
            page = dice.choice(PAGES)
            told.append(f"whole: {page[:20]!r}")
            return page
        changed, way = copy.deepcopy(body), dice.choice([*places(body)])
        value = dice.choice(NONSENSE)
        told.append(f"{way}: {'missing' if value is MISSING else repr(value)[:40]}")
        if not way:
            return {} if value is MISSING else json.dumps(value).encode()
        inside = changed
        for key in way[:-1]:
            inside = inside[key]
        if value is MISSING:
            del inside[way[-1]]
        elif isinstance(inside, dict) and dice.random() < 0.2:
            inside[str(value)[:300]] = inside.pop(way[-1])
        else:
            inside[way[-1]] = value
        return changed

    return change


def contents(placement: PlacementServer) -> Any:
    """All that is in Placement but the generations, which every write moves."""
    dumped = placement.dump()
    for one in (*dumped["providers"].values(), *dumped["consumers"].values()):
        del one["generation"]
    # A class or trait that nothing has is no harm.
    return dumped["providers"], dumped["consumers"]


def everything(agent: AgentUnderTest) -> Pass:
    """What ``--once`` that reads everything came to."""
    report = agent.report(reread=True)
    return Pass(
        {one.state for one in report.nodes} or {"failed"},
        [*report.errors, *(error for one in report.nodes for error in one.errors)],
    )


@pytest.fixture
def scene(host: Host, placement: PlacementServer) -> AgentUnderTest:
    """A node with a child of ours, one of somebody else, storage that shares with it, and a guest;
    in sync.
    """
    agent = host(
        shaped(INVENTORY, {"N0": (NAME, {"VGPU": total(2)})}, traits={NAME: ["CUSTOM_OURS"]}),
        freshness=ALWAYS,
    )
    agent.cycle(start=True)
    bandwidth(placement)
    storage(placement)
    placement.other.set_aggregates(ROOT, [AGGREGATE])
    placement.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}}, new_uuid())
    agent.cycle()
    assert everything(agent).states == {"in-sync"}
    placement.clear()
    return agent


@pytest.mark.long
@pytest.mark.timeout(900 if LIES <= 40 else 0)
def test_no_lie_ends_a_pass_or_outlives_the_next_honest_one(
    scene: AgentUnderTest, placement: PlacementServer
) -> None:
    before, dice = contents(placement), random.Random(SEED)
    placement.clear()
    everything(scene)
    asked = len(placement.requests)
    writes = 0
    for number in range(LIES):
        told: list[str] = []
        placement.faults.clear()
        placement.clear()
        placement.faults.add(
            faults.rewritten(lie(dice, told)),
            skip=dice.randrange(asked),
            times=dice.choice((1, 1, 1, 3)),
        )
        report = everything(scene)
        lied = [one for one in placement.requests if one.fault]
        placement.faults.clear()
        assert all(one.code != "agent.bug" for one in report.errors), (number, told, report.errors)
        writes += len(placement.writes())
        honest = everything(scene)
        honest = honest if honest.states == {"in-sync"} else everything(scene)
        assert (honest.states, contents(placement)) == ({"in-sync"}, before), (
            number,
            [one.target for one in lied],
            told,
        )
    # What is of the documented form is believed, and put right by a write: seldom.
    assert writes < LIES / 4


@pytest.mark.long
def test_no_page_ends_a_pass_wherever_it_comes(
    scene: AgentUnderTest, placement: PlacementServer
) -> None:
    before = contents(placement)
    placement.clear()
    everything(scene)
    for number in range(len(placement.requests)):
        placement.faults.clear()
        page = PAGES[number % len(PAGES)]
        placement.faults.add(faults.rewritten(lambda _body, page=page: page), skip=number)
        assert all(one.code != "agent.bug" for one in everything(scene).errors)
    placement.faults.clear()
    assert (everything(scene).states, contents(placement)) == ({"in-sync"}, before)


FORMS = {
    "a parent above itself": (
        r"in_tree",
        lambda body: _parents(body, lambda rows: rows[1]["uuid"]),
    ),
    "a parent that is not there": (
        r"in_tree",
        lambda body: _parents(body, lambda _rows: new_uuid()),
    ),
    "a provider twice": (
        r"in_tree",
        lambda body: (
            body
            | {"resource_providers": [*body["resource_providers"], body["resource_providers"][0]]}
        ),
    ),
    "a name twice": (
        r"in_tree",
        lambda body: {
            "resource_providers": [{**row, "name": NAME} for row in body["resource_providers"]]
        },
    ),
    "another tree": (
        r"in_tree",
        lambda body: {
            "resource_providers": [
                {**body["resource_providers"][0], "uuid": new_uuid(), "parent_provider_uuid": None}
            ]
        },
    ),
    "a uuid that leads elsewhere": (r"in_tree", lambda body: _uuid(body, "../traits/CUSTOM_X")),
    "a generation that is a text": (
        r"/inventories$",
        lambda body: body | {"resource_provider_generation": "7"},
    ),
    "an amount that is a truth": (
        r"/inventories$",
        lambda body: {**body, "inventories": {"VCPU": total(16) | {"total": True}}},
    ),
    "a class that is none": (
        r"/inventories$",
        lambda body: {**body, "inventories": {"vcpu\x1b": total(16)}},
    ),
    "traits in a text": (r"/traits$", lambda body: body | {"traits": "HW_CPU_X86_AVX"}),
}


def _parents(body: Any, parent: Callable[[Any], str]) -> Any:
    rows = body["resource_providers"]
    return {"resource_providers": [{**row, "parent_provider_uuid": parent(rows)} for row in rows]}


def _uuid(body: Any, uuid: str) -> Any:
    first, *others = body["resource_providers"]
    return {"resource_providers": [{**first, "uuid": uuid}, *others]}


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_documented_is_told_with_call_and_field_and_writes_nothing(
    form: str, scene: AgentUnderTest, placement: PlacementServer
) -> None:
    path, change = FORMS[form]
    placement.faults.add(faults.rewritten(change), path=path, times=None)
    report = everything(scene)
    (error,) = {one.message: one for one in report.errors}.values()
    assert (report.states, error.code) == ({"failed"}, "placement.unreachable")
    assert "that is not Placement's: " in error.message
    assert placement.writes() == []
    placement.faults.clear()
    assert everything(scene).states == {"in-sync"}
