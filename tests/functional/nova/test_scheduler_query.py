"""The query that ``agent explain`` builds for a guest, compared with that of nova's own scheduler, group
by group, for random flavors and image properties. A real Placement decides which queries of nova's
are none.

``NOVA_PYTHON`` names a Python that has nova 34; without it this is left out. docs/nova-options.md names
each difference that is taken out here, with its reason.
"""

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest

from agent.explain.scheduler_query import SchedulerQuery, scheduler_query
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.pci.device_request import aliases
from agent.tracker.errors import TrackerError
from agent.tracker.stored_state import InstanceClaim
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.novas_tracker import NOVA
from tests.support.tracking import uuid_of

backends.require("placement.deploy")
from tests.support.placement import PlacementServer  # noqa: E402 - needs Placement

GUESTS = 600
ALIASES = [
    {"name": "gpu", "vendor_id": "10de", "product_id": "1db4"},
    {"name": "nic", "resource_class": "fast-nic", "traits": "quick,HW_NIC_SRIOV"},
    {"name": "moving", "vendor_id": "8086", "product_id": "154C", "live_migratable": "true"},
    {"name": "fixed", "vendor_id": "8086", "product_id": "154d", "live_migratable": "no"},
]
CLASSES = ("CUSTOM_A", "CUSTOM_FAST_NIC", "CUSTOM_PCI_10DE_1DB4", "CUSTOM_PCI_8086_154C",
           "CUSTOM_PCI_8086_154D", "CUSTOM_PMEM_NAMESPACE_4GB", "CUSTOM_PMEM_NAMESPACE_A_B")  # fmt: skip
TRAITS = ("CUSTOM_T", "CUSTOM_QUICK")
OF_DEVICE = re.compile(r"[0-9a-f-]{36}-[0-9]+")
GROUPED = re.compile(r"(resources|required)(.*)")
NOVAS = {"OWNER_NOVA"}
"""What nova requires of the root and of devices, once every compute service is of version 34."""
OURS = {"COMPUTE_MANAGED_PCI_DEVICE", "HW_PCI_LIVE_MIGRATABLE", "!HW_PCI_LIVE_MIGRATABLE"}
"""What the agent requires of devices, and nova's filter of devices checks after the query."""
ENCRYPTION = {"InvalidMachineType", "StatelessFirmwareRequired", "InvalidVideoMode"}
"""Images that nova refuses with encrypted memory."""
INVALID = {"CPUThreadPolicyConfigurationInvalid", "InvalidRequest", "ValueError"}
"""A trait of hyperthreading that contradicts the policies, and unknown values."""


@dataclass
class Comparable:
    """A query without the suffixes of its device groups, which are random in nova."""

    groups: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    devices: list[tuple[list[str], list[str]]] = field(default_factory=list)
    others: dict[str, set[str]] = field(default_factory=dict)


def comparable(pairs: Sequence[Sequence[str]], left_out: set[str]) -> Comparable:
    found, devices = Comparable(), {}
    for key, value in pairs:
        words = set(value.split(","))
        if (grouped := GROUPED.fullmatch(key)) is None:
            found.others[key] = words - NOVAS
        elif OF_DEVICE.fullmatch(grouped[2]):
            devices.setdefault(grouped[2], {})[grouped[1]] = words - left_out
        else:
            found.groups.setdefault(grouped[2], {})[grouped[1]] = words
    found.devices = sorted(
        (sorted(device["resources"]), sorted(device.get("required", ())))
        for device in devices.values()
    )
    return found


@pytest.fixture(scope="module")
def guests() -> list[dict[str, Any]]:
    dice = random.Random(34)
    return [some_guest(dice) for _ in range(GUESTS)]


@pytest.fixture(scope="module")
def novas(guests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What nova says of each guest."""
    if not NOVA:
        pytest.skip(
            backends.reason(
                "nova's own scheduler",
                "set NOVA_PYTHON to a Python with nova==34.0.0 'SQLAlchemy<2.1'",
            )
        )
    script = CHECKOUT / "tests" / "functional" / "nova" / "nova_query.py"
    lines = [[json.dumps(alias) for alias in ALIASES], *guests]
    ran = subprocess.run(
        [NOVA, "-W", "ignore", str(script)],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture(scope="module")
def placement() -> Iterator[PlacementServer]:
    server = PlacementServer()
    for name in CLASSES:
        server.other.call("PUT", f"/resource_classes/{name}")
    for name in TRAITS:
        server.other.call("PUT", f"/traits/{name}")
    yield server
    server.close()


def ours(guest: Mapping[str, Any]) -> SchedulerQuery | str:
    """The agent's query, or why there is none."""
    known, errors = aliases([json.dumps(alias) for alias in ALIASES], report=True)
    assert not errors
    sizes = {name: guest[name] for name in ("vcpus", "memory_mb", "root_gb", "ephemeral_gb")}
    flavor = Flavor("f", "F", **sizes, swap_mb=guest["swap_mb"], extra_specs=guest["specs"])
    instance = Instance(
        uuid=ConsumerUuid(uuid_of("i")),
        project_id="p",
        user_id="u",
        flavor=flavor,
        image_properties=guest["properties"],
        volume_backed=guest["volume_backed"],
    )
    claim = InstanceClaim(id=uuid_of("c"), node=ProviderUuid(uuid_of("n")), instance=instance)
    try:
        found = scheduler_query(claim, known, devices_in_placement=True)
    except TrackerError as error:
        return error.message
    return "; ".join(found.query.problems()) or found


def refusal(answer: Mapping[str, Any], placement: PlacementServer) -> str:
    """Why nova, or Placement for it, refuses the guest; empty if neither does."""
    if "refused" in answer:
        return ": ".join(answer["refused"])
    text = urlencode([(key, value) for key, value in answer["query"]])
    said = placement.other.call("GET", f"/allocation_candidates?{text}", expect=(200, 400))
    return "" if said.status_code == 200 else f"Placement: {said.text}"


def test_the_query_is_that_of_novas_scheduler(
    guests: list[dict[str, Any]], novas: list[dict[str, Any]], placement: PlacementServer
) -> None:
    assert len(novas) == len(guests)
    differing, seen = [], Counter[str]()
    for guest, answer in zip(guests, novas, strict=True):
        found, refused = ours(guest), refusal(answer, placement)
        if refused:
            named = refused.split(":")[0] in ENCRYPTION | INVALID or "'hw_firmware_type'" in refused
            seen["only nova refuses" if not isinstance(found, str) else "refused"] += 1
            if not isinstance(found, str) and not named:
                differing.append((guest, refused, found.query.pairs()))
            continue
        seen["with devices" if "pci_passthrough:alias" in guest["specs"] else "plain"] += 1
        if isinstance(found, str):
            differing.append((guest, answer["query"], found))
            continue
        theirs, own = comparable(answer["query"], NOVAS), comparable(found.query.pairs(), OURS)
        if theirs != own:
            differing.append((guest, theirs, own))
    report = "\n\n".join("\n".join(map(str, case)) for case in differing[:10])
    assert not differing, f"{len(differing)} of {seen}\n{report}"
    assert seen["plain"] > GUESTS / 5, seen
    assert seen["with devices"] > GUESTS / 20, seen
    assert seen["refused"] > GUESTS / 20, seen


def test_the_page_names_what_is_left_out() -> None:
    page = (CHECKOUT / "docs" / "nova-options.md").read_text(encoding="utf-8")
    for name in (*NOVAS, *(name.removeprefix("!") for name in OURS), "hw_firmware_type"):
        assert f"`{name}`" in page, name


# --- guests of any kind ---------------------------------------------------------------------------


def some_guest(dice: random.Random) -> dict[str, Any]:
    """A guest of any kind. Some are refused."""
    vcpus, properties = dice.choice((1, 2, 4, 8)), {}
    specs: dict[str, str] = {}
    for add in (add_cpus, add_overrides, add_encryption, add_features):
        add(dice, vcpus, specs, properties)
    return {
        "vcpus": vcpus,
        "memory_mb": dice.choice((1024, 4096)),
        "root_gb": dice.choice((0, 10)),
        "ephemeral_gb": dice.choice((0, 0, 3)),
        "swap_mb": dice.choice((0, 0, 1, 1024, 1025)),
        "volume_backed": dice.random() < 0.3,
        "specs": specs,
        "properties": properties,
    }


def add_cpus(
    dice: random.Random, vcpus: int, specs: dict[str, str], properties: dict[str, str]
) -> None:
    policy = dice.choice(("", "", "shared", "dedicated", "dedicated", "mixed", "classes"))
    if policy == "classes":
        kind = dice.choice(("PCPU", "VCPU"))
        specs[f"resources{dice.choice(('', '1', '_N'))}:{kind}"] = str(vcpus)
    elif policy == "mixed" and vcpus > 1:
        specs["hw:cpu_policy"] = policy
        if dice.random() < 0.5:
            specs["hw:cpu_dedicated_mask"] = dice.choice(("^0", "0"))
        else:
            specs |= {"hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0"}
    elif policy in ("shared", "dedicated"):
        dice.choice((specs, properties))[dice.choice(("hw:cpu_policy", "hw_cpu_policy"))] = policy
    if policy == "dedicated" or dice.random() < 0.05:
        if dice.random() < 0.4:
            specs["hw:cpu_thread_policy"] = dice.choice(("require", "isolate", "prefer"))
        if dice.random() < 0.2:
            properties["hw_cpu_thread_policy"] = dice.choice(("require", "isolate", "prefer"))
        if dice.random() < 0.3:
            specs["hw:emulator_threads_policy"] = dice.choice(("isolate", "share"))
    if dice.random() < 0.2 and vcpus > 1:
        specs["hw:numa_nodes"] = "2"
    if dice.random() < 0.1:
        specs["hw:mem_page_size"] = dice.choice(("large", "2048"))


def add_overrides(
    dice: random.Random, _vcpus: int, specs: dict[str, str], properties: dict[str, str]
) -> None:
    names = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "VGPU", "CUSTOM_A", "NOTHING", "custom_a")
    amounts = ("0", "0", "1", "2", "7", "-1", "x", " 3", "+3", "1_0", "", "1.5")
    suffixes = ("", "", "", "1", "2", "_N")
    for _ in range(dice.choice((0, 0, 0, 1, 1, 2, 3))):
        name, suffix = dice.choice(names), dice.choice(suffixes)
        # Other amounts of CPUs contradict the flavor in most cases.
        amount = "0" if name in ("VCPU", "PCPU") else dice.choice(amounts)
        specs[f"resources{suffix}:{name}"] = amount
        if suffix and dice.random() < 0.6:
            specs[f"resources{suffix}:CUSTOM_A"] = "1"
    for _ in range(dice.choice((0, 0, 1, 2))):
        trait = dice.choice(("HW_CPU_X86_AVX2", "CUSTOM_T", "CUSTOM_T", "HW_CPU_HYPERTHREADING"))
        value = dice.choice(("required", "required", "forbidden", "wanted"))
        if dice.random() < 0.3:
            properties[f"trait:{trait}"] = value
        else:
            used = [key[9:].split(":")[0] for key in specs if key.startswith("resources")]
            specs[f"trait{dice.choice(used or [''])}:{trait}"] = value
    if dice.random() < 0.4:
        specs["group_policy"] = dice.choice(("none", "none", "isolate", "any"))


def add_encryption(
    dice: random.Random, _vcpus: int, specs: dict[str, str], properties: dict[str, str]
) -> None:
    if dice.random() < 0.8:
        return
    models = ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx")
    if dice.random() < 0.7:
        specs["hw:mem_encryption"] = dice.choice(("true", "1", "yes", "no"))
    if dice.random() < 0.4:
        properties["hw_mem_encryption"] = dice.choice(("true", "true", "false"))
    if dice.random() < 0.5:
        specs["hw:mem_encryption_model"] = dice.choice(models)
    if dice.random() < 0.3:
        properties["hw_mem_encryption_model"] = dice.choice(models)
    if dice.random() < 0.9:
        properties |= {"hw_firmware_type": "uefi", "hw_video_model": "none"}
        properties["hw_firmware_stateless"] = dice.choice(("true", "true", "false"))
    if dice.random() < 0.1:
        properties["hw_machine_type"] = dice.choice(("pc", "pc-q35-8.2"))


def add_features(
    dice: random.Random, _vcpus: int, specs: dict[str, str], properties: dict[str, str]
) -> None:
    for name, values in FEATURES.items():
        if dice.random() < 0.07:
            specs[name] = dice.choice(values)
        if dice.random() < 0.05 and name not in ONLY_FLAVORS:
            properties[name.replace(":", "_")] = dice.choice(values)
    if dice.random() < 0.1:
        properties["hw_firmware_stateless"] = dice.choice(("yes", "no"))
        properties["hw_firmware_type"] = dice.choice(("uefi", "uefi", "bios"))
    if dice.random() < 0.2:
        asked = dice.sample([alias["name"] for alias in ALIASES], dice.choice((1, 2)))
        specs["pci_passthrough:alias"] = ", ".join(f"{name}:{dice.choice('12')}" for name in asked)


ONLY_FLAVORS = {"hw:tpm_secret_security", "hw:pmem", "accel:device_profile"}
FEATURES = {
    "hw:tpm_version": ("1.2", "2.0", "2.0", "3.0"),
    "hw:tpm_model": ("tpm-tis", "tpm-crb", "tpm-crb", "tpm-x"),
    "hw:tpm_secret_security": ("user", "host", "deployment"),
    "os:secure_boot": ("required", "required", "disabled", "optional", "always"),
    "hw:maxphysaddr_mode": ("passthrough", "emulate", "emulate", "guess"),
    "hw:maxphysaddr_bits": ("42",),
    "hw:virtio_packed_ring": ("true", "true", "false"),
    "hw:ephemeral_encryption": ("true", "true", "false"),
    "hw:ephemeral_encryption_format": ("luks", "luks", "plain"),
    "hw:sound_model": ("virtio", "virtio", "ich9"),
    "hw:pci_numa_affinity_policy": ("socket", "required"),
    "hw:pmem": ("4gb", "4gb, a-b,4gb", ","),
    "accel:device_profile": ("fpga",),
    "hw:watchdog_action": ("reset",),
}
"""Values of extra specs; those of the image property of the same name are the same."""
