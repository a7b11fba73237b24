"""Two nodes with devices on a walk through all that may happen to them: nobody gets what another
has, and nothing of others is touched.

Each step is held against an account of its own; at the end a fresh agent has to make the
same tree of what is left.
"""

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent.placement import retry
from tests.support import backends
from tests.support.crashes import disturbances
from tests.support.device_account import Asked, fits
from tests.support.device_checks import THEIR_CLASS, THEIR_TRAIT
from tests.support.device_finale import finale
from tests.support.device_offers import CARDS, COUNTED_BY, NAMES, OFFERS
from tests.support.device_walk import DeviceWalk

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("DEVICE_EXAMPLES", "10"))
STEPS = int(os.environ.get("DEVICE_STEPS", "30"))
# Shrinking takes minutes, which CI has not: set this to see the smallest example that fails.
SHRINK = (Phase.shrink,) if os.environ.get("DEVICE_SHRINK") else ()

NODES = st.sampled_from(["c1", "c1", "c2"])
WANTED = (
    (),
    (("vf", 1),),
    (("vf", 2),),
    (("plain", 1),),
    (("plain", 1), ("vf", 1)),
    (("pf", 1),),
    (("gpu", 1),),
    (("gpu", 1), ("pf", 1)),
    (("fast", 1),),
    (("fast", 2), ("plain", 1)),
)
TOLD = st.sampled_from(["all", "all", "all", "room", "none"])
PICKS = st.integers(0, 7)
PURPOSES = {"abort": "instance", "in use": "devices"}
LATE = st.sampled_from([False, False, True])
OFFERED = {card: st.sampled_from(sorted(offers)) for card, offers in OFFERS.items()}
ALL_MET = {
    "start: done",
    "start: refused",
    "scheduled: True",
    "scheduled: False",
    "abort: done",
    "give up: done",
    "attach: done",
    "attach: refused",
    "in use: done",
    "detach: done",
    "arrive: done",
    "finish: done",
    "confirm: done",
    "revert: done",
    "delete: done",
    *(f"{what}: {how}" for what in ("claim", "resize") for how in ("done", "refused")),
    "migration: done",
    "live-migration: done",
}


class DevicesMachine(RuleBasedStateMachine):
    """The rules draw; what they do is done and looked at by the walk."""

    first: Any
    second: Any
    met: Counter[str]
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.first.reset()
        self.home = Path(tempfile.mkdtemp(dir=self.folder))
        self.walk = DeviceWalk(self.first, self.home, self.met)
        self.account = self.walk.account

    def teardown(self) -> None:
        """Only what went well so far is worth a comparison."""
        try:
            if sys.exc_info()[0] is None:
                finale(self.walk, self.second)
        finally:
            self.walk.site.remove()
            shutil.rmtree(self.home, ignore_errors=True)

    @initialize(
        data=st.data(),
        choices=st.fixed_dictionaries(OFFERED),
        layout=st.sampled_from(["flat", "nested"]),
        report=st.sampled_from([True, True, False]),
    )
    def begin(self, data: Any, choices: dict[str, str], layout: str, report: bool) -> None:
        # Only where Placement is told nothing, a card and its functions can be offered side by
        # side.
        self.walk.restart(
            choices if report else {**choices, "F2": "whole", "F3": "whole"}, layout, report
        )
        for number in range(3):
            self.claim(("c1", "c1", "c2")[number], data, "all", data.draw(PICKS), True)

    # --- the operator and the host ----------------------------------------------------------------

    @rule(
        card=st.sampled_from(["all", *CARDS]),
        choices=st.fixed_dictionaries(OFFERED),
        layout=st.sampled_from(["flat", "nested"]),
        report=st.sampled_from([True, True, False]),
        disturbance=st.none() | disturbances(),
    )
    def configure(
        self, card: str, choices: dict[str, str], layout: str, report: bool, disturbance: Any
    ) -> None:
        """Everything anew, or what is offered of one card."""
        walk = self.walk
        if card == "all":
            walk.restart(choices, layout, report, disturbance)
        else:
            walk.restart(
                {**self.account.choices, card: choices[card]},
                walk.site.layout,
                walk.site.report,
                disturbance,
            )

    @rule(
        node=NODES,
        what=st.sampled_from(["function", "functions", "card", "cell", "cell", "answer"]),
        data=st.data(),
    )
    def change_the_host(self, node: str, what: str, data: Any) -> None:
        """A function or all of a card come or go, as when somebody writes sriov_numvfs; a card
        comes or goes, or is found in another cell.
        """
        host = self.account.hosts[node]
        card = data.draw(
            st.sampled_from(
                [
                    one
                    for one in sorted(host.numa)
                    if what not in ("function", "functions") or CARDS[one]
                ]
            )
        )
        if what == "answer":
            host.answers ^= True
        elif what == "cell":
            host.numa[card] = data.draw(st.sampled_from([None, 0, 1]))
        elif what == "function" and card in host.there:
            host.there ^= {data.draw(st.sampled_from(CARDS[card]))}
        elif what == "functions" or card in host.there:
            host.there -= {*CARDS[card], *([card] if what == "card" else [])}
        elif what == "card":
            host.there |= {card, *CARDS[card]}

    # --- audits -----------------------------------------------------------------------------------

    @rule(whole=st.booleans())
    def audit(self, whole: bool) -> None:
        if whole:
            self.walk.audit()
        else:
            self.walk.one_pass()

    @rule(disturbance=disturbances())
    def disturbed_audit(self, disturbance: Any) -> None:
        self.walk.disturbed_audit(disturbance)

    # --- guests -----------------------------------------------------------------------------------

    @rule(
        node=NODES,
        data=st.data(),
        told=TOLD,
        pick=PICKS,
        comes=st.sampled_from([True, True, True, False]),
    )
    def claim(self, node: str, data: Any, told: str, pick: int, comes: bool) -> None:
        name = self.walk.claim(node, self.wanted(data, node), told, pick)
        if name is not None and comes:
            self.walk.arrive(name)

    @precondition(lambda self: self.free())
    @rule(data=st.data(), alias=st.sampled_from(sorted(COUNTED_BY)), count=st.integers(1, 2))
    def attach(self, data: Any, alias: str, count: int) -> None:
        self.walk.attach(data.draw(st.sampled_from(self.free())), (Asked(alias, count),))

    @precondition(lambda self: self.free())
    @rule(
        data=st.data(),
        what=st.sampled_from(["delete", "abort", "detach", "in use", "in use"]),
        late=LATE,
    )
    def change(self, data: Any, what: str, late: bool) -> None:
        """A guest goes, gives back what it got beside its room, or uses it."""
        waiting = {
            one.guest: one.id
            for one in self.account.claims.values()
            if (one.half, one.state, one.purpose) == ("only", "held", PURPOSES.get(what))
        }
        having = {one.guest for one in self.account.claims.values() if one.purpose == "devices"}
        fitting = {"delete": self.account.guests.keys(), "detach": having}.get(what, waiting.keys())
        if not (names := [name for name in self.free() if name in fitting]):
            return
        name = data.draw(st.sampled_from(names))
        if what == "delete":
            self.walk.delete(name, late)
        elif what == "detach":
            self.walk.detach(name)
        elif what == "abort":
            self.walk.abort(waiting[name], late)
        else:
            self.walk.in_use(waiting[name])

    @precondition(lambda self: self.movable())
    @rule(
        data=st.data(),
        node=st.sampled_from(["c1", "c2"]),
        type=st.sampled_from(["resize", "resize", "migration", "live-migration"]),
        told=TOLD,
        pick=PICKS,
        steps=st.sampled_from(["", "", "on", "back", "on on", "on back"]),
    )
    def move(self, data: Any, node: str, type: str, told: str, pick: int, steps: str) -> None:
        name = data.draw(st.sampled_from(self.movable()))
        if type != "resize":
            node = {"c1": "c2", "c2": "c1"}[self.account.guests[name]]
        id = self.walk.move(
            name, type, node, self.wanted(data, node) if type == "resize" else (), told, pick
        )
        for step in steps.split():
            if id is not None and self.account.going_on(id):
                self.go_on_with(id, step, data.draw(LATE))
                self.walk.one_pass()

    def wanted(self, data: Any, node: str) -> Any:
        """Mostly something that can be had."""
        free = self.account.hosts[node].free()
        likely = [one for one in WANTED if one and fits(free, tuple(Asked(*each) for each in one))]
        return data.draw(st.sampled_from([*likely * 5, *WANTED]))

    @precondition(lambda self: self.moves())
    @rule(data=st.data(), what=st.sampled_from(["on", "on", "back"]), late=LATE)
    def go_on(self, data: Any, what: str, late: bool) -> None:
        self.go_on_with(data.draw(st.sampled_from(self.moves())), what, late)

    def go_on_with(self, id: str, what: str, late: bool) -> None:
        arrived = self.account.moves[id].status == "arrived"
        step = {
            (False, "on"): self.walk.finish,
            (False, "back"): self.walk.abort,
            (True, "on"): self.walk.confirm,
            (True, "back"): self.walk.revert,
        }
        step[arrived, what](id, late)

    @precondition(lambda self: self.walk.late)
    @rule(data=st.data())
    def catch_up(self, data: Any) -> None:
        self.walk.catch_up(data.draw(st.sampled_from(sorted(self.walk.late))))

    def free(self) -> list[str]:
        """The guests for which nobody has anything left to do."""
        return sorted(self.account.guests.keys() - self.walk.late.keys())

    def movable(self) -> list[str]:
        return [
            name
            for name in self.free()
            if all(one.half == "only" for one in self.account.of(name))
            and any(
                one.state == "consumed" and one.purpose != "devices"
                for one in self.account.of(name)
            )
        ]

    def moves(self) -> list[str]:
        return [id for id in self.account.moves if self.account.going_on(id)]

    # --- others in Placement ----------------------------------------------------------------------

    @rule(
        data=st.data(), what=st.sampled_from(["child", "trait", "class", "reserve", "share", "go"])
    )
    def meddle(self, data: Any, what: str) -> None:
        there, foreign, other = self.first.dump(), self.walk.foreign, self.first.other
        ours = [uuid for uuid in sorted(there["providers"]) if uuid not in foreign.children]
        names = {f"{node}_{address.upper()}" for node in ("c1", "c2") for address in NAMES.values()}
        cards = [uuid for uuid in ours if there["providers"][uuid]["name"] in names]
        if what == "go" and foreign.consumers:
            gone = data.draw(st.sampled_from(sorted(foreign.consumers)))
            other.release(gone)
            foreign.consumers.remove(gone)
        elif what == "child":
            child = other.create_provider(
                f"theirs {len(foreign.children)}", parent=data.draw(st.sampled_from(ours))
            )
            other.set_inventory(child, {THEIR_CLASS: 2})
            foreign.children.append(child)
            foreign.consumers.add(other.claim({child: {THEIR_CLASS: 1}}))
        elif what == "trait":
            uuid = data.draw(st.sampled_from(ours))
            other.set_traits(uuid, {*there["providers"][uuid]["traits"], THEIR_TRAIT})
            foreign.traits.add(uuid)
        elif cards:
            uuid = data.draw(st.sampled_from(cards))
            records = {
                name: one
                for name, one in there["providers"][uuid]["inventories"].items()
                if name != THEIR_CLASS
            }
            self._of_a_card(data, what, uuid, records)

    def _of_a_card(self, data: Any, what: str, uuid: str, records: dict[str, Any]) -> None:
        foreign, other = self.walk.foreign, self.first.other
        theirs = (
            {THEIR_CLASS: other.inventory(uuid)[THEIR_CLASS]} if uuid in foreign.classes else {}
        )
        if what == "class" and not theirs:
            other.set_inventory(uuid, {**records, THEIR_CLASS: 2})
            foreign.classes.add(uuid)
            if data.draw(st.booleans()):
                foreign.consumers.add(other.claim({uuid: {THEIR_CLASS: 1}}))
        for name, record in records.items():
            used = (
                other.call("GET", f"/resource_providers/{uuid}/usages")
                .json()["usages"]
                .get(name, 0)
            )
            if what == "reserve":
                other.set_inventory(
                    uuid,
                    {
                        **records,
                        **theirs,
                        name: {**record, "reserved": data.draw(st.integers(0, record["total"]))},
                    },
                )
            elif what == "share" and record["total"] - record["reserved"] > used:
                foreign.consumers.add(other.claim({uuid: {name: 1}}))


@pytest.fixture
def placements(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """One for the walk and one for the comparison; whatever is tried again is tried at once."""
    for wait in ("LEAST_WAIT", "LONGEST_WAIT", "LEAST_READ_WAIT", "LONGEST_READ_WAIT"):
        monkeypatch.setattr(retry, wait, 0.0)
    backends.require("placement.deploy")
    from tests.support.placement import PlacementServer

    servers = PlacementServer(), PlacementServer()
    yield servers
    for one in servers:
        one.close()


# Hypothesis is limited by examples, and not by time.
@pytest.mark.timeout(900 if EXAMPLES <= 10 and not SHRINK else 0)
def test_devices_are_never_given_twice_and_the_tree_is_in_the_end_as_a_fresh_one(
    placements: tuple[Any, Any], tmp_path: Path
) -> None:
    met: Counter[str] = Counter()
    machine = type(
        "Machine",
        (DevicesMachine,),
        {"first": placements[0], "second": placements[1], "met": met, "folder": tmp_path},
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate, *SHRINK),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
    never = {*ALL_MET} - (+met).keys()
    assert EXAMPLES < 100 or not never, "these were never met, so nothing is known of them"
