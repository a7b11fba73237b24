"""What the options say about the cells of a host, and where they contradict
the host.
"""

from pathlib import Path

import pytest

from agent.cli.command import Options, Source
from agent.cli.configuration import load
from agent.errors import ConfigErrors
from agent.model.topology import Cell, PagePool, Topology
from agent.numa.host_cells import NetworkAffinity
from agent.numa.host_policy import HostPolicy
from tests.support.ini import Config, write_config
from tests.unit.numa.cells import NOTHING, cpus

HOST = Topology((Cell(0, cpus(0, 8), 8192, (PagePool(2048, 512),)), Cell(8, cpus(8, 8), 8192)))
EVERYTHING = cpus(0, 16)


@pytest.fixture
def policy(tmp_path: Path):
    def read(config: Config) -> HostPolicy:
        return HostPolicy.from_options(
            load(Options(sources=(Source(write_config(tmp_path / "agent.conf", config)),)), {})
        )

    return read


def complaints(call, *args) -> list[str]:
    with pytest.raises(ConfigErrors) as errors:
        call(*args)
    return [error.message for error in errors.value.errors]


def test_the_options_of_a_nova_conf_are_understood(policy):
    assert policy(
        {
            "DEFAULT": {
                "reserved_huge_pages": ["node:0,size:2048,count:64", "node:8,size:1GB,count:1"]
            },
            "compute": {
                "cpu_shared_set": "0-3,^2",
                "cpu_dedicated_set": "4-7",
                "packing_host_numa_cells_allocation_strategy": True,
            },
            "neutron": {"physnets": "foo, bar"},
            "neutron_physnet_foo": {"numa_nodes": "0"},
            "neutron_physnet_bar": {"numa_nodes": "0,8"},
            "neutron_physnet_unused": {"numa_nodes": "5"},
            "neutron_tunnel": {"numa_nodes": "8"},
        }
    ) == HostPolicy(
        frozenset({0, 1, 3}),
        cpus(4, 4),
        {(0, 2048): 64, (8, 1048576): 1},
        NetworkAffinity({"foo": frozenset({0}), "bar": frozenset({0, 8})}, frozenset({8})),
        "pack",
    )


def test_all_that_is_wrong_whatever_the_host_has_is_told_at_once(policy):
    assert complaints(
        policy,
        {
            "DEFAULT": {"reserved_huge_pages": "node:0"},
            "compute": {"cpu_shared_set": "0-5", "cpu_dedicated_set": "2,4-7"},
            "neutron": {"physnets": "foo,,bar"},
            "neutron_physnet_bar": {"numa_nodes": "0"},
        },
    ) == [
        "[compute] cpu_shared_set and cpu_dedicated_set both have CPU 2,4-5",
        "[DEFAULT] reserved_huge_pages = node:0: size is missing",
        "[neutron_physnet_foo] numa_nodes is not set, although [neutron] physnets names foo",
        "[neutron] physnets: a physical network has no name",
    ]


def test_a_node_that_is_no_number_is_told_with_its_place(policy, tmp_path):
    (message,) = complaints(
        policy, {"neutron": {"physnets": "foo"}, "neutron_physnet_foo": {"numa_nodes": "0,x"}}
    )
    assert message.startswith(f"{tmp_path}/agent.conf:4: [neutron_physnet_foo] numa_nodes = 0,x: ")


def test_networks_that_refer_to_nothing_are_told_with_their_place(tmp_path):
    path = tmp_path / "agent.conf"
    path.write_text("[neutron]\nphysnets = $nothing\n")
    (message,) = complaints(load, Options(sources=(Source(path),)), {})
    assert message.startswith(f"{path}:2: [neutron] physnets = $nothing: ")


def test_all_that_contradicts_the_host_is_told_at_once():
    policy = HostPolicy(
        cpus(0, 4),
        cpus(14, 4),
        {(0, 2048): 513},
        NetworkAffinity({"foo": frozenset({0, 7}), "evil\x1b": frozenset({9})}, frozenset({1})),
    )
    assert [
        (error.message, error.remedy) for error in policy.contradictions(HOST, EVERYTHING | {16})
    ] == [
        ("[compute] cpu_dedicated_set: CPUs 16 are on no NUMA node", "the nodes have 0-15"),
        ("[neutron_physnet_foo] numa_nodes: NUMA node 7 is not there", "the host has 0, 8"),
        (r"[neutron_physnet_evil\x1b] numa_nodes: NUMA node 9 is not there", "the host has 0, 8"),
        ("[neutron_tunnel] numa_nodes: NUMA node 1 is not there", "the host has 0, 8"),
    ]


def test_a_host_without_cells_has_no_node():
    (error,) = HostPolicy(networks=NetworkAffinity(tunneled=frozenset({0}))).contradictions(
        Topology(()), NOTHING
    )
    assert error.message == "[neutron_tunnel] numa_nodes: NUMA node 0 is not there"


def test_what_is_said_of_cells_that_are_gone_does_not_matter_to_the_others():
    policy = HostPolicy(
        cpus(0, 2),
        cpus(4, 12),
        {(0, 2048): 64, (8, 2048): 64},
        NetworkAffinity({"foo": frozenset({0, 8})}, frozenset({8})),
    )
    (cell,) = policy.cells(Topology(HOST.cells[:1]), HOST.cells[0].cpus)
    assert (cell.shared, cell.dedicated, cell.physnets, cell.tunneled) == (
        cpus(0, 2),
        cpus(4, 4),
        frozenset({"foo"}),
        False,
    )


def test_the_cells_are_as_the_policy_says():
    policy = HostPolicy(
        cpus(0, 2),
        cpus(4, 4),
        {(0, 2048): 64},
        NetworkAffinity({"foo": frozenset({8})}, frozenset({0})),
    )
    first, second = policy.cells(HOST, EVERYTHING)
    assert (first.shared, first.dedicated, second.shared, second.dedicated) == (
        cpus(0, 2),
        cpus(4, 4),
        NOTHING,
        NOTHING,
    )
    assert [pool.free for pool in first.pages if pool.size_kib == 2048] == [448]
    assert (first.tunneled, first.physnets, second.tunneled, second.physnets) == (
        True,
        frozenset(),
        False,
        frozenset({"foo"}),
    )


def test_the_cpus_of_the_old_pin_set_serve_both_kinds_of_guest_cpus_and_no_others_do(policy):
    old = policy({"DEFAULT": {"vcpu_pin_set": "0-3,^2"}, "compute": {"cpu_shared_set": "8-9"}})
    first, second = old.cells(HOST, EVERYTHING)
    assert first.shared == first.dedicated == frozenset({0, 1, 3})
    assert second.shared == second.dedicated == NOTHING
    assert [error.message for error in old.offline(EVERYTHING - {3})] == [
        "[DEFAULT] vcpu_pin_set: CPUs 3 not online, online are 0-2,4-15"
    ]
    assert complaints(policy, {"DEFAULT": {"vcpu_pin_set": "^3"}}) == [
        "[DEFAULT] vcpu_pin_set = ^3: '^3' leaves no CPU"
    ]


def test_a_cpu_that_is_not_online_is_told_and_only_not_offered():
    policy = HostPolicy(cpus(0, 2), cpus(4, 4))
    online = EVERYTHING - {5}
    assert [error.message for error in policy.offline(online)] == [
        "[compute] cpu_dedicated_set: CPUs 5 not online, online are 0-4,6-15"
    ]
    assert list(policy.offline(EVERYTHING)) == []
    assert policy.cells(HOST, online)[0].dedicated == frozenset({4, 6, 7})
