"""What guests of a real libvirtd tell is enough to move what they hold: drivers.md 5."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.desired.policy import Policy
from agent.numa.host_policy import HostPolicy
from drivers.libvirt.driver import LibvirtDriver
from tests.support.agent import AgentUnderTest
from tests.support.libvirt_host import IDENTITY, Operator, guest_uuid, node_of, started
from tests.support.libvirtd import Libvirtd
from tests.support.placement import PlacementServer

PINNED = """\
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
<numatune><memory mode='strict' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/></numatune>
<cpu><numa><cell id='0' cpus='0' memory='16' unit='MiB'/></numa></cpu>
"""
SHARED, DEDICATED = HostPolicy(), HostPolicy(frozenset({0}), frozenset({1}))


@pytest.fixture
def driver(libvirtd: Libvirtd) -> Iterator[LibvirtDriver]:
    with started(libvirtd.uri) as one:
        yield one


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_r2_a_guest_that_libvirt_shows_pinned_holds_pcpu_from_now_on_and_vcpu_again(
    layout: Any, driver: LibvirtDriver, operator: Operator, placement: PlacementServer, tmp_path: Path
) -> None:
    operator.define("pinned", nova=True, more=PINNED)
    operator.define("floating", nova=True)

    def agent(host: HostPolicy) -> AgentUnderTest:
        return AgentUnderTest(placement, tmp_path, driver, policy=Policy(host, layout=layout))

    def held() -> dict[str, dict[str, dict[str, int]]]:
        dump, node = placement.dump(), node_of(driver)
        names = {uuid: one["name"].replace(node, "node") for uuid, one in dump["providers"].items()}
        found = {name: dump["consumers"][guest_uuid(name)]["allocations"] for name in ("pinned", "floating")}
        return {name: {names[uuid]: dict(resources) for uuid, resources in one.items()} for name, one in found.items()}

    assert agent(SHARED).once().errors == ()
    for name in ("pinned", "floating"):
        placement.other.claim({IDENTITY: {"VCPU": 1, "MEMORY_MB": 16}}, guest_uuid(name))
    floating = {"node": {"VCPU": 1, "MEMORY_MB": 16}}
    assert agent(DEDICATED).once().errors == ()
    on_cell = {"node": {"MEMORY_MB": 16}, "node_NUMA0": {"PCPU": 1}}
    assert held() == {"pinned": {"node": {"MEMORY_MB": 16, "PCPU": 1}} if layout == "flat" else on_cell, "floating": floating}
    assert agent(DEDICATED).once().state == "in-sync"
    assert agent(SHARED).once().errors == ()
    assert held() == {"pinned": floating, "floating": floating}
