"""The records of nodes, who holds them, and several nodes of one agent: resource tracking 8.9."""

import logging
from dataclasses import replace

import pytest

from agent.errors import AgentError
from agent.model.names import ProviderUuid
from agent.model.node_records import ComputeNode, Lease
from agent.tracker.errors import UnknownNode
from agent.tracker.moves import confirm, finish
from agent.tree.policy import Ratio
from tests.support.tracking import (
    F1,
    PLAIN_RESERVED,
    Host,
    World,
    race,
    refused,
    rows,
    twin,
    uuid_of,
)

EMPTY, AS_F1 = "512/1/2048", "2560/2/22528"


def record(world: World, node: ProviderUuid) -> ComputeNode:
    """The record of a node."""
    with world.records.reading() as reading:
        found = reading.node(node)
    assert found is not None
    return found


def lease(world: World, node: ProviderUuid) -> Lease:
    """Who holds a node."""
    with world.records.reading() as reading:
        found = reading.lease(node)
    assert found is not None
    return found


# --- new ones -------------------------------------------------------------------------------------


def test_a_new_node_has_the_initial_ratios(ha: Host, world: World) -> None:
    found = record(world, ha.node)
    assert (
        found.cpu_allocation_ratio,
        found.ram_allocation_ratio,
        found.disk_allocation_ratio,
    ) == (4.0, 1.0, 1.0)
    assert (found.host, found.name, found.host_ip) == ("HA", "HA", "192.0.2.1")
    assert (found.vcpus, found.memory_mb, found.local_gb) == (32, 65536, 1000)
    assert found.created_at == found.updated_at == world.time()


def test_the_pass_that_makes_the_record_judges_no_allocation(world: World, ha: Host) -> None:
    # That it then reads none at all is in tests/functional/placement/test_reconciliation.py.
    fresh = twin(world, ha, "HC")
    fresh.node = ProviderUuid(uuid_of("HC"))
    first = fresh.audit(start=True)
    assert first.created
    second = fresh.audit()
    assert not second.created


@pytest.mark.parametrize(("configured", "used"), [(2.0, 2.0), (None, 4.0), (0.0, 4.0)])
def test_a_configured_ratio_wins_from_the_first_pass_on(
    world: World, configured: float | None, used: float
) -> None:
    host = world.plain("HA", policy=replace(PLAIN_RESERVED, cpu_ratio=Ratio(configured, 4.0)))
    assert record(world, host.node).cpu_allocation_ratio == used
    host.audit()
    assert record(world, host.node).cpu_allocation_ratio == used


def test_a_ratio_that_is_unset_again_stays(world: World) -> None:
    host = world.plain("HA", policy=replace(PLAIN_RESERVED, cpu_ratio=Ratio(2.0, 4.0)))
    host.policy = PLAIN_RESERVED
    host.restart()
    host.audit(start=True)
    assert record(world, host.node).cpu_allocation_ratio == 2.0


# --- what comes back, what moves, what is in the way ----------------------------------------------


def test_a_deleted_node_is_revived_as_the_same(
    world: World, ha: Host, caplog: pytest.LogCaptureFixture
) -> None:
    ha.claim("i1", F1)
    ha.usage_step.mark_deleted(ha.node)
    assert record(world, ha.node).deleted
    ha.restart()
    told = ha.audit(start=True)
    assert not told.created
    found = record(world, ha.node)
    assert (found.uuid, found.host, found.deleted) == (ha.node, "HA", False)
    assert ha.usage == AS_F1
    assert "was deleted and is back" in caplog.text


def test_a_node_with_a_live_lease_is_refused_and_both_hosts_are_named(
    world: World, hb: Host
) -> None:
    ha = twin(world, hb, "HA")
    world.time.pass_by(hb.lease_seconds - 1)
    with refused(world, "node.elsewhere") as caught:
        ha.audit(start=True)
    assert caught.value.fatal
    assert "managed by host HB, whose lease has not ended, and not by HA" in caught.value.message
    assert "compute_id" in caught.value.remedy
    with refused(world, "node.not-ready"):
        ha.claim("i1", F1)


@pytest.mark.parametrize("let_go", [True, False])
def test_a_node_whose_lease_is_over_is_taken_over_with_a_word(
    world: World, hb: Host, let_go: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent")
    hb.claim("i1", F1)
    if let_go:
        hb.node_leases.release()
    else:
        world.time.pass_by(hb.lease_seconds)
    ha = twin(world, hb, "HA")
    assert not ha.audit(start=True).created
    found = record(world, hb.node)
    assert (found.host, found.name) == ("HA", "HA")
    assert f"node HA ({hb.node}) moved here from host HB" in caplog.text
    # What was promised on the node is promised still.
    assert ha.usage == AS_F1
    with refused(world, "node.elsewhere"):
        hb.audit()


def test_who_keeps_auditing_keeps_the_node(world: World, hb: Host) -> None:
    ha = twin(world, hb, "HA")
    for _ in range(5):
        world.time.pass_by(hb.lease_seconds / 2)
        hb.audit()
        with refused(world, "node.elsewhere"):
            ha.audit()
    assert lease(world, hb.node).host == "HB"


def test_two_that_start_at_once_do_not_both_get_the_node(world: World, hb: Host) -> None:
    hb.node_leases.release()
    contenders = [twin(world, hb, name) for name in ("HC", "HD")]
    results = race(*(lambda host=host: host.audit(start=True) for host in contenders))
    refusals = [result for result in results if isinstance(result, AgentError)]
    assert [refusal.code for refusal in refusals] == ["node.elsewhere"]
    (winner,) = [
        host.name
        for host, found in zip(contenders, results, strict=True)
        if not isinstance(found, AgentError)
    ]
    assert lease(world, hb.node).host == record(world, hb.node).host == winner


def test_a_second_node_of_one_name_is_an_error_of_configuration_in_every_pass(
    world: World, ha: Host
) -> None:
    other = twin(world, ha, "HA")
    other.node = ProviderUuid(uuid_of("another"))
    for start in (True, False):
        with refused(world, "config.invalid") as caught:
            other.audit(start=start)
        assert ha.node in caught.value.message
        assert other.node in caught.value.message
        assert "host HA" in caught.value.message
    # Nothing is promised on it.
    with refused(world, "node.not-ready"):
        other.claim("i1", F1)
    ha.usage_step.mark_deleted(ha.node)
    assert other.audit(start=True).created


# --- several nodes of one agent -------------------------------------------------------------------


def test_the_audit_of_one_node_forgets_nothing_of_another(ha: Host) -> None:
    a, b = ha, ha.beside("node-b")
    a.claim("i1", F1)
    b.claim("i2", F1)
    a.audit()
    b.audit()
    a.update("i1", vm_state="active")
    assert (a.usage, b.usage) == (AS_F1, AS_F1)
    a.update("i1", vm_state="deleted", deleted=True)
    assert (a.usage, b.usage) == (EMPTY, AS_F1)
    a.abort("i1")
    assert (a.usage, b.usage) == (EMPTY, AS_F1)


def test_a_guest_moves_between_two_nodes_of_one_agent(ha: Host) -> None:
    a, b = ha, ha.beside("node-b")
    a.claim("i1", F1)
    b.move("i1", "migration")
    assert (a.usage, b.usage) == (AS_F1, AS_F1)
    b.tracker.change(b.move_id("i1"), finish)
    b.tracker.change(b.move_id("i1"), confirm)
    for host in (a, b):
        host.audit()
    assert (a.usage, b.usage) == (EMPTY, AS_F1)


def test_a_node_that_came_after_the_list_was_read_stays(world: World, ha: Host) -> None:
    listed = {ha.node}
    b = ha.beside("node-b")
    # Only the backend's word ends a node (Fleet asks it again, one by one); one that is missing in
    # a list takes no new claims meanwhile.
    ha.usage_step.set_listed_nodes(listed)
    with refused(world, "node.unavailable"):
        b.claim("i1", F1)
    assert b.node in ha.tracker.nodes()
    assert b.usage == EMPTY
    b.audit()
    b.claim("i1", F1)
    assert (ha.usage, b.usage) == (EMPTY, AS_F1)


# --- nodes that go --------------------------------------------------------------------------------


def test_an_abort_and_the_end_of_its_node_wait_for_each_other(world: World, ha: Host) -> None:
    for round in range(20):
        name = f"i{round}"
        ha.claim(name, F1)
        results = race(
            lambda name=name: ha.abort(name), lambda: ha.usage_step.mark_deleted(ha.node)
        )
        assert not [result for result in results if isinstance(result, Exception)], results
        assert ha.claims(name) == ()
        assert record(world, ha.node).deleted
        ha.audit()
        assert ha.usage == EMPTY


def test_a_claim_and_the_end_of_its_node_wait_for_each_other(world: World, ha: Host) -> None:
    for round in range(20):
        name = f"i{round}"
        claimed, _ = race(
            lambda name=name: ha.claim(name, F1), lambda: ha.usage_step.mark_deleted(ha.node)
        )
        assert not isinstance(claimed, Exception) or isinstance(claimed, UnknownNode), claimed
        assert len(ha.claims(name)) == (not isinstance(claimed, Exception))
        ha.audit()
        if ha.claims(name):
            ha.abort(name)
        assert ha.usage == EMPTY


def test_what_was_promised_on_a_removed_node_can_be_given_back(
    world: World, ha: Host, hb: Host
) -> None:
    ha.claim("i1", F1)
    ha.usage_step.mark_deleted(ha.node)
    # Its node has no agent any more, so that any will do.
    hb.tracker.abort(uuid_of("claim-i1"))
    assert ha.claims("i1") == ()
    with refused(world, "node.unknown"):
        ha.claim("i2", F1)


def test_removing_twice_is_removing_once(world: World, ha: Host) -> None:
    ha.usage_step.mark_deleted(ha.node)
    assert not lease(world, ha.node).live(world.time())
    before = rows(world)
    ha.usage_step.mark_deleted(ha.node)
    ha.usage_step.mark_deleted(ProviderUuid(uuid_of("never was")))
    assert rows(world) == before


def test_a_node_that_another_host_took_over_is_not_removed_by_the_former_one(
    world: World, hb: Host
) -> None:
    hb.node_leases.release()
    ha = twin(world, hb, "HA")
    ha.audit(start=True)
    hb.usage_step.mark_deleted(hb.node)
    assert not record(world, hb.node).deleted
    assert lease(world, hb.node).host == "HA"


def test_a_node_that_another_host_took_over_takes_no_claims_from_the_former_one(
    world: World, hb: Host
) -> None:
    hb.claim("i1", F1)
    hb.node_leases.release()
    ha = twin(world, hb, "HA")
    ha.audit(start=True)
    for attempt in (
        lambda: hb.claim("i2", F1),
        lambda: hb.abort("i1"),
        lambda: hb.tracker.view(hb.node),
    ):
        with refused(world, "node.elsewhere") as caught:
            attempt()
        assert "host HA" in caught.value.message
    ha.claim("i2", F1)
    assert ha.usage == "4608/3/43008"
