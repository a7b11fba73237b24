"""The audit of a node's records: resource tracking 8.9."""

from dataclasses import replace

import pytest

from agent.model.facts import Domain
from agent.model.instance import TaskState, VmState
from agent.model.node_records import MigrationType, RecordChanges
from agent.model.provider_tree import ProviderTree
from agent.tracker.moves import finish
from tests.support.tracking import F1, F2, F3, Host, World, domain, rows, stats_of, step

EMPTY, AS_F1 = "512/1/2048", "2560/2/22528"


@pytest.fixture
def guests(ha: Host) -> Host:
    """HA with an F1 that is active, an F2 that is stopped, an F3 that is shelved and off its host,
    and an F1 that is to be deleted soon.
    """
    states = {
        "i1": (F1, "active"),
        "i2": (F2, "stopped"),
        "i3": (F3, "shelved_offloaded"),
        "i4": (F1, "soft-delete"),
    }
    for name, (flavor, _state) in states.items():
        ha.claim(name, flavor)
        ha.update(name, vm_state="active")
    for name, (_flavor, state) in states.items():
        ha.update(name, vm_state=state)
    return ha


def steady(host: Host) -> str:
    """The usage, the same after an audit and after a start."""
    found = host.usage
    host.audit()
    assert host.usage == found
    host.restart()
    host.audit(start=True)
    assert host.usage == found
    return found


def test_whoever_has_not_left_counts_in_full(guests: Host) -> None:
    assert steady(guests) == "8704/5/94720"
    numbers = stats_of(guests.audit())
    assert (
        numbers["num_instances"],
        numbers["num_vm_active"],
        numbers["num_vm_stopped"],
        numbers["num_vm_soft-delete"],
    ) == (3, 1, 1, 1)
    assert "num_vm_shelved_offloaded" not in numbers
    shelved = guests.instance("i3")
    assert shelved is not None
    assert (shelved.host, shelved.node) == (None, None)


def test_a_guest_that_left_while_nobody_listened_is_given_back_by_the_audit(
    world: World, guests: Host
) -> None:
    with world.records.transaction([guests.node]) as transaction:
        found = transaction.instance(guests.claims("i2")[0].instance)
        assert found is not None
        transaction.write(RecordChanges(instances=(replace(found, vm_state="shelved_offloaded"),)))
    guests.audit()
    assert steady(guests) == "4608/3/43008"


def test_a_guest_that_is_unshelved_counts_from_its_claim_on(guests: Host) -> None:
    guests.claim("i3", F3, id="unshelve-i3", vm_state="shelved_offloaded", task_state="spawning")
    assert steady(guests) == "16896/9/177664"
    assert stats_of(guests.audit())["num_vm_shelved_offloaded"] == 1
    guests.update("i3", vm_state="active", task_state=None)
    assert steady(guests) == "16896/9/177664"


def test_a_deleted_guest_is_gone_at_once_and_once(world: World, ha: Host) -> None:
    ha.claim("i1", F1)
    ha.claim("i2", F1)
    ha.update("i1", vm_state="deleted", deleted=True)
    assert ha.usage == AS_F1
    before = rows(world)
    ha.update("i1", vm_state="deleted", deleted=True)
    assert rows(world) == before
    assert steady(ha) == AS_F1


def test_a_claim_between_facts_and_audit_is_in_the_result(ha: Host) -> None:
    facts = ha.facts
    ha.claim("i1", F1)
    assert (
        ha.usage_step.audit(ha.node, facts, ProviderTree(), start=False).usage.memory_mb_used
        == 2560
    )
    assert ha.usage == AS_F1


def test_a_guest_that_came_after_the_facts_is_not_missed(world: World, ha: Host) -> None:
    facts = replace(ha.facts, domains=())
    world.time.pass_by(1)
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    assert ha.usage_step.audit(ha.node, facts, ProviderTree(), start=False).drift == ()
    (drift,) = ha.audit(domains=()).drift
    assert (drift.kind, drift.consumer) == ("missing-domain", ha.claims("i1")[0].instance)
    assert ha.audit(domains=(domain("i1", 2048),)).drift == ()


def missed(*hosts: Host, shown: tuple[Domain, ...] = ()) -> list[str]:
    """Those of the hosts that miss a guest when they show these, after a minute."""
    hosts[0].time.pass_by(60)
    return [
        host.name
        for host in hosts
        for drift in host.audit(domains=shown).drift
        if drift.kind == "missing-domain"
    ]


def test_a_guest_is_missed_in_every_state_in_which_its_host_keeps_a_domain_and_in_no_other(
    ha: Host,
) -> None:
    ha.claim("i1", F1)
    assert missed(ha) == []
    kept: tuple[VmState, ...] = (
        "active",
        "paused",
        "suspended",
        "stopped",
        "rescued",
        "shelved",
        "soft-delete",
    )
    for state in kept:
        ha.update("i1", vm_state=state)
        assert missed(ha) == ["HA"], state
        # It does not have to run: what is there is enough.
        for shown in ("running", "paused", "stopped"):
            assert missed(ha, shown=(domain("i1", 2048, state=shown),)) == [], state
    for state in ("error", "shelved_offloaded"):
        ha.update("i1", vm_state=state)
        assert missed(ha) == [], state


def test_a_guest_whose_domain_is_taken_away_or_made_anew_is_not_missed_meanwhile(ha: Host) -> None:
    ha.claim("i1", F1)
    tasks: dict[VmState, tuple[TaskState, ...]] = {
        "active": (
            "reboot_started",
            "rebooting_hard",
            "reboot_pending_hard",
            "reboot_started_hard",
            "rebuilding",
            "rebuild_spawning",
            "deleting",
        ),
        "stopped": ("powering-on", "deleting"),
        "soft-delete": ("restoring", "deleting"),
        "shelved": ("shelving_offloading", "powering-on"),
    }
    for state, through in tasks.items():
        for task in through:
            ha.update("i1", vm_state=state, task_state=task)
            assert missed(ha) == [], (state, task)
        ha.update("i1", vm_state=state, task_state=None)
        assert missed(ha) == ["HA"], state
    for task in (
        "powering-off",
        "suspending",
        "resuming",
        "pausing",
        "rescuing",
        "image_snapshot",
        "shelving",
    ):
        ha.update("i1", vm_state="active", task_state=task)
        assert missed(ha) == ["HA"], task


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_a_guest_that_moves_is_missed_only_where_it_has_arrived_and_waits(
    end: str, ha: Host, hb: Host
) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active", task_state="resize_prep")
    hb.move("i1", "resize", F2)
    for task in ("resize_prep", "resize_migrating", "resize_migrated", "resize_finish"):
        ha.update("i1", task_state=task)
        assert missed(ha, hb) == [], task
    hb.tracker.change(hb.move_id("i1"), finish)
    hb.update("i1", vm_state="resized", task_state=None)
    assert missed(ha, hb) == ["HB"]
    hb.update("i1", task_state="resize_reverting" if end == "revert" else "resize_confirming")
    assert missed(ha, hb) == []
    step(hb.tracker, end, hb.move_id("i1"))
    stays = ha if end == "revert" else hb
    stays.update("i1", vm_state="active", task_state=None)
    assert missed(ha, hb) == [stays.name]


@pytest.mark.parametrize("kind", ["live-migration", "migration"])
def test_a_guest_that_may_have_left_is_not_missed_before_anybody_says_so(
    kind: MigrationType, ha: Host, hb: Host
) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    # Nobody has to tell an agent of tasks, and a guest is gone from its source before its move is
    # finished.
    hb.move("i1", kind)
    assert missed(ha, hb) == []
    hb.tracker.abort(hb.move_id("i1"))
    assert missed(ha, hb) == ["HA"]


def test_facts_that_are_older_than_the_last_ones_change_nothing(world: World, ha: Host) -> None:
    world.time.pass_by(60)
    older = replace(ha.facts, taken_at=world.time(), memory_mib=65536)
    world.time.pass_by(60)
    ha.audit(memory_mib=32768)
    before = rows(world)
    told = ha.usage_step.audit(ha.node, older, ProviderTree(), start=False)
    assert rows(world) == before
    assert ha.tracker.view(ha.node).node.memory_mb == 32768
    assert told.usage.memory_mb_used == 512


def test_a_clock_that_is_set_back_makes_no_facts_old(world: World, ha: Host) -> None:
    world.time.pass_by(-3600)
    ha.audit(memory_mib=32768)
    assert ha.tracker.view(ha.node).node.memory_mb == 32768


def test_an_audit_of_a_settled_node_writes_nothing(world: World, guests: Host) -> None:
    guests.audit()
    before = rows(world)
    guests.audit()
    assert rows(world) == before
