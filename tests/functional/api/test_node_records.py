"""What is promised on a node, as the node's document and the figures for Prometheus show it."""

import re

import pytest

from agent.monitors import Measurement, Metric
from tests.support.site import PMEM_UNIT, allocated, claim_body, devices_body
from tests.support.tracking import FN, Host, guest, uuid_of
from tests.unit.render.reports import node, report

READINGS = (
    Measurement("cpu", "ok", 5.0, (Metric("cpu.user.percent", 12.5, "percent", "psutil", 5.0),)),
    Measurement("memory", "failed", 6.0, text="it hangs"),
)


def seen(site, host: Host) -> None:
    """The daemon has audited the host once."""
    site.api.service.take_report(report(nodes=(node(name=host.name, uuid=host.node),)), whole=True)


def records(site, host: Host):
    return site.call("GET", f"/v1/nodes/{host.node}").json["records"]


def figures(site) -> dict[str, float]:
    """Every sample by its name and labels, without the agent's prefix."""
    text = site.call("GET", "/metrics").body.decode()
    return {
        key: float(value)
        for key, value in re.findall(
            r"^compute_node_agent_(\S+(?:{.*})?) (\S+)$", text, re.MULTILINE
        )
    }


def test_a_node_shows_what_is_promised_on_it_now(site, ha):
    seen(site, ha)
    empty = records(site, ha)
    assert empty["usage"] == {
        "vcpus_used": 1,
        "memory_mb_used": 512,
        "disk_mb_used": 2048,
        "instances": 0,
        "claims": 0,
        "migrations": 0,
    }
    site.call("POST", "/v1/claims", claim_body(ha, "i1", allocations=allocated(ha, **PMEM_UNIT)))
    site.call("POST", "/v1/devices/claims", devices_body(ha, "i1", "0000:80:00.0"))
    now = records(site, ha)
    assert now["usage"] == {
        "vcpus_used": 2,
        "memory_mb_used": 2560,
        "disk_mb_used": 22528,
        "instances": 1,
        "claims": 2,
        "migrations": 0,
    }
    assert now["total"] == {"vcpus": 32, "memory_mb": 65536, "disk_mb": 1024000}
    assert now["reserved"] == {"memory_mb": 512, "vcpus": 1, "disk_mb": 2048}
    assert now["ratios"] == {"vcpus": 4.0, "memory_mb": 1.0, "disk_mb": 1.0}
    assert now["devices"] == {"available": 4, "claimed": 1, "allocated": 0}
    assert {one["identifier"]: one["holder"] for one in now["units"]} == {
        "ns_0": uuid_of("claim-i1"),
        "ns_1": None,
    }
    assert (
        now["stats"]["num_instances"],
        now["stats"]["num_proj_project"],
        now["dirty"],
        now["problems"],
    ) == (1, 1, True, [])
    assert now["version"] > empty["version"]


def test_a_node_shows_its_cells(site):
    hn = site.serve(site.world.numa())
    seen(site, hn)
    site.call("POST", "/v1/claims", claim_body(hn, "n1", FN))
    first, second = records(site, hn)["cells"]
    assert (first["id"], first["dedicated"], first["pinned"], first["memory_mb_used"]) == (
        0,
        [4, 5, 6, 7],
        [4, 5],
        4096,
    )
    assert first["pages"] == [{"size_kib": 4, "total": 4194304, "used": 1048576, "reserved": 0}]
    assert (second["pinned"], second["shared"], second["shared_used"]) == ([], [8, 9, 10, 11], 0)


def test_a_node_that_the_tracker_does_not_know_has_no_records(site, ha):
    seen(site, ha)
    ha.restart()
    site.serve(ha)
    assert records(site, ha) is None


def test_a_node_that_is_not_offered_says_so(site, ha):
    seen(site, ha)
    ha.usage_step.set_listed_nodes([])
    assert records(site, ha)["available"] is False


def test_failed_builds_are_counted_until_one_succeeds(site, ha):
    seen(site, ha)
    target = f"/v1/nodes/{ha.node}/builds"
    assert [
        site.call("POST", target, {"result": result}).json["failed_builds"]
        for result in ("failed", "failed", "succeeded", "failed")
    ] == [1, 2, 0, 1]
    assert records(site, ha)["failed_builds"] == 1
    site.refused(
        "node.unknown", 404, "POST", f"/v1/nodes/{uuid_of('HX')}/builds", {"result": "failed"}
    )
    for body in ({"result": "maybe"}, {}, {"result": "failed", "times": 3}):
        site.refused("request.invalid", 400, "POST", target, body)


def test_the_figures_show_claims_usage_and_builds(site, ha):
    site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    site.call("POST", "/v1/devices/claims", devices_body(ha, "i1", "0000:80:00.0"))
    site.call("POST", f"/v1/nodes/{ha.node}/builds", {"result": "failed"})
    now = figures(site)
    assert {
        now[f'node_used{{node="HA",resource="{name}"}}']
        for name in ("vcpus", "memory_mb", "disk_mb")
    } == {2, 2560, 22528}
    assert {
        now[f'node_total{{node="HA",resource="{name}"}}']
        for name in ("vcpus", "memory_mb", "disk_mb")
    } == {32, 65536, 1024000}
    assert [
        now[f'claims_open{{node="HA",purpose="{name}"}}']
        for name in ("instance", "move", "devices")
    ] == [1, 0, 1]
    assert (now['node_failed_builds{node="HA"}'], now['node_unpublished{node="HA"}']) == (1, 1)


def test_operations_are_timed_and_refusals_counted_by_their_codes(new_site):
    ha = new_site.serve(new_site.world.plain("HA"))
    for _ in range(2):
        new_site.call("POST", "/v1/claims", claim_body(ha, "i1"))
    new_site.call("POST", "/v1/claims", claim_body(ha, "i2", limits={"vcpus": 1}))
    new_site.call("DELETE", f"/v1/claims/{uuid_of('claim-i9')}")
    now = figures(new_site)
    assert now['tracker_operation_seconds_count{operation="claim"}'] == 3
    assert now['tracker_operation_seconds_count{operation="revert"}'] == 0
    refusals = {
        key: value for key, value in now.items() if key.startswith("tracker_refusals_total")
    }
    assert refusals == {
        'tracker_refusals_total{code="resources.unavailable",operation="claim"}': 1,
        'tracker_refusals_total{code="claim.unknown",operation="abort"}': 1,
    }


def test_what_the_monitors_said_is_shown(site, ha):
    seen(site, ha)
    site.api.service.readings = READINGS
    cpu, memory = site.call("GET", f"/v1/nodes/{ha.node}").json["monitors"]
    assert (cpu["monitor"], cpu["status"], [one["value"] for one in cpu["metrics"]]) == (
        "cpu",
        "ok",
        [12.5],
    )
    assert (memory["status"], memory["text"], memory["metrics"]) == ("failed", "it hangs", [])
    now = figures(site)
    assert (now['monitor_up{monitor="cpu"}'], now['monitor_up{monitor="memory"}']) == (1, 0)
    assert now['host{metric="cpu.user.percent",monitor="cpu",unit="percent"}'] == 12.5


def test_without_a_tracker_there_are_no_figures_of_nodes(new_site):
    assert not [key for key in figures(new_site) if key.startswith(("node_", "claims_"))]


@pytest.mark.parametrize("target", ["/v1/claims", "/v1/instances", "/v1/migrations", "/v1/devices"])
def test_lists_take_no_nonsense(site, ha, target):
    for query in ("limit=0", "limit=1001", "limit=x", "marker=x", f"state={guest('i1')}"):
        site.refused("request.invalid", 400, "GET", f"{target}?{query}")
    assert site.call("GET", f"{target}?limit=1000").json["next"] is None
