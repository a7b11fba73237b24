"""Claims of new guests, and their abort: resource tracking 8.1."""

from dataclasses import replace

from agent.model.instance import Flavor
from agent.model.names import ProviderUuid
from agent.tracker.errors import ResourcesUnavailable
from agent.tracker.requests import ClaimLimits, InstanceClaim
from agent.tree.policy import Ratio
from tests.support.refusals import refused, rows
from tests.support.tracking import (
    F1,
    F2,
    F3,
    FN,
    PLAIN_RESERVED,
    Host,
    World,
    instance,
    race,
    stats_of,
    uuid_of,
)


def big(memory_mb: int) -> Flavor:
    """A flavor that takes one CPU and so much memory."""
    return Flavor(f"big-{memory_mb}", "BIG", 1, memory_mb)


def free_memory_mb(host: Host) -> int:
    """What is left of the host's memory; below zero if more is promised than there is."""
    state = host.tracker.view(host.node)
    assert state.node.memory_mb is not None
    return state.node.memory_mb - state.used.memory_mb


def test_a_claim_is_one_held_row_and_the_instance_is_the_hosts(ha: Host) -> None:
    ha.claim("i1", F1)
    assert ha.usage == "2560/2/22528"
    found = ha.instance("i1")
    assert found is not None
    assert (found.host, found.launched_on, found.node) == ("HA", "HA", ha.node)
    assert [(claim.half, claim.state) for claim in ha.claims("i1")] == [("only", "held")]
    assert stats_of(ha.audit())["num_instances"] == 1


def test_a_second_claim_adds_its_amounts_exactly(ha: Host) -> None:
    ha.claim("i1", F1)
    ha.claim("i2", F2)
    # Reported in MiB, because GiB would have to be rounded: 72.5 of them here.
    assert ha.usage == "6656/4/74240"
    assert ha.audit().usage.disk_mb_used == 74240
    assert free_memory_mb(ha) == 58880


def test_an_abort_leaves_nothing_but_where_it_was_launched(ha: Host) -> None:
    ha.claim("i1", F1)
    ha.claim("i2", F2)
    ha.abort("i2")
    assert ha.usage == "2560/2/22528"
    found = ha.instance("i2")
    assert found is not None
    assert (found.host, found.node, found.launched_on) == (None, None, "HA")
    assert ha.claims("i2") == ()


def test_an_aborted_guest_has_no_host_pins(hn: Host) -> None:
    hn.claim("n1", FN)
    aborted = hn.abort("n1").claim
    assert (aborted.state, aborted.cells) == ("released", ())
    assert hn.pinned(0) == hn.pinned(1) == set()
    assert hn.usage == "512/0/0"


def test_a_second_abort_changes_nothing_and_says_so(world: World, ha: Host) -> None:
    ha.claim("i1", F1)
    ha.claim("i2", F2)
    assert not ha.abort("i2").repeated
    before = rows(world)
    again = ha.abort("i2")
    assert (again.repeated, again.claim.state) == (True, "released")
    assert rows(world) == before
    assert ha.usage == "2560/2/22528"


def test_usage_does_not_drift_over_claims_and_aborts(ha: Host) -> None:
    for turn in range(10):
        claim = ha.claim("i", F2, id=f"claim-{turn}").claim
        assert ha.usage == "4608/3/53760"
        ha.tracker.abort(claim.id)
    assert ha.usage == "512/1/2048"


def test_the_root_disk_of_a_volume_backed_guest_is_elsewhere(ha: Host) -> None:
    ha.claim("i3", F1, volume_backed=True)
    assert ha.usage == "2560/2/2048"


def test_a_claim_on_an_unknown_node_writes_nothing(world: World, ha: Host) -> None:
    request = InstanceClaim(
        id=uuid_of("claim-i1"), node=ProviderUuid(uuid_of("HX")), instance=instance("i1", F1)
    )
    with refused(world, "node.unknown"):
        ha.tracker.claim(request)
    assert ha.instance("i1") is None
    assert ha.usage == "512/1/2048"


def test_a_guest_that_another_host_has_is_refused(world: World, ha: Host, hb: Host) -> None:
    hb.claim("i1", F1)
    with refused(world, "instance.elsewhere"):
        ha.claim("i1", F1, id="another")
    found = ha.instance("i1")
    assert found is not None
    assert found.host == "HB"
    assert ha.usage == "512/1/2048"
    assert hb.usage == "2560/2/22528"


def test_a_guest_that_its_caller_says_is_elsewhere_is_refused(world: World, ha: Host) -> None:
    with refused(world, "instance.elsewhere"):
        ha.claim("i1", F1, host="HB")
    assert ha.usage == "512/1/2048"


def test_the_same_claim_again_is_the_same_row_after_a_restart(ha: Host) -> None:
    first = ha.claim("i1", F1)
    ha.restart()
    ha.audit(start=True)
    assert ha.claim("i1", F1).claim.id == first.claim.id
    assert ha.usage == "2560/2/22528"


def test_of_two_claims_of_one_guest_at_the_same_moment_one_wins(ha: Host) -> None:
    results = race(lambda: ha.claim("i1", F1, id="one"), lambda: ha.claim("i1", F1, id="two"))
    assert sum(isinstance(result, Exception) for result in results) == 1
    assert ha.usage == "2560/2/22528"


def test_what_a_guest_has_can_be_given_back_on_a_node_that_is_not_offered(ha: Host) -> None:
    ha.claim("i1", F1)
    ha.usage_step.set_listed_nodes(present=[])
    ha.abort("i1")
    assert ha.usage == "512/1/2048"


def test_a_limit_may_be_reached_and_not_exceeded(world: World, ha: Host) -> None:
    ha.claim("rest", big(62976))
    assert ha.usage.startswith("63488/")
    limits = ClaimLimits(memory_mb=65536)
    ha.claim("i1", F1, limits=limits)
    assert ha.usage.startswith("65536/")
    with refused(world, "resources.unavailable") as caught:
        ha.claim("i2", F1, limits=limits)
    assert isinstance(caught.value, ResourcesUnavailable)
    assert caught.value.reasons == ("memory: 67584 MiB would be used, the limit is 65536 MiB",)
    assert ha.usage.startswith("65536/")


def test_every_limit_that_is_exceeded_is_named(world: World, ha: Host) -> None:
    with refused(world, "resources.unavailable") as caught:
        ha.claim("i1", F3, limits=ClaimLimits(memory_mb=8703, vcpus=4, disk_mb=84991))
    assert isinstance(caught.value, ResourcesUnavailable)
    assert [reason.partition(":")[0] for reason in caught.value.reasons] == [
        "memory",
        "vcpus",
        "disk",
    ]


def test_a_limit_above_the_total_leaves_less_than_nothing(world: World) -> None:
    ha = world.plain("HA", policy=replace(PLAIN_RESERVED, memory_ratio=Ratio(1.5)))
    ha.claim("rest", big(64000))
    ha.claim("i1", F3, limits=ClaimLimits(memory_mb=98304))
    assert ha.usage.startswith("72704/")
    assert free_memory_mb(ha) == -7168
    # The operator wants it so: the ratio allows for 97536 MiB beside what is reserved.
    assert ha.audit().drift == ()


def test_without_limits_placement_is_trusted_and_a_warning_counts(ha: Host) -> None:
    assert ha.audit().drift == ()
    ha.claim("i1", big(131072))
    assert free_memory_mb(ha) == -66048
    assert [(drift.kind, drift.severity) for drift in ha.audit().drift] == [
        ("overcommitted", "warning")
    ]
    ha.abort("i1")
    assert ha.audit().drift == ()


def test_failed_builds_are_counted_until_one_succeeds(ha: Host) -> None:
    ha.claim("i1", F1)
    ha.abort("i1")
    assert ha.tracker.count_build(ha.node, "failed") == 1
    assert stats_of(ha.audit())["failed_builds"] == 1
    ha.restart()
    assert stats_of(ha.audit(start=True))["failed_builds"] == 1
    assert ha.tracker.count_build(ha.node, "failed") == 2
    assert ha.tracker.count_build(ha.node, "succeeded") == 0
    assert stats_of(ha.audit())["failed_builds"] == 0
    assert ha.usage == "512/1/2048"


def test_builds_of_an_unknown_node_are_not_counted(world: World, ha: Host) -> None:
    ha.usage_step.mark_deleted(ha.node)
    with refused(world, "node.unknown"):
        ha.tracker.count_build(ha.node, "failed")


def test_an_active_guests_claim_is_consumed(ha: Host) -> None:
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    assert [claim.state for claim in ha.claims("i1")] == ["consumed"]
    assert ha.usage == "2560/2/22528"


def test_claims_at_the_same_moment_all_count(ha: Host) -> None:
    results = race(*(lambda name=f"i{number}": ha.claim(name, F1) for number in range(6)))  # type: ignore[misc]
    assert not any(isinstance(result, Exception) for result in results)
    assert ha.usage == f"{512 + 6 * 2048}/7/{2048 + 6 * 20480}"
