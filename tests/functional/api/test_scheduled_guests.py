"""What Placement's candidates come to on a host with cells and SR-IOV: the scheduler allocates one,
the agent claims it, and both count the same.
"""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.cell_site import Holdings
from tests.support.local_api import Answer
from tests.support.placement import PlacementServer
from tests.support.scheduled_host import Guest, ScheduledHost, Wanted, scheduled_host, some_wanted
from tests.support.tracking import guest, uuid_of

pytestmark = pytest.mark.long

GUESTS = int(os.environ.get("SCHEDULED_GUESTS", "12"))
"""How many are built in all."""
MOST = 8
MODES = ("mixed", "strict")


class Schedule:
    """Guests that come, are resized and go. ``met``: what became of them, and why claims were
    refused.
    """

    def __init__(self, host: ScheduledHost, seed: int) -> None:
        self.host, self.dice = host, random.Random(seed)
        self.guests: dict[str, Guest] = {}
        self.met: Counter[str] = Counter()
        self.moves = 0

    def comes(self, name: str) -> None:
        """A guest is built, unless there is no room for it."""
        wanted = some_wanted(self.dice, strict=self.host.strict)
        if (held := self._allocation(wanted)) is None:
            return
        why = self.host.refused_for(wanted, held)
        answer = self.host.build(name, wanted, held)
        self._judge(answer, why, wanted, held)
        if why is None:
            self.guests[name] = Guest(name, wanted, {guest(name): held})
            self.met["built"] += 1

    def is_resized(self) -> None:
        """A guest that rests gets another flavor on the same host, for now."""
        if not (resting := [one for one in self.guests.values() if one.move is None]):
            return
        found, wanted, self.moves = (
            self.dice.choice(resting),
            some_wanted(self.dice, strict=self.host.strict),
            self.moves + 1,
        )
        if (held := self._allocation(wanted)) is None:
            return
        why, move = self.host.refused_for(wanted, held), f"move-{self.moves}"
        self._judge(
            self.host.resize(found.name, wanted, held, move, audited=self.dice.random() < 0.5),
            why,
            wanted,
            held,
        )
        if why is None:
            found.held = {
                uuid_of(f"migration-{move}"): found.held[guest(found.name)],
                guest(found.name): held,
            }
            found.move, found.before, found.wanted = move, found.wanted, wanted
            self.met["resized"] += 1

    def resize_ends(self) -> None:
        """A resize is confirmed or reverted."""
        if not (waiting := [one for one in self.guests.values() if one.move is not None]):
            return
        found, confirmed = self.dice.choice(waiting), self.dice.random() < 0.5
        self.host.ends(found.name, str(found.move), confirmed=confirmed)
        old, new = found.held.values()
        found.held, found.wanted = (
            {guest(found.name): new if confirmed else old},
            found.wanted if confirmed else found.before or found.wanted,
        )
        found.move = found.before = None
        self.met["confirmed" if confirmed else "reverted"] += 1

    def goes(self) -> None:
        """A guest is deleted, whatever it was about; what it holds goes with it, or is left to the
        agent.
        """
        if self.guests:
            found = self.guests.pop(self.dice.choice(sorted(self.guests)))
            self.host.becomes(found.name, deleted=True)
            if self.dice.random() < 0.5:
                self.host.placement.other.release(guest(found.name))
            self.met["deleted"] += 1

    def _allocation(self, wanted: Wanted) -> Holdings | None:
        """Any of the candidates."""
        offers = self.host.offers(
            wanted, isolated=self.dice.random() < 0.3, near=self.dice.random() < 0.5
        )
        self.met["offered" if offers else "no candidate"] += 1
        return self.dice.choice(sorted(offers, key=str)) if offers else None

    def _judge(self, answer: Answer, why: str | None, wanted: Wanted, held: Holdings) -> None:
        """A claim is refused for a reason that there is, and for no other."""
        named = {self.host.names[uuid]: one for uuid, one in held.items()}
        assert (answer.status, why) == (201, None) or (answer.status == 409 and why is not None), (
            why,
            answer,
            wanted,
            named,
        )
        if why is not None:
            assert answer.code == "resources.unavailable"
            self.met[f"refused: {why}"] += 1

    def is_exact(self) -> None:
        """Each holds what it was allocated, and what is free of each provider Placement and the
        records know alike.
        """
        report = self.host.pass_()
        # Placement was asked for amounts: nova's scheduler would ask for the traits of this host too.
        drift = [one for one in report.drift if one.kind != "misplaced-guest"]
        assert (drift, report.errors) == ([], ())
        wanted = {
            consumer: held for one in self.guests.values() for consumer, held in one.held.items()
        }
        found = {
            uuid: one["allocations"]
            for uuid, one in self.host.placement.dump()["consumers"].items()
            if one["allocations"]
        }
        assert found == wanted
        assert self.host.free_in_placement() == self.host.free_on_record()


@pytest.mark.parametrize("mode", MODES)
def test_what_the_scheduler_allocates_can_be_claimed_and_what_is_free_of_each_provider_both_know_alike(
    mode: str, placement: PlacementServer, tmp_path: Path
) -> None:
    with scheduled_host(placement, tmp_path / "state", strict=mode == "strict") as host:
        schedule = Schedule(host, int(os.environ.get("SCHEDULED_SEED", "1")))
        schedule.is_exact()
        number = 0
        while schedule.met["built"] < -(-GUESTS // len(MODES)):
            number += 1
            schedule.comes(f"g{number}")
            for often, what in (
                (0.25, schedule.is_resized),
                (0.25, schedule.resize_ends),
                (0.35, schedule.goes),
                (0.2, host.cleaned),
            ):
                if schedule.dice.random() < often:
                    what()
            if len(schedule.guests) > MOST:
                schedule.goes()
            # Claims come between two audits too, and before the agent has taken what deleted guests
            # have left.
            if schedule.dice.random() < 0.4:
                schedule.is_exact()
        while schedule.guests:
            schedule.goes()
        host.cleaned()
        schedule.is_exact()
    print(f"{mode}: {dict(schedule.met)}")
