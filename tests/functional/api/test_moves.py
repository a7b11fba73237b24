"""Moves over the socket: resize, cold and live migration, evacuation."""

from dataclasses import replace

import pytest

from agent.model.facts import Cell, PagePool, Topology
from agent.model.instance import Flavor
from tests.support.site import (
    Body,
    Site,
    allocated,
    claim_body,
    flavor_body,
    instance_body,
    move_body,
)
from tests.support.tracking import F1, F3, FN, Host, guest, rows, uuid_of

MOVE, EMPTY = uuid_of("move-i1"), "512/1/2048"
STEPS = ("finish", "confirm", "revert", "abort")


def step(site: Site, word: str, **expected: object) -> Body:
    """Take the move of i1 there, twice: the second time nothing changes."""
    first = site.call("POST", f"/v1/moves/{MOVE}/{word}")
    assert (first.status, first.json["repeated"]) == (200, False), first
    before = rows(site.world)
    again = site.call("POST", f"/v1/moves/{MOVE}/{word}")
    assert (again.status, again.json) == (200, {**first.json, "repeated": True})
    assert rows(site.world) == before
    move: Body = first.json
    assert {name: move["migration"][name] for name in expected} == expected
    return move


def halves(move: Body) -> dict[str, str]:
    """Of each claim of the move the half and the state."""
    return {one["half"]: one["state"] for one in move["claims"]}


@pytest.fixture
def resizing(site: Site, ha: Host) -> Host:
    """HA with i1, which is to be resized from F1 to F3 there."""
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    assert site.call("POST", "/v1/moves", move_body(ha, "i1", "resize", F3)).status == 201
    return ha


@pytest.fixture
def hb(site: Site) -> Host:
    """The host HB, whose agent answers, and i1 on HA, which shares its store."""
    site.world.plain("HA").claim("i1", F1)
    return site.serve(site.world.plain("HB"))


# --- resize ---------------------------------------------------------------------------------------


def test_a_resize_shows_both_halves(site, resizing):
    move = site.call("GET", f"/v1/moves/{MOVE}").json
    assert halves(move) == {"old": "held", "new": "held"}
    migration = move["migration"]
    assert (migration["uuid"], migration["type"], migration["status"]) == (
        MOVE,
        "resize",
        "pre-migrating",
    )
    assert (migration["old_flavor_id"], migration["new_flavor_id"]) == ("f1", "f3")
    assert {one["migration"] for one in move["claims"]} == {MOVE}
    assert resizing.usage == "10752/6/105472"


def test_a_resize_that_is_confirmed(site, resizing):
    assert halves(step(site, "finish", status="finished")) == {"old": "held", "new": "consumed"}
    assert halves(step(site, "confirm", status="confirmed")) == {"only": "consumed"}
    assert resizing.usage == "8704/5/84992"


def test_a_resize_that_is_reverted(site, resizing):
    step(site, "finish", status="finished")
    site.refused("state.wrong", 409, "POST", f"/v1/moves/{MOVE}/revert")
    resizing.update("i1", task_state="resize_reverting")
    step(site, "revert", status="reverted")
    assert resizing.usage == "2560/2/22528"
    assert site.call("GET", f"/v1/instances/{guest('i1')}").json["flavor"] == flavor_body(F1)


def test_a_resize_that_is_aborted(site, resizing):
    step(site, "abort", status="cancelled")
    assert resizing.usage == "2560/2/22528"
    site.refused("state.wrong", 409, "POST", f"/v1/moves/{MOVE}/finish")


def test_a_move_that_has_arrived_is_not_aborted_nor_is_one_confirmed_that_has_not(site, resizing):
    site.refused("state.wrong", 409, "POST", f"/v1/moves/{MOVE}/confirm")
    step(site, "finish")
    site.refused("state.wrong", 409, "POST", f"/v1/moves/{MOVE}/abort")


def test_the_same_move_again_is_the_same_even_when_it_is_over_and_another_of_its_id_is_refused(
    site, resizing
):
    body = move_body(resizing, "i1", "resize", F3)
    before = rows(site.world)
    again = site.call("POST", "/v1/moves", body)
    assert (again.status, again.json["repeated"]) == (200, True)
    assert rows(site.world) == before
    step(site, "finish")
    step(site, "confirm")
    assert site.call("POST", "/v1/moves", body).status == 200
    site.refused("claim.id-taken", 409, "POST", "/v1/moves", {**body, "flavor": flavor_body(F1)})


# --- between hosts --------------------------------------------------------------------------------


def test_a_cold_migration_frees_its_source_when_it_is_confirmed(site, hb):
    assert site.call("POST", "/v1/moves", move_body(hb, "i1", "migration")).status == 201
    assert hb.usage == "2560/2/22528"
    step(
        site,
        "finish",
        status="finished",
        source_compute="HA",
        dest_compute="HB",
        dest_host="192.0.2.1",
    )
    step(site, "confirm", status="confirmed")
    assert [one.node for one in hb.claims("i1")] == [hb.node]


@pytest.mark.parametrize("volume_backed", [True, False])
@pytest.mark.parametrize("kind", ["migration", "evacuation"])
def test_whether_a_volume_is_the_root_disk_is_what_the_last_claim_says_wherever_the_guest_was_before(
    site, kind, volume_backed
):
    before, after = "2560/2/2048", "2560/2/22528"
    if not volume_backed:
        before, after = after, before
    ha, hb = site.world.plain("HA"), site.world.plain("HB")

    def built(name: str, *, volume_backed: bool) -> None:
        told = instance_body("i1", volume_backed=volume_backed)
        site.serve(ha)
        body = claim_body(ha, "i1", id=uuid_of(name), instance=told)
        assert site.call("POST", "/v1/claims", body).status == 201
        ha.update("i1", vm_state="active")

    def leaves(name: str) -> None:
        site.serve(hb)
        body = {**move_body(hb, "i1", kind), "id": uuid_of(name)}
        assert site.call("POST", "/v1/moves", body).status == 201
        for word in ("finish", "confirm") if kind == "migration" else ("finish",):
            assert site.call("POST", f"/v1/moves/{body['id']}/{word}").status == 200

    built("first", volume_backed=volume_backed)
    leaves("there")
    assert (ha.usage, hb.usage) == (EMPTY, before)
    # It is shelved, and comes back with another root disk.
    hb.update("i1", vm_state="shelved_offloaded")
    hb.audit()
    built("second", volume_backed=not volume_backed)
    assert (ha.usage, hb.usage) == (after, EMPTY)
    leaves("again")
    for start in (False, True):
        for host in (ha, hb):
            if start:
                host.restart()
            host.audit(start=start)
        assert (ha.usage, hb.usage) == (EMPTY, after)


@pytest.mark.parametrize(
    ("kind", "ended"), [("live-migration", "completed"), ("evacuation", "done")]
)
def test_a_live_migration_and_an_evacuation_are_over_when_they_arrive(site, hb, kind, ended):
    assert site.call("POST", "/v1/moves", move_body(hb, "i1", kind)).status == 201
    assert halves(step(site, "finish", status=ended)) == {"only": "consumed"}
    assert site.call("GET", f"/v1/instances/{guest('i1')}").json["host"] == "HB"


def test_the_record_that_the_caller_made_is_used(site, hb):
    told = {
        "uuid": uuid_of("migration"),
        "source_compute": "HA",
        "source_node": uuid_of("HA"),
        "status": "preparing",
    }
    move = site.call(
        "POST", "/v1/moves", move_body(hb, "i1", "live-migration", migration=told)
    ).json
    assert (move["id"], move["migration"]["uuid"], move["migration"]["status"]) == (
        MOVE,
        told["uuid"],
        "preparing",
    )
    assert site.call("GET", f"/v1/moves/{MOVE}").json["migration"]["source_node"] == uuid_of("HA")


def test_a_migration_can_be_named_by_its_uuid_alone(site, hb):
    move = site.call(
        "POST", "/v1/moves", move_body(hb, "i1", "migration", migration=uuid_of("migration"))
    ).json
    assert move["migration"]["uuid"] == uuid_of("migration")
    assert move["migration"]["source_node"] == uuid_of("HA")


def test_a_guest_that_no_record_knows_has_to_be_described(site, ha):
    body = move_body(ha, "i7", "migration")
    site.refused("request.invalid", 400, "POST", "/v1/moves", body)
    told = instance_body(
        "i7", host="HB", node=uuid_of("HB"), flavor=flavor_body(F1), vm_state="active"
    )
    move = site.call("POST", "/v1/moves", {**body, "instance": told}).json
    assert (move["migration"]["source_compute"], move["migration"]["source_node"]) == (
        "HB",
        uuid_of("HB"),
    )
    assert ha.usage == "2560/2/22528"


@pytest.mark.parametrize(
    ("told", "reasons"),
    [
        ({"host": "HZ"}, ["host is HA, not HZ"]),
        (
            {"node": uuid_of("HZ"), "volume_backed": True},
            [f"node is {uuid_of('HA')}, not {uuid_of('HZ')}", "volume_backed is False, not True"],
        ),
        ({"flavor": flavor_body(F3)}, ["its flavor's id is f1, not f3"]),
        ({"image_properties": {"hw_disk_bus": "ide"}}, ["image_properties is"]),
        ({"project_id": "another"}, ["project_id is project, not another"]),
        ({"task_state": "migrating"}, ["task_state is None, not migrating"]),
    ],
)
def test_what_a_move_says_of_its_instance_agrees_with_the_record_or_is_refused(
    site, hb, told, reasons
):
    body = move_body(hb, "i1", "migration")
    answer = site.refused(
        "instance.differs",
        409,
        "POST",
        "/v1/moves",
        {**body, "instance": {**body["instance"], **told}},
    )
    assert all(
        any(line.startswith(reason) for line in answer.json["reasons"]) for reason in reasons
    )
    said = {
        **body["instance"],
        "host": "HA",
        "node": uuid_of("HA"),
        "flavor": flavor_body(F1),
        "task_state": None,
    }
    assert site.call("POST", "/v1/moves", {**body, "instance": said}).status == 201


def test_what_a_move_says_of_its_migration_agrees_with_the_record_or_is_refused(site, hb):
    told = {"uuid": uuid_of("migration"), "source_compute": "HZ"}
    site.refused(
        "instance.differs",
        409,
        "POST",
        "/v1/moves",
        move_body(hb, "i1", "migration", migration=told),
    )
    site.refused(
        "node.elsewhere",
        409,
        "POST",
        "/v1/moves",
        {**move_body(hb, "i1", "migration"), "host": "HZ"},
    )


def test_a_migration_that_is_on_record_already_is_as_the_request_says_or_the_move_is_refused(
    site, ha
):
    """Of a guest that no record knows, too: the first half of its move was dropped, and the
    migration goes on.
    """
    told = instance_body(
        "i7", host="HB", node=uuid_of("HB"), flavor=flavor_body(F1), vm_state="active"
    )
    migration = {
        "uuid": uuid_of("migration"),
        "source_compute": "HB",
        "source_node": uuid_of("HB"),
        "status": "preparing",
        "cross_cell_move": True,
    }
    body = {**move_body(ha, "i7", "live-migration", migration=migration), "instance": told}
    assert site.call("POST", "/v1/moves", body).status == 201
    assert site.call("POST", f"/v1/moves/{body['id']}/drop", {"half": "new"}).status == 200
    again = {**body, "id": uuid_of("again")}
    wrong = {"status": "accepted", "hidden": True, "cross_cell_move": False, "source_compute": "HZ"}
    reasons = [
        "cross_cell_move is True, not False",
        "hidden is False, not True",
        "source_compute is HB, not HZ",
        "status is preparing, not accepted",
    ]
    answer = site.refused(
        "instance.differs", 409, "POST", "/v1/moves", {**again, "migration": {**migration, **wrong}}
    )
    assert answer.json["reasons"] == [f"its migration's {reason}" for reason in reasons]
    assert site.call("POST", "/v1/moves", again).status == 201


def test_a_source_that_was_dead_is_told_of_a_move_with_the_states_that_its_guest_had_then(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    ha.update("i1", vm_state="active")
    told = instance_body(
        "i1",
        host="HA",
        node=ha.node,
        flavor=flavor_body(F1),
        vm_state="error",
        task_state="rebuilding",
    )
    body = {
        **move_body(ha, "i1", "evacuation"),
        "node": uuid_of("HB"),
        "host": "HB",
        "instance": told,
    }
    assert site.call("POST", "/v1/moves", body).status == 201
    shown = site.call("GET", f"/v1/instances/{guest('i1')}").json
    assert (shown["vm_state"], shown["task_state"]) == ("error", "rebuilding")
    step(site, "finish", status="done", dest_compute="HB")
    assert site.call("POST", "/v1/moves", body).json["repeated"]
    assert ha.usage == "512/1/2048"


LARGE = replace(FN, id="large", extra_specs={"hw:mem_page_size": "large"})


@pytest.fixture
def paged(site):
    """The host H1G, whose agent answers, with pages of 1 GiB; it has a store of its own."""
    return site.serve(
        site.world.numa(
            "H1G", Topology((Cell(0, frozenset(range(16)), 16384, pages=(PagePool(1048576, 12),)),))
        )
    )


def from_elsewhere(
    host: Host, flavor: Flavor, kind: str = "live-migration", **fields: object
) -> Body:
    told = instance_body(
        "i7", host="HB", node=uuid_of("HB"), flavor=flavor_body(flavor), vm_state="active"
    )
    return {**move_body(host, "i7", kind), "instance": told, **fields}


def test_a_running_guest_does_not_come_from_another_store_to_pages_of_another_size(site, paged):
    answer = site.refused("request.invalid", 400, "POST", "/v1/moves", from_elsewhere(paged, LARGE))
    assert "page_size_kib" in answer.json["remedy"]
    answer = site.refused(
        "resources.unavailable",
        409,
        "POST",
        "/v1/moves",
        from_elsewhere(paged, LARGE, page_size_kib=2048),
    )
    assert answer.json["reasons"] == [
        "page size differs: the guest runs on pages of 2048 KiB, here it would get 1048576 KiB"
    ]
    site.refused(
        "resources.unavailable",
        409,
        "POST",
        "/v1/moves",
        from_elsewhere(paged, F1, page_size_kib=2048),
    )
    assert (
        site.call("POST", "/v1/moves", from_elsewhere(paged, LARGE, page_size_kib=1048576)).status
        == 201
    )


def test_where_the_flavor_says_the_size_of_its_pages_or_the_guest_is_started_anew_nobody_else_has_to(
    site, paged
):
    fixed = replace(LARGE, extra_specs={"hw:mem_page_size": "1GB"})
    assert site.call("POST", "/v1/moves", from_elsewhere(paged, fixed)).status == 201
    assert site.call("POST", f"/v1/moves/{uuid_of('move-i7')}/abort").status == 200
    assert (
        site.call(
            "POST", "/v1/moves", from_elsewhere(paged, LARGE, "migration", id=uuid_of("cold"))
        ).status
        == 201
    )
    site.refused(
        "request.invalid",
        400,
        "POST",
        "/v1/moves",
        from_elsewhere(paged, LARGE, "migration", id=uuid_of("told"), page_size_kib=2048),
    )


def test_a_source_knows_on_which_pages_its_guest_runs(site, paged):
    site.call("POST", "/v1/claims", claim_body(paged, "i1", LARGE))
    body = {
        **move_body(paged, "i1", "live-migration"),
        "node": uuid_of("HB"),
        "host": "HB",
        "page_size_kib": 2048,
    }
    answer = site.refused("instance.differs", 409, "POST", "/v1/moves", body)
    assert answer.json["reasons"] == ["its page size in KiB is 1048576, not 2048"]
    assert site.call("POST", "/v1/moves", {**body, "page_size_kib": 1048576}).status == 201


@pytest.mark.parametrize("end", ["abort", "revert"])
def test_a_move_that_came_to_nothing_is_not_promised_again_by_its_id(site, resizing, end):
    if end == "revert":
        step(site, "finish")
        resizing.update("i1", task_state="resize_reverting")
    step(site, end)
    site.refused(
        "claim.released", 409, "POST", "/v1/moves", move_body(resizing, "i1", "resize", F3)
    )


def test_a_move_is_called_by_its_migration_too(site, hb):
    migration = uuid_of("migration")
    site.call("POST", "/v1/moves", move_body(hb, "i1", "migration", migration=migration))
    assert (
        site.call("GET", f"/v1/moves/{migration}").json
        == site.call("GET", f"/v1/moves/{MOVE}").json
    )
    answer = site.call("POST", f"/v1/moves/{migration}/abort")
    assert (answer.status, answer.json["id"], answer.json["repeated"]) == (200, MOVE, False)
    assert hb.usage == "512/1/2048"


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", STEPS)
def test_a_claim_that_is_no_move_takes_no_step(site, ha, word):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.refused("claim.unknown", 404, "POST", f"/v1/moves/{uuid_of('claim-i1')}/{word}")
    site.refused("claim.unknown", 404, "POST", f"/v1/moves/{uuid_of('nothing')}/{word}")
    assert ha.usage == "2560/2/22528"


def test_a_claim_that_is_no_move_is_not_shown_as_one(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    for id in ("claim-i1", "nothing"):
        site.refused("claim.unknown", 404, "GET", f"/v1/moves/{uuid_of(id)}")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"type": "teleport"}, "/type"),
        ({"type": "evacuate"}, "/type"),
        ({"flavor": None}, "/flavor"),
        ({"migration": 7}, "/migration"),
        ({"migration": "m1"}, "/migration"),
        ({"migration": {}}, "/migration"),
        ({"migration": {"uuid": MOVE, "status": "lost"}}, "/migration/status"),
        ({"migration": {"uuid": MOVE, "dest_compute": "HZ"}}, "/migration"),
        ({"type": "migration"}, ""),
    ],
    ids=repr,
)
def test_a_body_that_makes_no_sense_is_told_with_the_place(site, ha, changes, pointer):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    answer = site.refused(
        "request.invalid",
        400,
        "POST",
        "/v1/moves",
        {**move_body(ha, "i1", "resize", F3), **changes},
    )
    assert [one["pointer"] for one in answer.json["errors"]] == [pointer]


def test_a_resize_needs_a_flavor(site, ha):
    answer = site.refused(
        "request.invalid", 400, "POST", "/v1/moves", move_body(ha, "i1", "resize")
    )
    assert "a resize has a flavor" in answer.json["detail"]


def test_a_guest_moves_once_at_a_time(site, resizing):
    answer = site.refused(
        "instance.claimed",
        409,
        "POST",
        "/v1/moves",
        move_body(resizing, "i1", "resize", F3, id=uuid_of("another")),
    )
    assert MOVE in answer.json["detail"]


def test_a_guest_does_not_migrate_to_where_it_is(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    for kind in ("live-migration", "evacuation"):
        site.refused("request.invalid", 400, "POST", "/v1/moves", move_body(ha, "i1", kind))


def test_a_guest_that_is_on_no_host_does_not_move(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.call("DELETE", f"/v1/claims/{uuid_of('claim-i1')}")
    site.refused("state.wrong", 409, "POST", "/v1/moves", move_body(ha, "i1", "resize", F3))


def test_a_migration_of_another_guest_or_one_that_is_over_is_not_used(site, hb):
    site.call("POST", "/v1/moves", move_body(hb, "i1", "migration"))
    step(site, "abort", status="cancelled")
    site.refused(
        "state.wrong",
        409,
        "POST",
        "/v1/moves",
        move_body(hb, "i1", "migration", id=uuid_of("again"), migration=MOVE),
    )
    hb.claim("i2", F1)
    site.refused(
        "request.invalid",
        400,
        "POST",
        "/v1/moves",
        move_body(hb, "i2", "resize", F3, migration=MOVE),
    )


def test_a_move_for_which_there_is_no_room_is_refused_with_every_reason(site, hb):
    body = move_body(
        hb,
        "i1",
        "migration",
        limits={"memory_mb": 1, "vcpus": 1},
        allocations=allocated(hb, VCPU=1),
    )
    answer = site.refused("resources.unavailable", 409, "POST", "/v1/moves", body)
    assert len(answer.json["reasons"]) == 2


def test_migrations_are_listed_where_they_lead_from_and_to(site, hb):
    site.call("POST", "/v1/moves", move_body(hb, "i1", "migration"))
    (here,) = site.api.client.migrations()
    assert (here["uuid"], here["status"]) == (MOVE, "pre-migrating")
    site.serve(site.world.plain("HC"))
    assert list(site.api.client.migrations()) == []
    assert site.api.client.move(MOVE)["migration"] == here
