"""What projects and users have, for limits and for quota."""

import pytest

from agent.errors import PlacementUnreachable
from agent.placement.allocations.checks import BadRequest, UsagesFailed
from agent.placement.allocations.records import (
    QuotaUsage,
    quota_usage,
    usages_for_limits,
)
from tests.support import faults
from tests.support.placement import PROJECT, USER
from tests.support.settled import SS, C, D, H, R, Scene

pytestmark = pytest.mark.usefixtures("short_waits")


def other_users(scene: Scene) -> None:
    body = {
        "allocations": {H: {"resources": {"VCPU": 1}}},
        "project_id": PROJECT,
        "user_id": "a&user_id=b",
        "consumer_generation": None,
    }
    scene.other.call("PUT", f"/allocations/{D}", body)


def test_cores_are_cpus_of_both_kinds(scene: Scene) -> None:
    scene.given((C, {R: {"VCPU": 2, "PCPU": 3, "MEMORY_MB": 64}, SS: {"DISK_GB": 7}}))
    assert quota_usage(usages_for_limits(scene.client, PROJECT)) == QuotaUsage(5, 64)
    assert scene.seen() == [f"GET usages?project_id={PROJECT} -> 200"]
    assert scene.placement.requests[0].version == "1.23"
    scene.settled()


def test_who_has_nothing_has_nothing(scene: Scene) -> None:
    assert usages_for_limits(scene.client, PROJECT) == {}
    assert quota_usage(usages_for_limits(scene.client, PROJECT, USER)) == QuotaUsage(0, 0)


def test_a_user_is_counted_too_if_asked_for(scene: Scene) -> None:
    scene.given((C, {R: {"VCPU": 2, "MEMORY_MB": 64}}))
    other_users(scene)
    scene.begin()
    assert usages_for_limits(scene.client, PROJECT) == {"VCPU": 3, "MEMORY_MB": 64}
    assert usages_for_limits(scene.client, PROJECT, "a&user_id=b") == {"VCPU": 1}
    assert [one.query for one in scene.placement.requests] == [
        f"project_id={PROJECT}",
        f"project_id={PROJECT}&user_id=a%26user_id%3Db",
    ]
    assert usages_for_limits(scene.client, PROJECT, USER) == {"VCPU": 2, "MEMORY_MB": 64}


@pytest.mark.parametrize("fault", [faults.refused(), faults.reset(), faults.html(503)])
def test_an_outage_is_waited_for_three_times(scene: Scene, fault: faults.Action) -> None:
    scene.given((C, {R: {"VCPU": 2}}))
    scene.placement.faults.add(fault, method="GET", times=3)
    assert usages_for_limits(scene.client, PROJECT) == {"VCPU": 2}
    assert scene.placement.count() == 4
    scene.placement.faults.add(fault, method="GET", times=None)
    scene.placement.clear()
    with pytest.raises((PlacementUnreachable, UsagesFailed)):
        usages_for_limits(scene.client, PROJECT)
    assert scene.placement.count() == 4


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_refusal_is_told_and_not_repeated(scene: Scene, status: int) -> None:
    scene.placement.faults.add(faults.answer(status), method="GET")
    with pytest.raises(UsagesFailed, match=str(status)):
        usages_for_limits(scene.client, PROJECT)
    assert scene.placement.count() == 1


@pytest.mark.parametrize(("project", "user"), [("", None), ("p" * 256, None), (PROJECT, "")])
def test_bad_input_is_refused_before_any_request(
    scene: Scene, project: str, user: str | None
) -> None:
    with pytest.raises(BadRequest, match="has not 1 to 255 characters"):
        usages_for_limits(scene.client, project, user)
    assert scene.seen() == []
