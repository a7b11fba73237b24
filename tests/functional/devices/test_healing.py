"""Guests whose share of devices Placement does not know, or knows otherwise: pci.md 14 C, by number, and placement.md S-67 to S-69."""

from typing import Any

import pytest

from agent.model.device_request import DeviceRequest
from agent.model.migration import Migration
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.operation import Reshape
from agent.model.report import NodeReport
from agent.tracker.requests import MoveClaim
from tests.functional.devices.conftest import Made
from tests.support import faults
from tests.support.agent import operations
from tests.support.device_host import FLAVOR, ROOT, DeviceHost
from tests.support.tracking import guest, instance, uuid_of
from tests.unit.pci import scene

F2, F3 = "0000:81:02.0", "0000:82:03.0"
VF = "CUSTOM_PCI_8086_154C"
V2 = {"product_id": "154c", "address": "0000:81:02.*"}


def mismatches(report: NodeReport) -> list[str]:
    return [one.detail for one in report.drift if one.kind == "allocation-mismatch"]


def reshapes(report: NodeReport) -> list[Reshape]:
    return [one for one in operations(report) if isinstance(one, Reshape)]


@pytest.fixture
def used(host: DeviceHost) -> DeviceHost:
    """S1 has V20, and a share of the root."""
    host.start(V2)
    host.claim("S1", "V20")
    host.allocate("S1")
    host.placement.clear()
    return host


def test_s_44_s_67_what_placement_lacks_is_added_by_a_reshape_of_that_card_and_that_consumer(used: DeviceHost) -> None:
    used.placement.other.claim({ROOT: {"VCPU": 1}}, guest("other"))
    before, card = used.placement.dump(), used.provider("F2")
    report = used.cycle()
    (reshape,) = reshapes(report)
    assert (report.state, used.allocated("S1"), mismatches(report)) == ("changed", {F2: {VF: 1}}, [])
    assert (set(reshape.inventories), set(reshape.allocations)) == ({card}, {guest("S1")})
    held = used.placement.other.allocations(guest("S1"))["allocations"]
    assert held[ROOT]["resources"] == {"VCPU": 1, "MEMORY_MB": 1024}
    assert [one.path for one in used.placement.writes()] == ["/reshaper"]
    after = used.placement.dump()
    assert after["consumers"][guest("other")] == before["consumers"][guest("other")]
    assert used.cycle().state == "in-sync"
    used.placement.clear()
    assert used.cycle().state == "in-sync"
    assert (used.placement.writes(), used.placement.count()) == ([], 1)


def test_s_44_together_with_a_card_that_is_told_for_the_first_time(host: DeviceHost) -> None:
    host.values = (V2,)
    host.start(report=False)
    host.claim("S1", "V20")
    host.allocate("S1")
    report = host.start()
    assert (host.tree, host.allocated("S1"), len(reshapes(report))) == ([f"{F2}: {VF}=2"], {F2: {VF: 1}}, 1)
    assert host.cycle().state == "in-sync"


def test_s_45_an_amount_that_is_too_small_is_corrected(used: DeviceHost) -> None:
    used.claim("S2", "V21")
    used.allocate("S2", V21=1)
    used.delete("S1")
    used.release("S1")
    used.cycle()
    used.claim("S3", "V20")
    used.allocate("S3")
    used.cycle()
    assert (used.allocated("S2"), used.allocated("S3")) == ({F2: {VF: 1}}, {F2: {VF: 1}})


def test_s_45_one_of_two_devices_is_added(host: DeviceHost) -> None:
    host.start(V2)
    host.claim("S1", "V20", "V21")
    host.allocate("S1", V20=1)
    host.cycle()
    assert host.allocated("S1") == {F2: {VF: 2}}


def test_s_46_s_68_who_has_nothing_in_placement_is_left_alone(used: DeviceHost) -> None:
    used.release("S1")
    used.cycle()
    assert (used.allocated("S1"), used.placement.writes()) == ({}, [])
    used.placement.clear()
    used.cycle()
    assert (used.placement.writes(), used.placement.count()) == ([], 1)


def test_s_47_a_resize_on_the_same_host_is_left_alone_until_it_is_over(used: DeviceHost) -> None:
    assert used.agent is not None
    tracker = used.agent.tracking.tracker
    wanted = (DeviceRequest(uuid_of("V21"), 1, {"address": str(scene.address("V21"))}),)
    move = uuid_of("move")
    migration = Migration(
        uuid=ConsumerUuid(move), instance=guest("S1"), type="resize", source_compute="host-1", source_node=ProviderUuid(ROOT),
        dest_compute="host-1", dest_node=ProviderUuid(ROOT), status="pre-migrating",
    )  # fmt: skip
    tracker.claim_move(MoveClaim(
        id=move, type="resize", node=ProviderUuid(ROOT), instance=instance("S1", FLAVOR), flavor=FLAVOR, migration=migration, devices=wanted,
    ))  # fmt: skip
    used.cycle()
    assert (used.allocated("S1"), used.placement.writes()) == ({}, [])
    tracker.abort(move)
    used.cycle()
    assert used.allocated("S1") == {F2: {VF: 1}}


def test_s_48_an_amount_that_is_too_big_is_corrected(host: DeviceHost) -> None:
    host.start(V2)
    host.claim("S1", "V20")
    host.allocate("S1", V20=2)
    host.cycle()
    assert host.allocated("S1") == {F2: {VF: 1}}


def test_s_48_what_a_guest_without_such_a_device_holds_is_told_and_left_alone(host: DeviceHost) -> None:
    host.start(V2)
    host.claim("S1")
    host.allocate("S1", V20=1)
    report = host.cycle()
    assert (host.allocated("S1"), mismatches(report)) == ({F2: {VF: 1}}, [f"instance {guest('S1')} holds 1 {VF} of c1_{F2} instead of 0"])
    assert report.state == "in-sync"


def test_what_does_not_fit_is_told_and_the_rest_goes_on(host: DeviceHost) -> None:
    host.start({"product_id": "154c"})
    host.claim("S1", "V20")
    host.claim("S2", "V30")
    host.allocate("S1")
    host.allocate("S2")
    host.allocate("stranger", V20=2)
    report = host.cycle()
    assert (host.allocated("S1"), host.allocated("S2")) == ({}, {F3: {VF: 1}})
    assert mismatches(report) == [f"instance {guest('S1')} holds 0 {VF} of c1_{F2} instead of 1"]


def test_a_consumer_that_changes_meanwhile_is_read_again(used: DeviceHost, short_waits: None) -> None:
    other = used.placement.other

    def change(_request: Any) -> None:
        other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, guest("S1"))

    used.placement.faults.add(faults.before(change), method="POST", path="/reshaper")
    report = used.cycle()
    held = other.allocations(guest("S1"))["allocations"]
    assert (report.attempts, held[ROOT]["resources"]["MEMORY_MB"], used.allocated("S1")) == (2, 512, {F2: {VF: 1}})


def test_an_account_that_may_not_reshape_publishes_the_rest(made: Made) -> None:
    host = made()
    host.start(V2, roles="admin")
    host.claim("S1", "V20")
    host.allocate("S1")
    host.start(V2, {"address": "0000:81:00.0"}, roles="admin")
    report = host.cycle()
    assert (report.state, host.allocated("S1"), host.tree) == ("in-sync", {}, ["0000:81:00.0: CUSTOM_PCI_8086_1533=1", f"{F2}: {VF}=2"])
    assert mismatches(report) == [f"instance {guest('S1')} holds 0 {VF} of c1_{F2} instead of 1"]
