"""Guests that move between two hosts, there and back: with stores of their own, as is the default,
and with one.

What becomes of the allocations is in tests/functional/test_two_agents.py.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.model.names import ConsumerUuid
from agent.model.node_records import Migration, MigrationType, RecordChanges
from agent.store.store import open_store
from agent.tracker.errors import WrongState
from agent.tracker.moves import drop_half, finish, progress, revert
from agent.tracker.stored_state import RECORDED_FLAVOR, InstanceUpdate, MoveClaim
from tests.support.tracking import (
    F1,
    F3,
    FN,
    Host,
    World,
    guest,
    instance,
    refused,
    step,
    twin,
    uuid_of,
)

EMPTY = "512/1/2048"
AS = {F1.id: "2560/2/22528", F3.id: "8704/5/84992"}
KINDS: tuple[MigrationType, ...] = ("resize", "migration", "live-migration", "evacuation")
ONE_STORE, OWN_STORES = "one store", "stores of their own"


class Road:
    """The hosts HA and HB, and the guest i1 that goes to and fro between them. ``here``: where it
    is, with ``flavor``.
    """

    def __init__(self, a: World, b: World) -> None:
        self.is_one, self.numbers = a is b, count()
        self.worlds = (a, b)
        self.a, self.b = a.plain("HA"), b.plain("HB")
        b.time = a.time
        self.b.time = a.time
        self.b.restart()
        self.b.audit(start=True)
        self.here, self.flavor = self.a, F1
        self.id = ""

    def built(self, host: Host) -> None:
        """It is built there."""
        host.claim("i1", self.flavor, id=f"claim-{next(self.numbers)}")
        host.update("i1", vm_state="active")
        self.here = host

    @property
    def there(self) -> Host:
        """Where it is not."""
        return self.b if self.here is self.a else self.a

    def request(self, kind: MigrationType) -> MoveClaim:
        """A move to the other host, by a new id."""
        self.id = uuid_of(f"move-{next(self.numbers)}")
        described = instance(
            "i1", self.flavor, host=self.here.name, node=self.here.node, vm_state="active"
        )
        flavor = None
        if kind == "resize":
            flavor = F3 if self.flavor is F1 else F1
        told = frozenset({"uuid", "host", "node", "flavor"})
        return MoveClaim(
            id=self.id,
            type=kind,
            node=self.there.node,
            host=self.there.name,
            instance=described,
            given_fields=told,
            flavor=flavor,
        )

    def asked(self, call: Callable[[Host], Any], *hosts: Host) -> None:
        """Ask both, the destination first, each twice; on one store the second only repeats the
        first.
        """
        for number, host in enumerate(hosts or (self.there, self.here)):
            assert call(host).repeated == (self.is_one and number > 0)
            self.killed(host)
            assert call(host).repeated

    def killed(self, host: Host) -> None:
        """Its agent starts anew."""
        host.restart()
        host.audit(start=True)

    def leave(self, kind: MigrationType, *hosts: Host) -> MoveClaim:
        """Room is made for it."""
        request = self.request(kind)
        self.asked(lambda host: host.tracker.claim_move(request), *hosts)
        return request

    def step(self, word: str, *hosts: Host) -> None:
        """The move goes a step further."""
        self.asked(lambda host: step(host.tracker, word, self.id), *hosts)

    def moved(self, request: MoveClaim) -> None:
        """It is on the other host now."""
        self.here, self.flavor = self.there, request.flavor or self.flavor

    def goes(self, kind: MigrationType, end: str) -> None:
        """A whole move."""
        source, dest, before = self.here, self.there, self.flavor
        request = self.leave(kind)
        after = request.flavor or self.flavor
        assert (source.usage, dest.usage) == (AS[before.id], AS[after.id])
        if end == "abort":
            self.step("abort")
            return
        self.step("finish")
        if kind in ("live-migration", "evacuation"):
            self.moved(request)
            return
        assert (source.usage, dest.usage) == (AS[before.id], AS[after.id])
        if end == "revert":
            dest.update("i1", task_state="resize_reverting")
            self.step("revert")
            return
        self.step("confirm")
        self.moved(request)

    def settled(self) -> None:
        """It counts where it is, once, whoever is started anew or audited; and is on
        record there.
        """
        for host in (self.a, self.b):
            self.killed(host)
            told = host.audit()
            assert told.drift == ()
            assert (host.usage, told.usage.migrations) == (
                AS[self.flavor.id] if host is self.here else EMPTY,
                0,
            )
        for world in {id(world): world for world in self.worlds}.values():
            with world.records.reading() as reading:
                found = reading.instance(guest("i1"))
                assert found is not None
                assert (found.host, found.node, found.old_flavor, found.new_flavor) == (
                    self.here.name,
                    self.here.node,
                    None,
                    None,
                )
        (claim,) = self.here.claims("i1")
        assert (claim.half, claim.migration, claim.flavor_id, claim.node) == (
            "only",
            None,
            self.flavor.id,
            self.here.node,
        )


@pytest.fixture(params=[ONE_STORE, OWN_STORES])
def road(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Road]:
    with ExitStack() as stack:
        a = World(stack.enter_context(open_store(tmp_path / "a")))
        b = (
            a
            if request.param == ONE_STORE
            else World(stack.enter_context(open_store(tmp_path / "b")))
        )
        yield Road(a, b)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Road]:
    """Only with stores of their own."""
    with open_store(tmp_path / "a") as a, open_store(tmp_path / "b") as b:
        yield Road(World(a), World(b))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_guest_comes_back_as_often_as_it_likes(road: Road, kind: MigrationType) -> None:
    road.built(road.a)
    for _ in range(2):
        for end in (
            "abort",
            *(() if kind in ("live-migration", "evacuation") else ("revert",)),
            "stay",
        ):
            road.goes(kind, end)
            road.settled()


def test_a_guest_comes_back_by_moves_of_all_kinds(road: Road) -> None:
    road.built(road.a)
    for kind in (*KINDS, *KINDS[::2], *KINDS[1::2], KINDS[0], *KINDS):
        road.goes(kind, "stay")
        road.settled()
    assert road.flavor in (F1, F3)


def test_a_dead_source_is_told_of_the_evacuation_when_it_is_back(road: Road) -> None:
    road.built(road.a)
    a, b = road.a, road.b
    for word in ("finish", "abort"):
        request = road.leave("evacuation", b)
        road.step(word, b)
        assert b.usage == (AS[F1.id] if word == "finish" else EMPTY)
        if not road.is_one:
            # It counts what it knew last.
            road.killed(a)
            assert a.usage == AS[F1.id]
            road.asked(lambda host, request=request: host.tracker.claim_move(request), a)
            road.step(word, a)
        if word == "finish":
            road.moved(request)
            road.settled()
            road.goes("live-migration", "stay")
        road.settled()


ENDS: list[tuple[MigrationType, str]] = [
    ("evacuation", "abort"),
    ("live-migration", "abort"),
    ("resize", "abort"),
    ("resize", "revert"),
    ("resize", "confirm"),
    ("evacuation", "finish"),
]


@pytest.mark.parametrize(("kind", "end"), ENDS)
def test_a_source_that_was_dead_is_told_of_a_move_that_has_ended_meanwhile(
    road: Road, kind: MigrationType, end: str
) -> None:
    road.built(road.a)
    a, b = road.a, road.b
    words = ["finish", *([] if end == "finish" else [end])] if end != "abort" else ["abort"]
    request = road.leave(kind, b)
    for word in words:
        if word == "revert":
            b.update("i1", task_state="resize_reverting")
        road.step(word, b)
    late = road.id
    for again in (False, True):
        # Where it ended is told once more after all is told.
        assert a.tracker.claim_move(request).repeated == (road.is_one or again)
        for word in words:
            assert step(a.tracker, word, late).repeated == (road.is_one or again)
    if end in ("confirm", "finish"):
        road.moved(request)
    road.settled()
    if road.is_one:
        with (
            refused(road.worlds[0], "claim.released")
            if end in ("abort", "revert")
            else nullcontext()
        ):
            # Who would have to give room says that it was given back.
            assert b.tracker.claim_move(request).repeated


def test_a_destination_that_died_for_good_keeps_nobody_from_giving_the_move_up(own: Road) -> None:
    own.built(own.a)
    own.leave("migration")
    own.step("abort", own.a)
    assert own.a.usage == AS[F1.id]
    (claim,) = own.a.claims("i1")
    assert (claim.half, claim.migration) == ("only", None)
    # It comes back after all.
    own.step("abort", own.b)
    own.settled()


def test_a_guest_that_left_comes_back_to_be_built(road: Road) -> None:
    road.built(road.a)
    road.goes("migration", "stay")
    road.b.update("i1", vm_state="shelved_offloaded")
    road.built(road.a)
    for host in (road.a, road.b):
        road.killed(host)
    assert (road.a.usage, road.b.usage) == (AS[F1.id], EMPTY)
    road.goes("live-migration", "stay")
    road.settled()


def test_a_guest_comes_back_by_way_of_a_third_host(own: Road, tmp_path: Path) -> None:
    own.built(own.a)
    own.goes("migration", "stay")
    with open_store(tmp_path / "c") as store:
        third = World(store)
        third.time = own.a.time
        first, own.a = own.a, third.plain("HC")
        own.goes("resize", "stay")
        own.b = first
        own.goes("resize", "stay")
        assert own.here is first
        assert (first.usage, own.a.usage) == (AS[F1.id], EMPTY)


@pytest.mark.parametrize("word", ["finish", "confirm", "revert", "abort"])
def test_an_end_that_was_told_nothing_of_a_move_takes_no_step(own: Road, word: str) -> None:
    own.built(own.a)
    own.leave("migration", own.b)
    with refused(own.worlds[0], "claim.unknown"):
        step(own.a.tracker, word, own.id)


def test_the_source_refuses_steps_out_of_order_as_the_destination_does(road: Road) -> None:
    road.built(road.a)
    road.leave("resize")
    for host in (road.a, road.b):
        for word in ("confirm", "revert"):
            with refused(road.worlds[0], "state.wrong"):
                step(host.tracker, word, road.id)
    road.step("finish")
    for host in (road.a, road.b):
        with refused(road.worlds[0], "state.wrong"):
            host.tracker.abort(road.id)
    road.step("confirm")
    for host in (road.a, road.b):
        for word in ("abort", "revert"):
            with refused(road.worlds[0], "state.wrong"):
                step(host.tracker, word, road.id)


def test_a_source_that_was_dead_is_told_of_a_move_whose_guest_has_gone_on_since(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "one") as store:
        world = World(store)
        road = Road(world, world)
        road.built(road.a)
        first, request = road.leave("resize", road.b), road.id
        for word in ("finish", "confirm"):
            road.step(word, road.b)
        road.moved(first)
        road.b.update("i1", vm_state="deleted", deleted=True)
        assert road.a.tracker.claim_move(first).repeated
        for word in ("finish", "confirm"):
            assert step(road.a.tracker, word, request).repeated


def test_a_source_whose_node_another_agent_has_taken_is_elsewhere_and_not_unknown(
    own: Road,
) -> None:
    own.built(own.a)
    leaving = own.leave("migration")
    request = own.request("migration")
    own.a.node_leases.release()
    twin(own.worlds[0], own.a, "HC").audit(start=True)
    own.a.restart()
    own.a.usage_step.set_listed_nodes([own.a.node])
    for ask in (
        lambda: own.a.tracker.claim_move(request),
        lambda: own.a.tracker.change(leaving.id, finish),
        lambda: own.a.tracker.abort(leaving.id),
    ):
        with refused(own.worlds[0], "node.elsewhere") as caught:
            ask()
        assert "host HC" in caught.value.message


def test_a_source_that_does_not_know_the_guest_takes_note_of_where_it_goes(own: Road) -> None:
    # Its record was lost with its disk.
    own.b.claim("i2", F1)
    request = own.leave("evacuation")
    own.step("finish")
    own.moved(request)
    assert own.a.instance("i1").host == "HB"
    assert own.a.usage == EMPTY


def test_what_is_said_of_the_guest_agrees_with_the_record_or_what_differs_is_told(
    road: Road,
) -> None:
    road.built(road.a)
    request = road.request("migration")
    wrong = replace(request.instance, flavor=F3, volume_backed=True, host="HZ", node=None)
    told = frozenset({"host", "node", "flavor", "volume_backed", "project_id"})
    asked = (road.a,) if not road.is_one else (road.b,)
    for host in asked:
        with refused(road.worlds[0], "instance.differs") as caught:
            host.tracker.claim_move(replace(request, instance=wrong, given_fields=told))
        assert sorted(reason.split()[0] for reason in caught.value.reasons) == [
            "host",
            "its",
            "its",
            "its",
            "its",
            "its",
            "its",
            "node",
            "volume_backed",
        ]
        assert "its flavor's memory_mb is 2048, not 8192" in caught.value.reasons


def test_a_host_that_was_not_told_that_its_guest_left_says_so_when_it_comes_back(own: Road) -> None:
    own.built(own.a)
    request = own.leave("migration", own.b)
    own.step("finish", own.b)
    own.step("confirm", own.b)
    own.moved(request)
    back = own.request("live-migration")
    with refused(own.worlds[0], "instance.differs") as caught:
        own.a.tracker.claim_move(back)
    assert "host is HA, not HB" in caught.value.reasons
    own.asked(lambda host: host.tracker.claim_move(request), own.a)
    own.id = request.id
    for word in ("finish", "confirm"):
        own.step(word, own.a)
    own.asked(lambda host: host.tracker.claim_move(back))
    own.id = back.id
    own.step("finish")
    own.moved(back)
    own.settled()


def test_a_guest_whose_flavor_nobody_says_does_not_come_back(own: Road) -> None:
    own.built(own.a)
    own.goes("migration", "stay")
    request = own.request("migration")
    with refused(own.worlds[0], "request.invalid"):
        own.a.tracker.claim_move(
            replace(request, instance=replace(request.instance, flavor=RECORDED_FLAVOR))
        )


def test_a_move_to_a_host_that_nobody_names_is_refused(own: Road) -> None:
    own.built(own.a)
    request = own.request("migration")
    with refused(own.worlds[0], "request.invalid"):
        own.a.tracker.claim_move(replace(request, host=None))
    with refused(own.worlds[1], "node.elsewhere"):
        own.b.tracker.claim_move(replace(request, host="HZ"))
    with refused(own.worlds[0], "node.unknown"):
        own.a.tracker.claim_move(
            replace(request, instance=instance("i7", F1, host="HZ", node=request.node))
        )


def test_on_one_store_the_destination_is_asked_first(tmp_path: Path) -> None:
    with open_store(tmp_path / "a") as store:
        road = Road(world := World(store), world)
        road.built(road.a)
        with refused(world, "node.elsewhere"):
            road.a.tracker.claim_move(road.request("migration"))


def test_pins_at_the_source_wait_for_the_end_of_the_move(own: Road) -> None:
    own.a, own.b = own.worlds[0].numa("HN"), own.worlds[1].numa("HM")
    own.flavor = FN
    own.built(own.a)
    kept = own.a.pinned(0) | own.a.pinned(1)
    own.leave("migration")
    own.step("finish")
    own.a.claim("i2", FN)
    assert kept < own.a.pinned(0) | own.a.pinned(1)
    own.step("confirm")
    assert not kept & (own.a.pinned(0) | own.a.pinned(1))
    assert len(own.b.pinned(0) | own.b.pinned(1)) == len(kept) == 2


def test_what_a_store_was_told_of_guests_that_left_ends_after_a_while(own: Road) -> None:
    own.built(own.a)
    own.goes("live-migration", "stay")
    own.b.time.pass_by(1000)
    records, now = own.worlds[0].records, own.a.time()
    assert records.remove_ended(now - 2000) == 0
    # Both claims, the migration and the instance.
    assert records.remove_ended(now) == 4
    assert own.a.instance("i1") is None
    own.goes("live-migration", "stay")
    own.settled()


def test_a_move_that_waits_for_long_is_found_by_its_source(own: Road) -> None:
    own.built(own.a)
    request = own.leave("migration")
    own.step("finish")
    own.a.time.pass_by(1000)
    for world in own.worlds:
        assert world.records.remove_ended(own.a.time()) == 0
    own.step("confirm")
    own.moved(request)
    own.settled()


def test_each_end_is_told_how_far_a_move_has_come_and_gives_back_only_its_own_half(
    road: Road,
) -> None:
    road.built(road.a)
    road.leave("live-migration")
    for status in ("preparing", "running"):
        reached = partial(progress, status=status)
        road.asked(lambda host: host.tracker.change(road.id, reached))  # noqa: B023 - called at once
    assert (road.a.usage, road.b.usage) == (AS[F1.id], AS[F1.id])
    # Rolled back: the destination has nothing of it any more, and the source has the guest.
    road.b.tracker.change(road.id, partial(drop_half, half="new"))
    assert (road.a.usage, road.b.usage) == (AS[F1.id], EMPTY)
    for host in (road.a, road.b):
        assert host.tracker.change(road.id, partial(drop_half, half="new")).repeated
    with pytest.raises(WrongState):
        road.a.tracker.change(road.id, partial(drop_half, half="old"))
    road.step("abort")
    road.settled()


def test_a_source_gives_back_the_half_that_a_finished_move_left(road: Road) -> None:
    road.built(road.a)
    request = road.leave("migration")
    road.step("finish")
    road.a.tracker.change(road.id, partial(drop_half, half="old"))
    assert (road.a.usage, road.b.usage) == (EMPTY, AS[F1.id])
    with pytest.raises(WrongState):
        road.b.tracker.change(road.id, partial(drop_half, half="new"))
    road.step("confirm")
    road.moved(request)
    road.settled()


def test_a_guest_does_not_go_back_to_a_source_that_gave_its_half_away(road: Road) -> None:
    road.built(road.a)
    road.leave("migration")
    road.step("finish")
    road.a.tracker.change(road.id, partial(drop_half, half="old"))
    if road.is_one:
        road.b.update("i1", task_state="resize_reverting")
    with refused(road.worlds[0], "state.wrong"):
        road.a.tracker.change(road.id, revert)


def test_the_source_of_an_evacuation_that_may_yet_be_aborted_keeps_the_room_of_the_guest(
    road: Road,
) -> None:
    road.built(road.a)
    road.leave("evacuation")
    with refused(road.worlds[0], "state.wrong"):
        road.a.tracker.change(road.id, partial(drop_half, half="old"))
    road.step("abort")
    road.settled()


@pytest.mark.parametrize("status", ["error", "failed", "cancelled"])
def test_a_source_keeps_the_room_of_a_guest_whose_move_its_orchestrator_gave_up(
    road: Road, status: Any
) -> None:
    road.built(road.a)
    road.leave("live-migration")
    for world in dict.fromkeys(road.worlds):
        with world.records.transaction([]) as transaction:
            found = transaction.migration(ConsumerUuid(road.id))
            assert found is not None
            transaction.write(RecordChanges(migrations=(replace(found, status=status),)))
    with refused(road.worlds[0], "state.wrong"):
        road.a.tracker.change(road.id, partial(drop_half, half="old"))
    assert not road.b.tracker.change(road.id, partial(drop_half, half="new")).repeated
    for host in (road.b, road.a):
        host.tracker.abort(road.id)
    road.settled()


def test_a_source_keeps_the_room_of_a_guest_that_is_going_back(road: Road) -> None:
    road.built(road.a)
    road.leave("migration")
    road.step("finish")
    road.asked(lambda host: host.tracker.change(road.id, partial(progress, status="reverting")))
    with refused(road.worlds[0], "state.wrong"):
        road.a.tracker.change(road.id, partial(drop_half, half="old"))
    road.b.tracker.change(road.id, partial(drop_half, half="new"))
    road.b.update("i1", task_state="resize_reverting")
    road.step("revert")
    road.settled()


@pytest.mark.parametrize("status", ["finished", "confirming", "confirmed", "error"])
def test_a_move_does_not_begin_with_a_migration_that_has_arrived(road: Road, status: Any) -> None:
    road.built(road.a)
    request = road.request("live-migration")
    arrived = Migration(
        uuid=guest("m"),
        instance=guest("i1"),
        type="live-migration",
        status=status,
        source_compute="HA",
        source_node=road.a.node,
    )
    with refused(road.worlds[1], "state.wrong"):
        road.b.tracker.claim_move(replace(request, migration=arrived))


def test_who_tells_again_that_a_guest_on_its_way_was_deleted_is_told_to_look(own: Road) -> None:
    own.built(own.a)
    own.leave("resize")
    seen = own.b.instance("i1").version
    own.b.tracker.update(guest("i1"), InstanceUpdate(deleted=True, version=seen))
    with refused(own.worlds[1], "record.changed"):
        own.b.tracker.update(guest("i1"), InstanceUpdate(deleted=True, version=seen))
    assert own.b.instance("i1").deleted
