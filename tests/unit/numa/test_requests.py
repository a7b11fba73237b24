"""Requests for cells, and every way in which a request can be wrong."""

from collections.abc import Mapping
from typing import get_args

import pytest

from agent.model.instance import Guest, GuestCell
from agent.numa.flavor_and_image import GuestRequestError, Kind
from agent.numa.request import guest_of, overlooked

NONE: Mapping[str, str] = {}


def asked(
    specs: Mapping[str, str],
    properties: Mapping[str, str] = NONE,
    *,
    cpus: int = 4,
    memory: int = 4096,
) -> Guest:
    """The guest of a flavor; keys without ``hw:`` and ``hw_``, unless they have a prefix of their
    own.
    """
    guest = guest_of(cpus, memory, prefixed("hw:", specs), prefixed("hw_", properties))
    assert guest is not None
    return guest


def prefixed(prefix: str, given: Mapping[str, str]) -> Mapping[str, str]:
    return {key if ":" in key else f"{prefix}{key}": value for key, value in given.items()}


def wrong(
    kind: str,
    specs: Mapping[str, str],
    properties: Mapping[str, str] = NONE,
    *,
    cpus: int = 4,
    memory: int = 4096,
) -> str:
    """The message of the error, which has to be of ``kind``."""
    with pytest.raises(GuestRequestError) as error:
        guest_of(cpus, memory, prefixed("hw:", specs), prefixed("hw_", properties))
    assert error.value.kind == kind
    assert error.value.key in str(error.value)
    assert error.value.remedy.startswith("allowed: ")
    return str(error.value)


def spread(guest: Guest) -> list[tuple[set[int], int]]:
    return [(set(cell.cpus), cell.memory_mib) for cell in guest.cells]


def given(**more: str) -> dict[str, str]:
    """Two cells: CPU 0 and 1024 MiB, CPUs 1 to 3 and 3072 MiB; ``more`` replaces, ``_`` for the
    dot.
    """
    specs = {
        "numa_nodes": "2",
        "numa_cpus.0": "0",
        "numa_cpus.1": "1-3",
        "numa_mem.0": "1024",
        "numa_mem.1": "3072",
    }
    return {**specs, **{f"{key[:-2]}.{key[-1]}": value for key, value in more.items()}}


# --- scenarios ------------------------------------------------------------------------------------


def test_what_cannot_be_divided_is_asymmetric():
    assert "5 CPUs" in wrong("Asymmetric", {"numa_nodes": "2"}, cpus=5)
    assert "4097 MiB" in wrong("Asymmetric", {"numa_nodes": "2"}, memory=4097)


def test_cells_that_do_not_add_up_are_refused():
    message = wrong("MemoryMismatch", given(numa_mem_1="2048"))
    assert "3072" in message
    assert "4096" in message
    assert "CPU 3" in wrong("CpuUnassigned", given(numa_cpus_1="1-2"))
    assert "CPU 0" in wrong("CpuDuplicate", given(numa_cpus_1="0-3"))
    message = wrong("CpuOutOfRange", given(numa_cpus_1="1-4"))
    assert "CPU 4" in message
    assert "0 to 3" in message


def test_some_cells_without_the_others_are_incomplete():
    assert "hw:numa_cpus.1" in wrong("Incomplete", {"numa_nodes": "2", "numa_cpus.0": "0"})
    assert "hw:numa_mem.0" in wrong(
        "Incomplete", {"numa_nodes": "2", "numa_cpus.0": "0", "numa_cpus.1": "1-3"}
    )
    assert "hw:numa_cpus.0" in wrong("Incomplete", {"numa_nodes": "1", "numa_mem.0": "4096"})


def test_a_mixed_guest_says_which_cpus_are_dedicated():
    mixed = {"cpu_policy": "mixed"}
    assert asked({**mixed, "cpu_dedicated_mask": "^0-1"}).cells == (
        GuestCell(frozenset({0, 1}), frozenset({2, 3}), 4096),
    )
    assert asked({**mixed, "cpu_dedicated_mask": "^0,2"}).cells == (
        GuestCell(frozenset({0}), frozenset({1, 2, 3}), 4096),
    )
    assert asked({**mixed, "cpu_dedicated_mask": "^0,^3"}).cells == (
        GuestCell(frozenset({0, 3}), frozenset({1, 2}), 4096),
    )
    assert "shared" in wrong("MaskInvalid", {**mixed, "cpu_dedicated_mask": "0-3"})
    assert "no CPU 4" in wrong("MaskInvalid", {**mixed, "cpu_dedicated_mask": "2-5"})
    assert "needs a mask" in wrong("MaskInvalid", mixed)


def test_thread_and_emulator_policies_need_pinning():
    assert "hw:cpu_thread_policy" in wrong(
        "ThreadPolicyNeedsPinning", {"cpu_policy": "shared", "cpu_thread_policy": "require"}
    )
    assert "isolate" in wrong(
        "EmulatorNeedsPinning", {"cpu_policy": "shared", "emulator_threads_policy": "isolate"}
    )


def test_the_image_may_only_narrow_the_page_size():
    size = "mem_page_size"
    assert "2048" in wrong("PageSizeForbidden", {size: "2048"}, {size: "4"})
    assert asked({size: "large"}, {size: "2MB"}).pages == 2048
    assert asked({size: "any"}, {size: "small"}).pages == "small"
    assert "nothing" in wrong("PageSizeForbidden", {}, {size: "2048"})
    assert "2 apples" in wrong("PageSizeInvalid", {size: "2 apples"})


def test_a_request_for_dedicated_resources_implies_the_policy():
    pcpu, isolate = {"resources:PCPU": "4"}, {"emulator_threads_policy": "isolate"}
    assert asked(pcpu).cpu_policy == "dedicated"
    assert "5" in wrong("VcpuPcpuConflict", {**pcpu, **isolate})
    assert asked({"resources:PCPU": "5", **isolate}).emulator_cpus(0) == 1
    assert "one of the two" in wrong("VcpuPcpuConflict", {**pcpu, "resources:VCPU": "4"})
    assert "hw:cpu_policy" in wrong("VcpuPcpuConflict", {**pcpu, "cpu_policy": "dedicated"})
    assert "hw_cpu_policy" in wrong("VcpuPcpuConflict", pcpu, {"cpu_policy": "shared"})


def test_huge_pages_alone_make_one_cell_of_shared_cpus():
    guest = asked({"mem_page_size": "large"}, memory=2048)
    assert spread(guest) == [({0, 1, 2, 3}, 2048)]
    assert guest.cpu_policy == "shared"
    assert guest.pages == "large"


# --- who gets a topology --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:numa_nodes": "1"},
        {"hw:mem_page_size": "small"},
        {"hw:pmem": "4GB"},
        {"hw:cpu_policy": "dedicated"},
    ],
)
def test_any_of_these_makes_a_topology(specs):
    assert guest_of(4, 4096, specs, {}) is not None


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        ("dedicated", None, "dedicated"),
        ("dedicated", "shared", "dedicated"),
        ("dedicated", "mixed", "dedicated"),
        (None, "dedicated", "dedicated"),
        ("DEDICATED", None, "dedicated"),
    ],
)
def test_flavor_and_image_agree_on_a_policy(flavor, image, policy):
    specs, properties = ({} if one is None else {"cpu_policy": one} for one in (flavor, image))
    assert asked(specs, properties).cpu_policy == policy


def test_a_mixed_flavor_stays_mixed_on_a_shared_image():
    assert (
        asked(
            {"cpu_policy": "mixed", "cpu_dedicated_mask": "0"}, {"cpu_policy": "shared"}
        ).cpu_policy
        == "mixed"
    )


@pytest.mark.parametrize(
    ("flavor", "image"), [("mixed", "dedicated"), ("shared", "dedicated"), ("shared", "mixed")]
)
def test_an_image_may_not_ask_for_more_pinning_than_the_flavor_says(flavor, image):
    assert image in wrong(
        "PinningForbidden", {"cpu_policy": flavor, "cpu_dedicated_mask": "0"}, {"cpu_policy": image}
    )


@pytest.mark.parametrize(
    ("flavor", "image", "policy"),
    [
        (None, "isolate", "isolate"),
        ("prefer", "require", "prefer"),
        ("prefer", "isolate", "prefer"),
        ("require", "require", "require"),
        ("prefer", None, "prefer"),
        ("", "require", "require"),
    ],
)
def test_a_thread_policy_of_the_flavor_stays_what_it_is(flavor, image, policy):
    specs, properties = (
        {} if one is None else {"cpu_thread_policy": one} for one in (flavor, image)
    )
    assert asked({**specs, "cpu_policy": "dedicated"}, properties).thread_policy == policy


@pytest.mark.parametrize(("trait", "policy"), [("required", "require"), ("forbidden", "isolate")])
def test_the_hyperthreading_trait_is_a_thread_policy(trait, policy):
    key = "trait:HW_CPU_HYPERTHREADING"
    assert asked({key: trait, "cpu_policy": "dedicated"}).thread_policy == policy
    # Of an image's traits only those that are required are read.
    assert asked({"cpu_policy": "dedicated"}, {key: trait}).thread_policy == (
        policy if trait == "required" else None
    )
    assert asked({key: trait, "numa_nodes": "1"}).thread_policy is None
    wrong(
        "ThreadPolicyForbidden",
        {key: trait, "cpu_policy": "dedicated", "cpu_thread_policy": "prefer"},
    )


@pytest.mark.parametrize("value", ["many", "", "1.5"])
def test_an_amount_that_is_no_number_is_not_a_request_and_is_told(value):
    specs = {"resources1:PCPU": value, "resources:VCPU": value, "resources:CUSTOM_X": value}
    assert guest_of(4, 4096, specs, {}) is None
    assert overlooked(specs, {}) == ["resources1:PCPU", "resources:VCPU"]


# --- realtime -------------------------------------------------------------------------------------


def test_realtime_cpus_of_a_dedicated_guest():
    realtime = {"cpu_policy": "dedicated", "cpu_realtime": "yes"}
    assert asked({**realtime, "cpu_realtime_mask": "^0-1"}).realtime == {2, 3}
    assert asked({**realtime, "cpu_realtime_mask": "^0,2"}).realtime == {1, 2, 3}
    assert asked(
        {**realtime, "cpu_realtime_mask": "^0-1"}, {"cpu_realtime_mask": "1"}
    ).realtime == {1}
    assert asked({**realtime, "emulator_threads_policy": "share"}).realtime == {0, 1, 2, 3}
    assert asked(
        {**realtime, "emulator_threads_policy": "share", "cpu_realtime_mask": "0-3"}
    ).realtime == {0, 1, 2, 3}
    assert "emulator" in wrong("MaskInvalid", {**realtime, "cpu_realtime_mask": "0-3"})
    assert "not set" in wrong("MaskInvalid", realtime)
    assert "^0-3" in wrong(
        "MaskInvalid", {**realtime, "cpu_realtime_mask": "^0-3", "emulator_threads_policy": "share"}
    )
    wrong("InvalidCpuPolicy", {"cpu_realtime": "yes", "cpu_realtime_mask": "1"})


def test_realtime_cpus_of_a_mixed_guest_are_the_dedicated_ones():
    mixed = {"cpu_policy": "mixed", "cpu_realtime": "true"}
    for mask in ("cpu_realtime_mask", "cpu_dedicated_mask"):
        guest = asked({**mixed, mask: "^0"})
        assert guest.realtime == guest.cells[0].dedicated == {1, 2, 3}
    wrong("MaskInvalid", {**mixed, "cpu_realtime_mask": "1", "cpu_dedicated_mask": "1"})
    wrong("MaskInvalid", {**mixed, "cpu_dedicated_mask": "1"}, {"cpu_realtime_mask": "1"})
    wrong("MaskInvalid", {**mixed, "cpu_realtime_mask": "0-3"})
    wrong("MaskInvalid", mixed)
    for more in ({}, {"cpu_realtime_mask": "0-3"}):
        assert asked({**mixed, **more, "emulator_threads_policy": "share"}).cells == (
            GuestCell(frozenset(), frozenset(range(4)), 4096),
        )


def test_a_realtime_mask_means_nothing_without_realtime():
    guest = asked({"cpu_policy": "mixed", "cpu_dedicated_mask": "1", "cpu_realtime_mask": "2"})
    assert guest.cells[0].dedicated == {1}
    assert guest.realtime == frozenset()


# --- every kind of error --------------------------------------------------------------------------

DEDICATED = {"cpu_policy": "dedicated"}
WRONG = [
    ("InvalidNodes", {"numa_nodes": "0"}, {}),
    ("InvalidNodes", {"numa_nodes": "two"}, {}),
    ("TopologyForbidden", {"numa_nodes": "2"}, {"numa_nodes": "2"}),
    (
        "TopologyForbidden",
        {"numa_nodes": "2", "numa_cpus.0": "0"},
        {"numa_cpus.0": "0", "numa_cpus.1": "1"},
    ),
    ("TopologyForbidden", {"numa_nodes": "2", "numa_mem.0": "1"}, {"numa_mem.0": "1"}),
    ("Asymmetric", {"numa_nodes": "3"}, {}),
    ("Incomplete", {"numa_nodes": "2", "numa_mem.0": "1", "numa_mem.1": "1"}, {}),
    ("CpuUnassigned", given(numa_cpus_0=""), {}),
    ("CpuOutOfRange", given(numa_cpus_0="x"), {}),
    ("CpuOutOfRange", given(numa_cpus_1="1-9"), {}),
    ("CpuDuplicate", given(numa_cpus_0="0-1"), {}),
    ("CpuUnassigned", given(numa_cpus_1="2-3"), {}),
    ("MemoryMismatch", given(numa_mem_0="1"), {}),
    ("MemoryMismatch", given(numa_mem_0="-1"), {}),
    ("InvalidCpuPolicy", {"cpu_policy": "greedy"}, {}),
    ("InvalidCpuPolicy", {}, {"cpu_policy": "greedy"}),
    ("PinningForbidden", {"cpu_policy": "shared"}, {"cpu_policy": "dedicated"}),
    ("InvalidThreadPolicy", {**DEDICATED, "cpu_thread_policy": "all"}, {}),
    ("InvalidThreadPolicy", DEDICATED, {"cpu_thread_policy": "all"}),
    (
        "ThreadPolicyForbidden",
        {**DEDICATED, "cpu_thread_policy": "require"},
        {"cpu_thread_policy": "isolate"},
    ),
    ("ThreadPolicyNeedsPinning", {}, {"cpu_thread_policy": "prefer"}),
    ("MaskNeedsMixed", {**DEDICATED, "cpu_dedicated_mask": "0"}, {}),
    ("MaskNeedsMixed", {"cpu_dedicated_mask": "0"}, {}),
    ("MaskInvalid", {"cpu_policy": "mixed", "cpu_dedicated_mask": "a"}, {}),
    ("MaskInvalid", {"cpu_policy": "mixed", "cpu_dedicated_mask": ""}, {}),
    ("MaskInvalid", {"cpu_policy": "mixed", "cpu_dedicated_mask": "^0-3"}, {}),
    ("EmulatorNeedsPinning", {"emulator_threads_policy": "isolate"}, {}),
    ("InvalidEmulatorPolicy", {**DEDICATED, "emulator_threads_policy": "float"}, {}),
    ("PageSizeInvalid", {"mem_page_size": "huge"}, {}),
    ("PageSizeInvalid", {"mem_page_size": "0"}, {}),
    ("PageSizeInvalid", {"mem_page_size": "any"}, {"mem_page_size": "big"}),
    ("PageSizeForbidden", {"mem_page_size": "small"}, {"mem_page_size": "small"}),
    ("LockedNeedsPages", {"locked_memory": "true"}, {}),
    (
        "LockedNeedsPages",
        {"locked_memory": "true", "mem_page_size": "large"},
        {"locked_memory": "false"},
    ),
    ("InvalidPciPolicy", {"pci_numa_affinity_policy": "near"}, {}),
    ("InvalidPciPolicy", {}, {"pci_numa_affinity_policy": "near"}),
    (
        "PciPolicyForbidden",
        {"pci_numa_affinity_policy": "required"},
        {"pci_numa_affinity_policy": "socket"},
    ),
    ("VcpuPcpuConflict", {"resources:PCPU": "3"}, {}),
    ("VcpuPcpuConflict", {"resources:PCPU": "4", "resources2:PCPU": "1"}, {}),
    ("VcpuPcpuConflict", {"resources1:PCPU": "4", "resources2:VCPU": "4"}, {}),
    ("VcpuPcpuConflict", {"resources10:VCPU": "4", "cpu_policy": "shared"}, {}),
    ("VcpuPcpuConflict", {"resources:VCPU": "4", "cpu_policy": "shared"}, {}),
]


@pytest.mark.parametrize(("kind", "specs", "properties"), WRONG)
def test_an_impossible_request_is_named(kind, specs, properties):
    wrong(kind, specs, properties)


def test_every_kind_of_error_is_shown():
    assert {kind for kind, _, _ in WRONG} == set(get_args(Kind))


def test_flavor_and_image_may_say_the_same_in_other_words():
    guest = asked(
        {"mem_page_size": "large", "locked_memory": "True", "pci_numa_affinity_policy": "socket"},
        {"locked_memory": "1", "pci_numa_affinity_policy": "Socket"},
    )
    assert guest.pci_policy == "socket"


def test_control_characters_of_a_value_do_not_reach_the_message():
    assert "\n" not in wrong("PageSizeInvalid", {"mem_page_size": "2\n048 \x1b[2J"})


# --- what has no effect ---------------------------------------------------------------------------


def test_keys_of_cells_that_the_guest_does_not_have_are_told():
    specs = prefixed("hw:", given())
    assert overlooked(specs, {}) == []
    assert overlooked({**specs, "hw:numa_cpus.2": "4", "hw:numa_mem.x": "1"}, {}) == [
        "hw:numa_cpus.2",
        "hw:numa_mem.x",
    ]


def test_keys_behind_a_gap_are_told():
    assert overlooked(
        {"hw:numa_nodes": "2", "hw:numa_cpus.1": "0-3"}, {"hw_numa_mem.1": "4096"}
    ) == ["hw:numa_cpus.1", "hw_numa_mem.1"]
    assert spread(asked({"numa_nodes": "2", "numa_cpus.1": "0-3"})) == [
        ({0, 1}, 2048),
        ({2, 3}, 2048),
    ]
