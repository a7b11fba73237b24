"""Claims of new guests, and their abort: resource tracking 8.1."""

from dataclasses import replace

from agent.model.instance import Flavor
from agent.model.names import ProviderUuid
from agent.tracker.errors import ResourcesUnavailable
from agent.tracker.stored_state import ClaimLimits, InstanceClaim
from agent.tree.policy import Ratio
from tests.support.tracking import (
    F1,
    F2,
    F3,
    PLAIN_RESERVED,
    Host,
    World,
    instance,
    refused,
    rows,
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


def test_a_claim_on_an_unknown_node_writes_nothing(world: World, ha: Host) -> None:
    request = InstanceClaim(
        id=uuid_of("claim-i1"), node=ProviderUuid(uuid_of("HX")), instance=instance("i1", F1)
    )
    with refused(world, "node.unknown"):
        ha.tracker.claim(request)
    assert ha.instance("i1") is None
    assert ha.usage == "512/1/2048"


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
