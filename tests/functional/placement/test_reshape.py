"""Inventory that moves between providers, and the allocations that move
with it.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent.api.metrics import Metrics
from agent.audit.context import AuditOptions
from agent.errors import ReshapeNeeded
from agent.model.names import child_uuid
from agent.placement import exchange
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import NAME, ROOT, AgentUnderTest, new_uuid, total
from tests.support.exchange import traffic
from tests.support.monotonic import Clock
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer
from tests.support.settled import ROOT_TRAITS, Want, node, settled

CELL0, CELL1 = f"{NAME}_CELL0", f"{NAME}_CELL1"
N0, N1, PFX = child_uuid(ROOT, "_CELL0"), child_uuid(ROOT, "_CELL1"), child_uuid(ROOT, "PFX")
C = "c0000000-0000-4000-8000-000000000001"
D = "d0000000-0000-4000-8000-000000000002"
NAMES = {ROOT: "R", N0: "N0", N1: "N1", PFX: "PFX", C: "c", D: "d"}
MEMORY = {"MEMORY_MB": total(16384)}
CELL = Want({"VCPU": total(8)}, NAME, {"HW_NUMA_ROOT"})
FLAT = {"VCPU": total(16), **MEMORY}
SPLIT = {NAME: node(MEMORY), CELL0: CELL, CELL1: CELL}
READ_R = ["GET inv R -> 200", "GET ag R -> 200", "GET tr R -> 200"]
COLLECT_C = ["GET al R -> 200", "GET allocations c -> 200"]
ASK_TRAIT = "GET traits?name=in:HW_NUMA_ROOT -> 200"
CREATE = ["POST RP N0 under R -> 200", "POST RP N1 under R -> 200"]

Given = Callable[..., AgentUnderTest]

pytestmark = pytest.mark.usefixtures("short_waits")


def seen(placement: PlacementServer) -> list[str]:
    return traffic(placement.requests, NAMES)


def reshapes(placement: PlacementServer) -> list[Any]:
    return [one for one in placement.requests if one.path == "/reshaper"]


def posted(providers: Sequence[str], consumers: Sequence[str], status: int | str = 204) -> str:
    """The line of a reshape."""
    return " ".join(["POST reshaper", *sorted(providers), *sorted(consumers)]) + f" -> {status}"


@pytest.fixture
def given(host: Host, placement: PlacementServer) -> Given:
    """A host with VCPU and MEMORY_MB on its root, whose driver wants to move the VCPU to two cells
    from now on.

    ``consumers``: what each holds, R standing for the root; ``driver``: one that splits in its own
    way.
    """

    def make(
        consumers: dict[str, dict[str, dict[str, int]]],
        driver: NovaStyleDriver | None = None,
        **options: Any,
    ) -> AgentUnderTest:
        agent = host(driver=driver or NovaStyleDriver(), **options)
        agent.once()
        for consumer, held in consumers.items():
            placement.other.claim(held, consumer)
        agent.driver.split = True
        agent.driver.calls.clear()
        placement.clear()
        return agent

    return make


HELD_BY_C = {C: {ROOT: {"VCPU": 2, "MEMORY_MB": 512}}}


def consumers_after(
    placement: PlacementServer, before: dict[str, Any], moved: dict[str, dict[str, dict[str, int]]]
) -> dict[str, Any]:
    """All consumers of ``before``, the moved ones with what they hold now and one generation on."""
    left = dict(before["consumers"])
    for consumer, allocations in moved.items():
        left[consumer] = {
            **left[consumer],
            "allocations": allocations,
            "generation": left[consumer]["generation"] + 1,
        }
    return left


def test_vcpu_moves_from_the_root_to_two_cells(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()
    g = before["providers"][ROOT]["generation"]
    report = agent.once()
    assert (report.state, report.attempts, agent.driver.calls) == (
        "changed",
        1,
        [False, True],
    )
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        *READ_R,
        *COLLECT_C,
        ASK_TRAIT,
        *CREATE,
        posted(["R", "N0", "N1"], ["c"]),
        "GET in_tree=R -> 200",
        "PUT tr N1 g2 -> 200",
        "PUT tr N0 g3 -> 200",
    ]
    (reshape,) = reshapes(placement)
    assert reshape.body == {
        "inventories": {
            ROOT: {"resource_provider_generation": g, "inventories": MEMORY},
            N0: {"resource_provider_generation": 0, "inventories": {"VCPU": total(8)}},
            N1: {"resource_provider_generation": 0, "inventories": {"VCPU": total(8)}},
        },
        "allocations": {
            C: {
                "allocations": {
                    N0: {"resources": {"VCPU": 2}},
                    ROOT: {"resources": {"MEMORY_MB": 512}},
                },
                "project_id": before["consumers"][C]["project_id"],
                "user_id": before["consumers"][C]["user_id"],
                "consumer_generation": 1,
            }
        },
    }
    assert placement.other.generation(ROOT) == g + 3
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_the_operator_sees_the_move_before_it_is_made(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()
    report = agent.once(dry_run=True)
    assert report.state == "pending"
    assert [one.operation.op for one in report.outcomes] == [
        "create-provider",
        "create-provider",
        "reshape",
        "set-traits",
        "set-traits",
    ]
    assert placement.dump() == before
    planned = [one.operation for one in report.outcomes]
    placement.clear()
    assert [one.operation for one in agent.once().outcomes] == planned
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_without_the_role_service_the_node_is_refused_and_the_next_start_completes_it(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C, roles="admin")
    before = placement.dump()
    report = agent.once()
    assert report.state == "refused"
    (error,) = report.errors
    assert error.code == "reshape.failed"
    assert "service" in error.remedy
    assert seen(placement)[-1] == posted(["R", "N0", "N1"], ["c"], 403)
    sent = [(outcome.operation.op, outcome.status) for outcome in report.outcomes]
    assert sent[:3] == [("create-provider", "done")] * 2 + [("reshape", "failed")]
    assert {status for _, status in sent[3:]} == {"skipped"}
    left = placement.dump()
    assert left["consumers"] == before["consumers"]
    assert left["providers"][ROOT] == before["providers"][ROOT]
    assert [left["providers"][uuid] for uuid in (N0, N1)] == [
        {
            "name": name,
            "parent": ROOT,
            "generation": 0,
            "inventories": {},
            "traits": [],
            "aggregates": [],
        }
        for name in (CELL0, CELL1)
    ]
    agent.roles = "admin,service"
    placement.clear()
    assert agent.once().state == "changed"
    assert [line for line in seen(placement) if line.startswith("POST")] == [
        posted(["R", "N0", "N1"], ["c"])
    ]
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_a_refused_node_is_left_alone_for_as_long_as_the_process_lives(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C, roles="admin")
    first = agent.cycle(start=True)
    placement.clear()
    metrics = Metrics()
    for _ in range(2):
        report = agent.period()
        metrics.count_report(report, 0, whole=True)
        (again,) = report.nodes
        assert (again.state, again.errors, again.drift, again.tree) == (
            first.state,
            first.errors,
            first.drift,
            first.tree,
        )
        assert placement.requests == []
        figures = metrics.text().decode()
        assert 'compute_node_agent_audits_total{state="refused"} 0.0' in figures, (
            "it was counted when it was made"
        )


def test_a_reshape_wanted_by_a_later_cycle_writes_nothing_and_the_daemon_lives(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    agent.driver.split = False
    agent.cycle(start=True)
    agent.driver.split = True
    before = placement.dump()
    placement.clear()
    for start in (False, True):
        report = agent.cycle(start=start)
        assert report.state == "failed"
        assert [one.code for one in report.errors] == ["reshape.needed"]
        assert placement.writes() == []
    agent.driver.split = False
    settled(agent, placement, agent_log, {NAME: node(FLAT)}, before=before)


def test_a_driver_that_wants_a_reshape_with_the_allocations_in_hand_is_at_fault(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    class Stubborn(NovaStyleDriver):
        def move(self, provider_tree: Any, nodename: str, allocations: dict[str, Any]) -> None:
            raise ReshapeNeeded()

    agent = given(HELD_BY_C, Stubborn())
    before = placement.dump()
    report = agent.once()
    assert report.state == "refused"
    assert [one.code for one in report.errors] == ["reshape.failed"]
    assert report.errors[0].message.startswith("driver error: ")
    assert placement.writes() == []
    assert placement.dump() == before


def test_the_second_call_gets_a_fresh_tree(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    """Half of what a driver did before it raised must not be in the tree of the second call."""

    class Hasty(NovaStyleDriver):
        def update_provider_tree(
            self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
        ) -> None:
            if self.split:
                provider_tree.new_child("half-done", nodename)
            super().update_provider_tree(provider_tree, nodename, allocations)
            if self.split:
                provider_tree.remove("half-done")

    agent = given(HELD_BY_C, Hasty())
    before = placement.dump()
    assert agent.once().state == "changed"
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


# --- races ----------------------------------------------------------------------------------------


def test_a_consumer_that_comes_after_the_collecting_is_moved_by_a_second_attempt(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()
    placement.faults.add(
        faults.before(lambda _: placement.other.claim({ROOT: {"VCPU": 3}}, D)),
        method="POST",
        path="^/reshaper",
    )
    report = agent.once()
    assert (report.state, report.attempts, agent.driver.calls) == (
        "changed",
        2,
        [False, True, False, True],
    )
    assert (
        seen(placement)[-11:]
        == [
            posted(["R", "N0", "N1"], ["c"], 409),
            "GET in_tree=R -> 200",
            *READ_R,
            "GET al R -> 200",
            "GET allocations c -> 200",
            "GET allocations d -> 200",
            posted(["R", "N0", "N1"], ["c", "d"]),
            "GET in_tree=R -> 200",
            "PUT tr N1 g2 -> 200",
            "PUT tr N0 g3 -> 200",
        ][-11:]
    )
    before["consumers"][D] = {**before["consumers"][C]}
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}, D: {N0: {"VCPU": 3}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


@pytest.mark.parametrize(
    ("method", "path", "refused"),
    [
        ("GET", f"^/allocations/{C}", []),
        ("POST", "^/reshaper", [posted(["R", "N0", "N1"], ["c", "d"], 409)]),
    ],
    ids=["between the two collecting reads", "before the reshape"],
)
def test_a_consumer_that_is_deleted_meanwhile_is_left_out(
    given: Given,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
    method: str,
    path: str,
    refused: list[str],
) -> None:
    agent = given({**HELD_BY_C, D: {ROOT: {"VCPU": 3}}})
    before = placement.dump()
    placement.faults.add(
        faults.before(lambda _: placement.other.release(C)), method=method, path=path
    )
    report = agent.once()
    assert (report.state, report.attempts) == ("changed", 1 + len(refused))
    assert [line for line in seen(placement) if "reshaper" in line] == [
        *refused,
        posted(["R", "N0", "N1"], ["d"]),
    ]
    del before["consumers"][C]
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, {D: {N0: {"VCPU": 3}}}),
    )


UNKNOWN = [
    (make, applied)
    for make in (
        lambda **how: faults.answer(500, **how),
        lambda **how: faults.answer(401, **how),
        lambda **how: faults.html(404, **how),
        lambda **how: faults.html(413, **how),
        lambda **how: faults.html(401, **how),
    )
    for applied in (True, False)
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "applied"),
    UNKNOWN,
    ids=[f"{make().name}-{'applied' if applied else 'not-applied'}" for make, applied in UNKNOWN],
)
def test_an_answer_that_does_not_say_what_became_of_the_reshape_does_not_refuse_the_node(
    make: Callable[..., faults.Action],
    applied: bool,
    given: Given,
    placement: PlacementServer,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()
    placement.faults.add(make(applied=applied), method="POST", path="^/reshaper")
    report = agent.once()
    assert (report.state, report.attempts) == ("changed", 2)
    assert len(reshapes(placement)) == (1 if applied else 2)
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (faults.answer(500), "see the log of Placement"),
        (faults.html(401), "credentials"),
        (faults.html(413), "client_max_body_size"),
    ],
)
def test_a_reshape_whose_outcome_stays_unknown_is_told_with_the_remedy(
    answer: faults.Action, remedy: str, given: Given, placement: PlacementServer
) -> None:
    agent = given(HELD_BY_C)
    placement.faults.add(answer, method="POST", path="^/reshaper", times=None)
    report = agent.once()
    assert (report.state, len(reshapes(placement))) == ("refused", exchange.MAX_ATTEMPTS)
    assert remedy in report.errors[0].remedy
    placement.faults.clear()
    assert agent.once().state == "changed"


def test_a_read_that_is_refused_after_a_confirmed_reshape_does_not_refuse_the_node(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()

    def refuse_next_read(_: object) -> None:
        placement.faults.add(faults.answer(403), method="GET", path="in_tree=")

    placement.faults.add(faults.after(refuse_next_read), method="POST", path="^/reshaper")
    report = agent.once()
    assert (report.state, report.attempts, len(reshapes(placement))) == ("changed", 2, 1)
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(
            placement, before, {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
        ),
    )


@pytest.mark.long
def test_a_refused_node_does_not_stay_refused_for_ever(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture, clock: Clock
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()
    rule = placement.faults.add(
        faults.answer(409, "placement.inventory.inuse"),
        method="POST",
        path="^/reshaper",
        times=None,
    )
    tried = []
    for minute in range(6 * 60):
        clock.now = 60.0 * minute
        hits = rule.hits
        report = agent.cycle(start=True)
        assert report.state == "refused"
        assert "tried again" in report.errors[0].remedy
        if rule.hits > hits:
            tried.append(minute)
    pauses = [after - at for at, after in itertools.pairwise(tried)]
    assert pauses == sorted(pauses)
    assert (1 <= pauses[0] <= 5, 30 <= pauses[-1] <= 60, len(tried) <= 15) == (True, True, True), (
        pauses
    )
    placement.faults.clear()
    clock.now += 3600.0
    assert agent.cycle(start=True).state == "changed"
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_a_refused_node_does_not_wait_after_a_reload(
    given: Given, placement: PlacementServer, clock: Clock
) -> None:
    agent = given(HELD_BY_C)
    placement.faults.add(
        faults.answer(409, "placement.inventory.inuse"),
        method="POST",
        path="^/reshaper",
        times=exchange.MAX_ATTEMPTS,
    )
    assert agent.cycle(start=True).state == "refused"
    clock.now += 1
    placement.clear()
    assert (agent.cycle(start=True).state, placement.requests) == ("refused", [])
    # A reload that keeps the configuration reads everything again with the same fleet.
    (node,) = agent.fleet.run(AuditOptions(start=True, reread=True)).nodes
    assert node.state == "changed"


def test_a_503_in_answer_to_the_reshape_is_tried_again_by_the_next_start(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    before = placement.dump()
    placement.faults.add(faults.html(503), method="POST", path="^/reshaper")
    report = agent.once()
    assert report.state == "degraded"
    assert placement.dump()["consumers"] == before["consumers"]
    assert agent.once().state == "changed"
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_a_change_right_after_the_reshape_is_seen(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    """The answer has no generations, so that what is read back may be of somebody else's later
    write.
    """
    agent = given(HELD_BY_C)
    before = placement.dump()
    placement.faults.add(
        faults.after(lambda _: placement.other.set_traits(ROOT, {*ROOT_TRAITS, "CUSTOM_RACK7"})),
        method="POST",
        path="^/reshaper",
    )
    report = agent.once()
    assert (report.state, report.attempts) == ("changed", 2)
    assert len(reshapes(placement)) == 1
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    want = {**SPLIT, NAME: node(MEMORY, "CUSTOM_RACK7")}
    settled(
        agent,
        placement,
        agent_log,
        want,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


# --- what is in the request, and what is not ------------------------------------------------------


def test_a_consumer_that_the_driver_forgot_stops_the_reshape_before_any_request(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    class Forgetful(NovaStyleDriver):
        def move(self, provider_tree: Any, nodename: str, allocations: dict[str, Any]) -> None:
            super().move(
                provider_tree,
                nodename,
                {consumer: record for consumer, record in allocations.items() if consumer != D},
            )

    for consumers in ({**HELD_BY_C, D: {ROOT: {"VCPU": 3}}}, {D: {ROOT: {"VCPU": 3}}}):
        agent = given(consumers, Forgetful(), folder=new_uuid())
        before = placement.dump()
        report = agent.once()
        assert report.state == "refused"
        (error,) = report.errors
        assert error.message == f"VCPU is dropped from provider {ROOT} but used by consumer {D}"
        assert placement.writes() == []
        assert placement.dump() == before
        placement.reset()


def dropping(allocations: dict[str, Any]) -> None:
    del allocations[C]


def inventing(allocations: dict[str, Any]) -> None:
    allocations[D] = allocations[C]


def breaking(allocations: dict[str, Any]) -> None:
    allocations[C]["allocations"][ROOT] = {"VCPU": 2}


def emptying(allocations: dict[str, Any]) -> None:
    allocations[C]["allocations"] = {}


def enlarging(allocations: dict[str, Any]) -> None:
    allocations[C]["allocations"][N0] = {"resources": {"VCPU": 9}}


def zeroing(allocations: dict[str, Any]) -> None:
    allocations[C]["allocations"][N0] = {"resources": {"VCPU": 0}}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (dropping, f"driver error: it dropped consumer {C}"),
        (inventing, f"driver error: it invented consumer {D}"),
        (breaking, f"driver error: the allocations of consumer {C} lost their form"),
        (emptying, f"driver error: consumer {C} would hold 0 units in all instead of 514"),
        (enlarging, f"driver error: consumer {C} would hold 521 units in all instead of 514"),
        (zeroing, f"driver error: consumer {C} would hold 512 units in all instead of 514"),
    ],
)
def test_whatever_else_a_driver_does_wrong_stops_the_reshape_before_any_request(
    spoil: Callable[[dict[str, Any]], None], told: str, given: Given, placement: PlacementServer
) -> None:
    class Spoiling(NovaStyleDriver):
        def move(self, provider_tree: Any, nodename: str, allocations: dict[str, Any]) -> None:
            super().move(provider_tree, nodename, allocations)
            spoil(allocations)

    agent = given(HELD_BY_C, Spoiling())
    before = placement.dump()
    report = agent.once()
    assert report.state == "refused"
    (error,) = report.errors
    assert error.message.startswith(told)
    assert placement.writes() == []
    assert placement.dump() == before


def test_a_consumer_that_does_not_move_is_not_in_the_request(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given({**HELD_BY_C, D: {ROOT: {"MEMORY_MB": 64}}})
    before = placement.dump()
    agent.once()
    assert [line for line in seen(placement) if "reshaper" in line] == [
        posted(["R", "N0", "N1"], ["c"])
    ]
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_an_allocation_on_a_sharing_provider_is_kept_and_the_provider_not_written_to(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    aggregate, shared = new_uuid(), placement.other.create_provider("SS")
    placement.other.set_inventory(shared, {"DISK_GB": 1000})
    placement.other.set_traits(shared, ["MISC_SHARES_VIA_AGGREGATE"])
    placement.other.set_aggregates(shared, [aggregate])
    agent = given({C: {ROOT: {"VCPU": 2}, shared: {"DISK_GB": 10}}})
    placement.other.set_aggregates(ROOT, [aggregate])
    before = placement.dump()
    agent.once()
    (reshape,) = reshapes(placement)
    assert shared not in reshape.body["inventories"]
    assert reshape.body["allocations"][C]["allocations"][shared] == {"resources": {"DISK_GB": 10}}
    # Its generation moves by one, because the server counts being named in a consumer's
    # allocations.
    before["providers"][shared]["generation"] += 1
    want = {**SPLIT, NAME: node(MEMORY, aggregates={aggregate})}
    settled(
        agent,
        placement,
        agent_log,
        want,
        before=before,
        consumers=consumers_after(
            placement, before, {C: {N0: {"VCPU": 2}, shared: {"DISK_GB": 10}}}
        ),
    )


def test_an_allocation_on_another_host_is_kept_exactly(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    elsewhere = placement.other.create_provider("host-h")
    placement.other.set_inventory(elsewhere, {"VCPU": 4, "MEMORY_MB": 4096})
    there = {"VCPU": 2, "MEMORY_MB": 512}
    agent = given({C: {ROOT: {"VCPU": 2, "MEMORY_MB": 512}, elsewhere: there}})
    before = placement.dump()
    agent.once()
    (reshape,) = reshapes(placement)
    assert elsewhere not in reshape.body["inventories"]
    before["providers"][elsewhere]["generation"] += 1
    moved = {C: {N0: {"VCPU": 2}, ROOT: {"MEMORY_MB": 512}, elsewhere: there}}
    settled(
        agent,
        placement,
        agent_log,
        SPLIT,
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


class Moving(NovaStyleDriver):
    """First a device of its own, afterwards the same on the root."""

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
    ) -> None:
        self.calls.append(allocations is not None)
        device = {"CUSTOM_FPGA": self.record(4)}
        if not self.split:
            provider_tree.update_inventory(nodename, {"MEMORY_MB": self.record(1024)})
            provider_tree.new_child("PFX", nodename) if not provider_tree.exists("PFX") else None
            provider_tree.update_inventory("PFX", device)
            return
        provider_tree.update_inventory(nodename, {"MEMORY_MB": self.record(1024), **device})
        if provider_tree.exists("PFX"):
            if allocations is None:
                raise ReshapeNeeded("the device moves to the root")
            root, old = provider_tree.data(nodename).uuid, provider_tree.data("PFX").uuid
            for record in allocations.values():
                if old in record["allocations"]:
                    record["allocations"].setdefault(root, {"resources": {}})["resources"].update(
                        record["allocations"].pop(old)["resources"]
                    )
            provider_tree.remove("PFX")


def test_a_provider_that_goes_away_is_emptied_by_the_reshape_and_deleted_after_it(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given({}, Moving())
    placement.other.claim({ROOT: {"MEMORY_MB": 64}, PFX: {"CUSTOM_FPGA": 1}}, C)
    before = placement.dump()
    report = agent.once()
    assert (report.state, report.attempts) == ("changed", 1)
    assert seen(placement)[-3:] == [
        posted(["R", "PFX"], ["c"]),
        "GET in_tree=R -> 200",
        "DELETE RP PFX -> 204",
    ]
    assert reshapes(placement)[0].body["inventories"][PFX]["inventories"] == {}
    want = {NAME: node({"MEMORY_MB": total(1024), "CUSTOM_FPGA": total(4)})}
    moved = {C: {ROOT: {"MEMORY_MB": 64, "CUSTOM_FPGA": 1}}}
    settled(
        agent,
        placement,
        agent_log,
        want,
        before=before,
        gone={"PFX"},
        consumers=consumers_after(placement, before, moved),
    )


def test_another_node_and_what_both_share_stay_as_they_are(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    root_b, name_b, other = new_uuid(), "node-b", placement.other

    class OnlyA(NovaStyleDriver):
        def update_provider_tree(
            self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
        ) -> None:
            split, self.split = self.split, self.split and nodename == NAME
            super().update_provider_tree(provider_tree, nodename, allocations)
            self.split = split

    driver = OnlyA(nodes={ROOT: NAME, root_b: name_b})
    agent = host(driver=driver)
    agent.report()
    shared, aggregate = other.create_provider("SS"), new_uuid()
    other.set_inventory(shared, {"DISK_GB": 1000})
    other.set_traits(shared, ["MISC_SHARES_VIA_AGGREGATE"])
    for uuid in (shared, ROOT, root_b):
        other.set_aggregates(uuid, [aggregate])
    on_b = other.claim({root_b: {"VCPU": 4}, shared: {"DISK_GB": 5}})
    other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 512}, shared: {"DISK_GB": 10}}, C)
    agent.report()
    before = placement.dump()
    driver.split = True
    placement.clear()
    report = agent.report()
    assert {one.name: one.state for one in report.nodes} == {NAME: "changed", name_b: "in-sync"}
    (reshape,) = reshapes(placement)
    assert set(reshape.body["inventories"]) == {ROOT, N0, N1}
    assert set(reshape.body["allocations"]) == {C}
    after = placement.dump()
    assert after["providers"][root_b] == before["providers"][root_b]
    assert after["consumers"][on_b] == before["consumers"][on_b]
    before["providers"][shared]["generation"] += 1
    assert after["providers"][shared] == before["providers"][shared]
    placement.clear()
    assert {one.state for one in agent.report().nodes} == {"in-sync"}
    assert placement.writes() == []


def test_a_reserved_amount_above_the_total_is_refused_here_because_the_server_would_take_it(
    given: Given, placement: PlacementServer
) -> None:
    class Reserving(NovaStyleDriver):
        def record(self, total: int) -> dict[str, Any]:
            return {**super().record(total), "reserved": 9 if total == 8 else 0}

    agent = given(HELD_BY_C, Reserving())
    before = placement.dump()
    report = agent.once()
    assert report.state == "refused"
    assert "VCPU: reserved 9 is above total 8" in report.errors[0].message
    assert placement.writes() == []
    assert placement.dump() == before


def test_a_new_class_is_made_before_the_reshape(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    class Renaming(NovaStyleDriver):
        def update_provider_tree(
            self, provider_tree: Any, nodename: str, allocations: dict[str, Any] | None = None
        ) -> None:
            root = provider_tree.data(nodename)
            inventory = {"CUSTOM_NEW" if self.split else "VCPU": self.record(16)}
            if self.split and "VCPU" in root.inventory and allocations is None:
                raise ReshapeNeeded()
            provider_tree.update_inventory(nodename, inventory)
            for record in (allocations or {}).values():
                held = record["allocations"][root.uuid]["resources"]
                held["CUSTOM_NEW"] = held.pop("VCPU")

    agent = given({}, Renaming())
    placement.other.claim({ROOT: {"VCPU": 2}}, C)
    before = placement.dump()
    assert agent.once().state == "changed"
    assert seen(placement)[-3:] == [
        "PUT resource_classes CUSTOM_NEW -> 201",
        posted(["R"], ["c"]),
        "GET in_tree=R -> 200",
    ]
    moved = {C: {ROOT: {"CUSTOM_NEW": 2}}}
    settled(
        agent,
        placement,
        agent_log,
        {NAME: node({"CUSTOM_NEW": total(16)})},
        before=before,
        consumers=consumers_after(placement, before, moved),
    )


def test_a_reshape_is_told_in_the_log(
    given: Given, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = given(HELD_BY_C)
    agent.once()
    told = [one.getMessage() for one in agent_log.records if one.levelno == logging.INFO]
    assert "node node-a: inventory that may be allocated must move to another provider" in told
    assert "reshaped 3 providers and 1 consumers" in told
