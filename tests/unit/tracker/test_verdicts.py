"""What an audit finds of a claim: every half, type and status of its move, and every place of its
instance.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import Claim, Half, Migration
from agent.tracker.verdicts import (
    WAITING,
    ClaimVerdict,
    judge_claim,
    left_half_verdicts,
    lone_device_verdicts,
)
from tests.support.tracking import F1
from tests.unit.tracker.samples import STATUSES, TYPES

SOURCE, DEST, THIRD = (ProviderUuid(f"node-{name}") for name in ("source", "dest", "third"))
GUEST, MOVE = ConsumerUuid("guest"), ConsumerUuid("move")
PLACES = {"source": SOURCE, "dest": DEST, "third": THIRD, "none": None}
WAITED, RECENT = 0.0, 1.0

UNDER_WAY = (
    "queued",
    "accepted",
    "pre-migrating",
    "preparing",
    "migrating",
    "running",
    "post-migrating",
)
ARRIVED = ("finished", "confirming", "reverting")
TO_DEST, TO_SOURCE = ("confirmed", "completed", "done"), ("reverted", "failed", "cancelled")


def claim(half: Half, node: ProviderUuid, **fields: Any) -> Claim:
    return Claim(
        id="claim",
        purpose="move" if half == "new" else "instance",
        instance=GUEST,
        node=node,
        half=half,
        migration=MOVE,
        **fields,
    )


def instance(place: str, **fields: Any) -> Instance:
    return Instance(
        uuid=GUEST,
        project_id="p",
        user_id="u",
        flavor=F1,
        node=PLACES[place],
        vm_state=fields.pop("vm_state", "active"),
        **fields,
    )


def move(kind: str, status: str, dest: ProviderUuid = DEST) -> Migration:
    return Migration(
        uuid=MOVE,
        instance=GUEST,
        type=kind,
        status=status,
        source_compute="HA",
        source_node=SOURCE,
        dest_compute="HB",
        dest_node=dest,
    )  # type: ignore[arg-type]


def found(
    half: Half,
    kind: str,
    status: str,
    place: str,
    *,
    left: float = RECENT,
    state: str = "held",
    **fields: Any,
) -> str:
    """What is found of the source's old or the destination's new half."""
    node = SOURCE if half == "old" else DEST
    return judge_claim(
        claim(half, node, state=state), instance(place, **fields), move(kind, status), node, left
    ).kind  # type: ignore[arg-type]


# --- between two nodes: status by place, as source, dest, third, none -----------------------------

OLD = {
    **dict.fromkeys((*UNDER_WAY, *ARRIVED), ("keep", "keep", "keep", "keep")),
    "error": ("only", "keep", "keep", "keep"),
    **dict.fromkeys(TO_DEST, ("only", "release", "release", "release")),
    **dict.fromkeys(TO_SOURCE, ("only", "release", "release", "only")),
}
NEW = {
    **dict.fromkeys((*UNDER_WAY, *ARRIVED, "error"), ("keep", "keep", "keep", "keep")),
    **dict.fromkeys(TO_DEST, ("release", "only", "release", "only")),
    **dict.fromkeys(TO_SOURCE, ("release", "only", "release", "release")),
}
# A move that waits for no confirmation has arrived where its instance is.
STRAIGHT = {
    **NEW,
    **dict.fromkeys((*UNDER_WAY, *ARRIVED, "error"), ("keep", "arrived", "keep", "keep")),
}


def rows() -> Iterator[tuple[Half, str, str, str, str]]:
    for kind, status in product(TYPES, STATUSES):
        straight = kind in ("evacuation", "live-migration")
        for place, old, new in zip(
            PLACES, OLD[status], (STRAIGHT if straight else NEW)[status], strict=True
        ):
            yield "old", kind, status, place, old
            yield "new", kind, status, place, new


@pytest.mark.parametrize(("half", "kind", "status", "place", "expected"), list(rows()))
def test_each_half_of_each_move_at_each_place(
    half: Half, kind: str, status: str, place: str, expected: str
) -> None:
    assert found(half, kind, status, place) == expected
    # What nobody goes on with is told as that, and everything else is as it was.
    told = half == "new" or place == "source"
    stranded = told and expected == "keep" and status not in WAITING
    assert found(half, kind, status, place, left=WAITED) == ("stranded" if stranded else expected)


@pytest.mark.parametrize(
    ("kind", "status", "place"),
    list(product(TYPES, STATUSES, ["source", "dest", "none"])),
)
def test_a_guest_never_loses_both_halves(kind: str, status: str, place: str) -> None:
    halves = {
        found(half, kind, status, place, left=left)
        for half in ("old", "new")
        for left in (WAITED, RECENT)
    }  # type: ignore[arg-type]
    assert halves != {"release"}


@pytest.mark.parametrize(
    ("kind", "status", "place"), list(product(TYPES, [*TO_DEST, *TO_SOURCE], list(PLACES)))
)
def test_of_a_move_that_is_over_at_most_one_half_stays(kind: str, status: str, place: str) -> None:
    assert [found(half, kind, status, place) for half in ("old", "new")].count("only") <= 1  # type: ignore[arg-type]


# --- on one node ----------------------------------------------------------------------------------

SAME = {
    **dict.fromkeys((*UNDER_WAY, *ARRIVED, "error"), ("keep", "keep")),
    **dict.fromkeys(TO_DEST, ("release", "only")),
    **dict.fromkeys(TO_SOURCE, ("only", "release")),
}


@pytest.mark.parametrize(("status", "place"), list(product(STATUSES, ["source", "none"])))
@pytest.mark.parametrize("kind", ["resize", "migration"])
def test_on_one_node_how_the_move_ended_decides(kind: str, status: str, place: str) -> None:
    move_here = move(kind, status, SOURCE)
    both = [
        judge_claim(claim(half, SOURCE), instance(place), move_here, SOURCE, RECENT).kind
        for half in ("old", "new")
    ]  # type: ignore[arg-type]
    assert both == list(SAME[status])


@pytest.mark.parametrize("status", sorted([*TO_DEST, *TO_SOURCE]))
def test_on_one_node_that_the_guest_has_left_since_neither_half_stays(status: str) -> None:
    both = [
        judge_claim(
            claim(half, SOURCE), instance("third"), move("resize", status, SOURCE), SOURCE, RECENT
        ).kind
        for half in ("old", "new")
    ]  # type: ignore[arg-type]
    assert both == ["release", "release"]


# --- what rests and what does not -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "stranded"),
        ({"left": RECENT}, "keep"),
        ({"task_state": "resize_prep"}, "stranded"),
        ({"task_state": "rebuilding"}, "stranded"),
        ({"task_state": "migrating"}, "stranded"),
        ({"vm_state": "resized"}, "stranded"),
        ({"task_state": "powering-off"}, "stranded"),
        ({"state": "consumed"}, "keep"),
    ],
)
def test_a_claim_that_nobody_goes_on_with(fields: dict[str, Any], expected: str) -> None:
    assert (
        found("new", "resize", "pre-migrating", "source", **{"left": WAITED, **fields}) == expected
    )


# --- of no move, and of nobody --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "expected"),
    [("source", "keep"), ("none", "keep"), ("dest", "release"), ("third", "release")],
)
def test_an_only_claim_stays_where_its_instance_is(place: str, expected: str) -> None:
    only = replace(claim("only", SOURCE), migration=None)
    assert judge_claim(only, instance(place), None, SOURCE, WAITED).kind == expected
    # Whether devices go with it is decided by what else is there.
    assert (
        judge_claim(replace(only, purpose="devices"), instance(place), None, SOURCE, WAITED).kind
        == "keep"
    )


@pytest.mark.parametrize("half", ["only", "old", "new"])
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"deleted": True}, "release"),
        ({"vm_state": "deleted"}, "release"),
        ({"vm_state": "shelved_offloaded"}, "release"),
        ({"deleted": True, "hidden": True}, "release"),
    ],
)
def test_what_a_guest_had_that_is_gone_goes_whatever_its_move_says(
    half: Half, status: str, fields: dict[str, Any], expected: str
) -> None:
    assert (
        judge_claim(
            claim(half, SOURCE),
            instance("source", **fields),
            move("resize", status),
            SOURCE,
            RECENT,
        ).kind
        == expected
    )


@pytest.mark.parametrize("half", ["only", "old", "new"])
def test_a_claim_whose_instance_no_record_knows_is_kept_and_told(half: Half) -> None:
    one = judge_claim(claim(half, SOURCE), None, move("resize", "confirmed"), SOURCE, WAITED)
    assert (one.kind, one.reason) == ("unknown", "no record of its instance")


@pytest.mark.parametrize("half", ["old", "new"])
@pytest.mark.parametrize("place", list(PLACES))
def test_a_half_whose_move_no_record_knows_is_kept(half: Half, place: str) -> None:
    assert judge_claim(claim(half, SOURCE), instance(place), None, SOURCE, WAITED).kind == "keep"


# --- the reasons that are reported ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("half", "kind", "status", "fields", "left", "reason"),
    [
        (
            "only",
            "resize",
            "migrating",
            {"place": "dest"},
            RECENT,
            f"its instance is on node {DEST}",
        ),
        ("old", "resize", "migrating", {"deleted": True}, RECENT, "its instance is deleted"),
        (
            "old",
            "resize",
            "migrating",
            {"vm_state": "shelved_offloaded"},
            RECENT,
            "its instance is shelved_offloaded",
        ),
        (
            "old",
            "resize",
            "error",
            {},
            RECENT,
            "its migration failed and the instance is still here",
        ),
        (
            "new",
            "live-migration",
            "running",
            {"place": "dest"},
            RECENT,
            "its instance is here already",
        ),
        ("new", "resize", "confirmed", {"place": "dest"}, RECENT, "its migration is confirmed"),
        ("new", "resize", "reverted", {}, RECENT, "its migration is reverted"),
        (
            "old",
            "resize",
            "migrating",
            {},
            WAITED,
            f"migration {MOVE} is migrating, but its instance is not being moved",
        ),
        (
            "new",
            "resize",
            "migrating",
            {"task_state": "resize_prep"},
            WAITED,
            f"migration {MOVE} is migrating, but its instance is resize_prep, but no progress is "
            "reported",
        ),
        (
            "new",
            "resize",
            "migrating",
            {"vm_state": "resized"},
            WAITED,
            f"migration {MOVE} is migrating, but its instance is resized, but no progress is "
            "reported",
        ),
        ("old", "resize", "migrating", {}, RECENT, ""),
    ],
)
def test_a_verdict_has_its_reason(
    half: Half, kind: str, status: str, fields: dict[str, Any], left: float, reason: str
) -> None:
    node = DEST if half == "new" else SOURCE
    guest = instance(**{"place": "source", **fields})
    assert judge_claim(claim(half, node), guest, move(kind, status), node, left).reason == reason


# --- halves and devices that depend on other claims -----------------------------------------------


def verdicts_on(**kinds: str) -> dict[str, ClaimVerdict]:
    return {id: ClaimVerdict(kind) for id, kind in kinds.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["keep", "release", "only", "arrived", "stranded", "unknown"])
def test_a_sources_half_goes_once_the_other_half_of_its_move_has_arrived_here(kind: str) -> None:
    old, new = (replace(claim(half, SOURCE), id=half) for half in ("old", "new"))
    other = replace(old, id="other", migration=ConsumerUuid("other"))
    alone = replace(old, id="alone", half="only", migration=MOVE)
    found = dict(
        left_half_verdicts(
            [new, alone, other, old],
            verdicts_on(old="keep", new=kind, other="only", alone="only"),
        )
    )
    goes = ClaimVerdict("release", "the other half of its move has arrived here")
    assert found == ({"old": goes} if kind in ("only", "arrived") else {})


@pytest.mark.parametrize("kind", ["keep", "release", "only", "arrived", "stranded", "unknown"])
def test_devices_go_with_the_last_other_claim_of_their_guest(kind: str) -> None:
    room = replace(claim("only", SOURCE), id="room")
    mine = replace(room, id="mine", purpose="devices")
    strange = replace(mine, id="strange", instance=ConsumerUuid("another"))
    gone = ClaimVerdict("release", "its instance is not on this node")
    judged = verdicts_on(room=kind, mine="keep", strange="keep")
    assert dict(lone_device_verdicts([room, mine, strange], (), judged)) == {
        **({"mine": gone} if kind == "release" else {}),
        "strange": gone,
    }
    # A claim that cannot be read may be such a guest's.
    assert dict(lone_device_verdicts([room, mine, strange], ["x"], judged)) == {}
