"""Guests that the hypervisor shows and no record knows."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from agent.model.provider_tree import ProviderTree
from agent.tracker.allocations import AllocationShare, judge_allocations
from agent.tracker.reconcile import ReconcileRules
from tests.functional.tracker.journey import Journey
from tests.support.tracking import F1, Host, World, domain, guest

EMPTY, AS_F1 = "512/1/2048", "2560/2/22528"
COUNTING = ReconcileRules(count_orphans=True)


def test_an_orphan_counts_with_its_memory_and_no_disk_if_that_is_wanted(world: World) -> None:
    host = world.plain("HA", rules=COUNTING)
    told = host.audit(domains=(domain("stray", 1024),))
    assert host.usage == "1536/1/2048"
    assert told.usage.memory_mb_used == 1536
    assert [(drift.kind, drift.severity, drift.consumer) for drift in told.drift] == [
        ("unknown-domain", "warning", guest("stray"))
    ]
    host.audit()
    assert host.usage == "1536/1/2048"
    host.audit(domains=())
    assert host.usage == EMPTY


def test_otherwise_an_orphan_is_only_reported(ha: Host) -> None:
    (drift,) = ha.audit(domains=(domain("stray", 1024),)).drift
    assert "stray" in drift.detail
    assert "1024 MiB" in drift.detail
    assert "no record knows it" in drift.detail
    assert "guests import" in drift.remedy
    assert ha.usage == EMPTY


def test_of_two_nodes_the_one_that_shows_it_counts_it(world: World) -> None:
    a = world.plain("HA", rules=COUNTING)
    b = a.beside("node-b")
    a.audit(domains=(domain("stray", 1024),))
    b.audit(domains=())
    assert (a.usage, b.usage) == ("1536/1/2048", EMPTY)


def test_a_guest_of_another_node_of_the_host_is_nobodys_orphan(world: World) -> None:
    """Some hypervisors show all guests of a host, whatever node they are on."""
    a = world.plain("HA", rules=COUNTING)
    b = a.beside("node-b")
    a.claim("i1", F1)
    both = (domain("i1", 2048),)
    assert a.audit(domains=both).drift == b.audit(domains=both).drift == ()
    assert (a.usage, b.usage) == (AS_F1, EMPTY)


def test_a_guest_on_its_way_is_no_orphan_at_either_end(world: World) -> None:
    ha, hb = world.plain("HA", rules=COUNTING), world.plain("HB", rules=COUNTING)
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    hb.move("i1", "live-migration")
    shown = (domain("i1", 2048, 1),)
    for host in (ha, hb):
        assert host.audit(domains=shown).drift == ()
    journey = Journey(world, ha, hb)
    journey.finish()
    assert hb.audit().drift == ()
    # What a copy that was left behind takes is taken, whosever it is.
    (drift,) = ha.audit().drift
    assert "its instance is on host HB" in drift.detail
    assert (ha.usage, hb.usage) == ("2560/2/2048", AS_F1)


def test_a_guest_whose_record_says_that_it_is_gone_is_told_with_that(ha: Host) -> None:
    for name in ("i1", "i2"):
        ha.claim(name, F1)
    ha.update("i1", vm_state="deleted", deleted=True)
    ha.update("i2", vm_state="shelved_offloaded")
    ha.time.pass_by(1)
    told = ha.audit(domains=(domain("i1", 2048), domain("i2", 2048)))
    assert [
        "but its instance is deleted" in told.drift[0].detail,
        "on no host (shelved_offloaded)" in told.drift[1].detail,
    ] == [True, True]
    assert ha.usage == EMPTY


def test_a_guest_with_a_claim_on_another_host_is_recorded_again_once_that_has_ended(
    world: World, ha: Host, hb: Host
) -> None:
    hb.claim("i1", F1)
    hb.update("i1", vm_state="active")
    (drift,) = ha.audit(domains=(domain("i1", 2048, 1),)).drift
    assert f"agent guests import --again {guest('i1')}" in drift.remedy
    (refused,) = ha.tracker.import_guests(ha.node, [guest("i1")]).guests
    (refusal,) = refused.refusals
    assert refusal.reason == "its instance is on host HB, and has a claim there"
    assert f"agent guests forget {guest('i1')};" in refusal.remedy
    hb.audit(domains=())
    hb.tracker.forget(guest("i1"))
    (found,) = ha.tracker.import_guests(ha.node, [guest("i1")]).guests
    assert (found.outcome, ha.audit(domains=(domain("i1", 2048, 1),)).drift) == ("imported", ())


def test_a_guest_whose_claim_is_on_a_dead_host_is_recorded_here_by_its_evacuation(
    world: World, ha: Host, hb: Host
) -> None:
    hb.claim("i1", F1)
    hb.update("i1", vm_state="active")
    shown = (domain("i1", 2048, 1),)
    ha.audit(domains=shown)
    (refused,) = ha.tracker.import_guests(ha.node, [guest("i1")]).guests
    (refusal,) = refused.refusals
    assert "if that host is dead" in refusal.remedy
    assert "agent migrate claim MOVE.json && agent migrate finish ID" in refusal.remedy
    # Nothing is asked of the other host.
    ha.move("i1", "evacuation")
    Journey(world, hb, ha).finish()
    assert (ha.audit(domains=shown).drift, ha.usage) == ((), AS_F1)


def test_a_guest_that_went_after_the_facts_were_taken_is_no_orphan(world: World, ha: Host) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    facts = replace(ha.facts, taken_at=world.time(), domains=(domain("i1", 2048),))
    world.time.pass_by(1)
    ha.update("i1", deleted=True)
    assert ha.usage_step.audit(ha.node, facts, ProviderTree(), start=False).drift == ()
    (drift,) = ha.audit(domains=(domain("i1", 2048),)).drift
    assert "but its instance is deleted" in drift.detail
    assert ha.audit(domains=()).drift == ()


def test_what_the_driver_cannot_tell_of_its_guests_is_neither_an_orphan_nor_a_loss(
    ha: Host,
) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    facts = replace(ha.facts, domains=(domain("stray", 1024),), incomplete={"domains": "no answer"})
    assert ha.usage_step.audit(ha.node, facts, ProviderTree(), start=False).drift == ()
    assert ha.audit(domains=None).drift == ()


def test_a_name_of_a_guest_is_escaped(ha: Host) -> None:
    (drift,) = ha.audit(domains=(replace(domain("stray", 1), name="x\nERROR all is lost"),)).drift
    assert "\n" not in drift.detail


def test_a_claim_that_is_on_record_and_not_in_memory_yet_is_a_claim(ha: Host) -> None:
    beside = copy(ha)
    beside.restart()
    beside.audit(start=True)
    view = ha.audit()
    # As in this process, between the end of the transaction and the change of the state in memory.
    beside.claim("i1", F1)
    held: Mapping[str, int] = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
    share = AllocationShare(ha.node, {ha.node: {guest("i1"): held, guest("i2"): held}})
    records = ha.consumer_records.read(view, share.by_consumer())
    found = judge_allocations(share, records, {}, ha.time())
    assert [drift.consumer for drift in found.drift] == [guest("i2")]
    beside.abort("i1")
    assert ha.consumer_records.read(view, share.by_consumer()).claims == ()
