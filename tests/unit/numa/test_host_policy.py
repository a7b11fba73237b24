"""What the options say about the cells of a host, and where they contradict
the host.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli.command import Options, Source
from agent.cli.configuration import load
from agent.errors import ConfigErrors
from agent.model.facts import Cell, PagePool, Topology
from agent.model.instance import GuestCell, PlacedCell
from agent.numa.flavor_and_image import parse_page_size
from agent.numa.host import NetworkAffinity, parse_reserved_pages, unreservable
from agent.numa.host_policy import HostPolicy, not_offered
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


# --- cPU sets against the guests that are there ---


SHARED = PlacedCell(GuestCell(cpus(0, 2), NOTHING, 1024), 0)
PINNED = PlacedCell(GuestCell(NOTHING, cpus(0, 2), 1024), 0, pins={0: 2, 1: 3})
MIXED = PlacedCell(GuestCell(cpus(0, 1), cpus(1, 1), 1024), 0, pins={1: 7})
GUESTS = [("floats", []), ("shares", [SHARED]), ("pinned", [PINNED]), ("mixed", [MIXED])]


def guest_complaints(policy: HostPolicy, guests) -> list[str]:
    return [error.message for error in not_offered(policy, guests)]


def test_a_set_may_not_shrink_under_a_pinned_guest():
    assert guest_complaints(HostPolicy(cpus(0, 2), cpus(4, 4)), GUESTS) == [
        "[compute] cpu_dedicated_set lacks CPUs 2-3, to which guest pinned is pinned"
    ]
    assert guest_complaints(HostPolicy(cpus(0, 2), cpus(2, 6)), GUESTS) == []


def test_pinned_guests_may_be_on_the_cpus_of_the_old_pin_set_and_on_no_others():
    assert guest_complaints(HostPolicy(cpus(0, 8), pin_set=True), GUESTS) == []
    assert guest_complaints(HostPolicy(cpus(0, 3), pin_set=True), GUESTS[:3]) == [
        "[DEFAULT] vcpu_pin_set lacks CPUs 3, to which guest pinned is pinned"
    ]


def test_a_cpu_of_the_emulator_is_pinned_too():
    guest = [
        ("a", [replace(PINNED, pins={0: 4, 1: 5}, reserved=frozenset({3}))]),
        ("b", [replace(PINNED, pins={0: 6, 1: 7})]),
    ]
    assert guest_complaints(HostPolicy(dedicated=cpus(4, 4)), guest) == [
        "[compute] cpu_dedicated_set lacks CPUs 3, to which guest a is pinned"
    ]


def test_shared_guests_need_a_shared_set_beside_a_dedicated_one():
    assert guest_complaints(HostPolicy(dedicated=cpus(2, 6)), GUESTS) == [
        (
            "[compute] cpu_dedicated_set is set and cpu_shared_set is not, but there are guests "
            "with shared CPUs: floats, shares, mixed"
        )
    ]


def test_pinned_guests_need_a_dedicated_set_beside_a_shared_one():
    assert guest_complaints(HostPolicy(cpus(0, 8)), GUESTS) == [
        (
            "[compute] cpu_shared_set is set and cpu_dedicated_set is not, but there are guests "
            "with dedicated CPUs: pinned, mixed"
        )
    ]


@pytest.mark.parametrize("policy", [HostPolicy(), HostPolicy(cpus(0, 2), cpus(2, 6))])
def test_without_sets_and_with_both_every_guest_may_be_there(policy):
    assert guest_complaints(policy, GUESTS) == []


@pytest.mark.parametrize(
    ("policy", "guest"),
    [
        (HostPolicy(cpus(0, 8)), []),
        (HostPolicy(cpus(0, 8)), [SHARED]),
        (HostPolicy(dedicated=cpus(2, 6)), [PINNED]),
    ],
)
def test_one_set_is_enough_for_guests_of_its_kind(policy, guest):
    assert guest_complaints(policy, [("a", guest)]) == []


def test_of_many_guests_a_few_are_named():
    (message,) = guest_complaints(
        HostPolicy(dedicated=cpus(0, 8)), [(f"g{number}", []) for number in range(7)]
    )
    assert message.endswith("guests with shared CPUs: g0, g1, g2, g3, g4 and 2 more")


def test_both_halves_of_a_move_on_one_host_count():
    halves = [
        ("a", [replace(PINNED, pins={0: 4, 1: 5})]),
        ("a", [PINNED]),
        ("b", []),
        ("b", [SHARED]),
    ]
    assert guest_complaints(HostPolicy(dedicated=cpus(4, 4)), halves) == [
        (
            "[compute] cpu_dedicated_set is set and cpu_shared_set is not, but there are guests "
            "with shared CPUs: b"
        ),
        "[compute] cpu_dedicated_set lacks CPUs 2-3, to which guest a is pinned",
    ]


# --- more ---


PAGED_HOST = Topology(
    (
        Cell(0, frozenset(), 8192, (PagePool(2048, 512), PagePool(1048576, 4))),
        Cell(8, frozenset(), 1024),
    )
)


def wrong(*texts: str) -> list[str]:
    with pytest.raises(ConfigErrors) as errors:
        parse_reserved_pages(texts)
    return [error.message for error in errors.value.errors]


def test_pages_are_reserved_by_cell_and_size():
    assert parse_reserved_pages([]) == {}
    pages = parse_reserved_pages(
        ["node:0,size:2048,count:64", " count : 4, size: 1GB , node:0", "node:8,size:4,count:0"]
    )
    assert pages == {(0, 2048): 64, (0, 1048576): 4, (8, 4): 0}
    assert list(unreservable(pages, PAGED_HOST)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node:0,size:2048,count:x", "count 'x' is no number"),
        ("node:0,size:2048,count:-1", "count '-1' is no number"),
        ("node:٣,size:2048,count:1", "node '٣' is no number"),
        ("node:0,size:many,count:1", "size 'many' is neither"),
        ("node:0,size:2048", "count is missing"),
        ("size:2048,count:1", "node is missing"),
        ("node:0,size:,count:1", "size is missing"),
        ("", "node is missing"),
        ("node:0,size:2048,count:1,cuont:2", "cuont is not known"),
        ("node:0,node:8,size:2048,count:1", "a key is given twice"),
        ("node=0,size:2048,count:1", "node=0 is not known"),
        ("node:0,size:2048,count:\x1b[2J", r"\x1b[2J"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    (found,) = wrong(text)
    assert message in found
    assert found.startswith("[DEFAULT] reserved_huge_pages = ")
    assert found.isprintable()


def test_everything_wrong_is_told_at_once():
    assert (
        len(
            wrong(
                "size:2048,count:1", "node:0,size:2048,count:1", "node:0", "node:0,size:2MB,count:2"
            )
        )
        == 3
    )


def test_what_the_host_cannot_give_is_named_with_what_there_is():
    assert list(
        unreservable(
            {(7, 2048): 1, (0, 4096): 1, (8, 2048): 1, (0, 2048): 513, (0, 1048576): 4}, PAGED_HOST
        )
    ) == [
        (
            "[DEFAULT] reserved_huge_pages = node:7,size:2048,count:1: node 7 is not there",
            "take the entry out; the host has the nodes 0, 8",
        ),
        (
            (
                "[DEFAULT] reserved_huge_pages = node:0,size:4096,count:1: node 0 has no pages of "
                "4096 KiB"
            ),
            "take the entry out; the node has pages of 4, 2048, 1048576 KiB",
        ),
        (
            (
                "[DEFAULT] reserved_huge_pages = node:8,size:2048,count:1: node 8 has no pages of "
                "2048 KiB"
            ),
            "take the entry out; the node has pages of 4 KiB",
        ),
        (
            (
                "[DEFAULT] reserved_huge_pages = node:0,size:2048,count:513: node 0 has only 512 "
                "pages of 2048 KiB"
            ),
            (
                "reserve fewer, or make them: echo 513 > "
                "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "kib"),
    [
        ("4", 4),
        ("2048", 2048),
        ("64KB", 64),
        ("2MB", 2048),
        ("2 MiB", 2048),
        ("2m", 2048),
        ("1GB", 1048576),
        ("1g", 1048576),
        ("1TB", 1024**3),
        (" 4 ", 4),
    ],
)
def test_sizes_of_pages(text, kib):
    assert parse_page_size(text) == kib


@pytest.mark.parametrize(
    "text",
    ["", "0", "0MB", "-4", "2 apples", "MB", "1.5GB", "2B", "2 iB", "٣", "4 4", "1PB", "2MBs"],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="neither a number of KiB nor a size"):
        parse_page_size(text)
