"""Which devices a guest gets, of those that the scheduler took and near its cells: pci.md 57 and numa.md 51, with the whole agent."""

import pytest

from agent.model.device_request import DeviceRequest
from agent.model.flavor import Flavor
from agent.model.guest import PciPolicy
from agent.model.names import ProviderUuid
from agent.tracker.errors import ResourcesUnavailable
from tests.functional.devices.conftest import Made
from tests.support.device_host import DEDICATED, ROOT, DeviceHost
from tests.support.tracking import guest, uuid_of

VF = "CUSTOM_PCI_8086_154C"
PINNED = Flavor("p", "P", 2, 1024, extra_specs={"hw:cpu_policy": "dedicated"})
ALL_PINNED = Flavor("q", "Q", 4, 1024, extra_specs={"hw:cpu_policy": "dedicated"})


def functions(count: int) -> DeviceRequest:
    return DeviceRequest("vf", count, {"vendor_id": "8086", "product_id": "154c"}, resource_class=VF)


def take(host: DeviceHost, name: str, first: int, second: int) -> set[str]:
    """A guest that the scheduler gave functions of F2 and of F3, and has them; which they are."""
    amounts = {"F2": first, "F3": second}
    held = {ProviderUuid(ROOT): {"VCPU": 1, "MEMORY_MB": 1024}, **{ProviderUuid(host.provider(card)): {VF: n} for card, n in amounts.items() if n}}
    host.ask(name, functions(first + second), allocations=held)
    host.placement.other.claim(held, guest(name))
    return {device for device, owner in host.holders.items() if owner == guest(name)}


def test_s_57_a_guest_gets_as_many_functions_of_each_card_as_the_scheduler_took(host: DeviceHost) -> None:
    host.start({"product_id": "154c"})
    found = take(host, "S1", 2, 1)
    assert {"V20", "V21"} < found
    assert len(found) == 3
    assert len(take(host, "S2", 0, 2)) == 2
    host.delete("S1")
    host.cycle()
    assert take(host, "S3", 1, 0) <= {"V20", "V21"}
    # One of the two is left there, however many the other card has.
    with pytest.raises(ResourcesUnavailable):
        take(host, "S4", 2, 0)
    report = host.cycle()
    assert [one for one in report.drift if one.kind in ("allocation-mismatch", "held-device")] == []


@pytest.mark.parametrize("policy", ["required", "preferred"])
def test_numa_51_a_guest_goes_where_its_device_is_and_elsewhere_only_if_it_may(policy: PciPolicy, made: Made) -> None:
    host = made(policy=DEDICATED)
    host.start({"product_id": "1572", "address": "0000:82:03.0"}, report=False)
    card = DeviceRequest("nic", 1, {"vendor_id": "8086", "product_id": "1572", "type": "type-PF"}, policy=policy)

    def cell(name: str) -> int:
        (placed,) = host.tracker.view(ProviderUuid(ROOT)).claims[uuid_of(f"claim-{name}")].cells
        return placed.host_cell

    host.ask("S1", card, flavor=PINNED)
    assert (cell("S1"), host.holders) == (1, {"F3": guest("S1")})
    host.delete("S1")
    # Who wants no device leaves the cells that have some; then the cell of the device is full.
    host.ask("S2", flavor=ALL_PINNED)
    host.ask("S3", flavor=ALL_PINNED)
    assert (cell("S2"), cell("S3")) == (0, 1)
    host.delete("S2")
    if policy == "required":
        with pytest.raises(ResourcesUnavailable):
            host.ask("S4", card, flavor=PINNED)
        assert host.holders == {}
    else:
        host.ask("S4", card, flavor=PINNED)
        assert (cell("S4"), host.holders) == (0, {"F3": guest("S4")})
