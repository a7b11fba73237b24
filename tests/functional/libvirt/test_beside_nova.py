"""What docs/nova-options.md says of nova, held against nova's own LibvirtDriver on the same
libvirtd, with the same configuration files.

``NOVA_PYTHON`` names a Python that has nova 34 and the binding of libvirt; without it this is left
out.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.audit.allocations import NOT_REPORTED_BY_NOVA
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import write_config
from tests.support.libvirt_host import LibvirtDaemon
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs, smt_host
from tests.support.system import AgentHere

pytestmark = pytest.mark.long

NOVA = os.environ.get("NOVA_PYTHON")
GIB = 1024**3
GPU = "0000:06:00.0"
LVM = {"images_type": "lvm", "images_volume_group": "vg0"}
TPM = {"swtpm_enabled": True, "swtpm_user": "root", "swtpm_group": "root"}
HASWELL = {"cpu_mode": "custom", "cpu_models": "Haswell-noTSX"}

Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """Options, and where Placement is told something else than by nova: traits that only nova has.

    ``starts``: whether nova does with these options; ``refused``: the agent does not either.
    """

    options: Options = field(default_factory=dict)
    only_nova: frozenset[str] = frozenset()
    starts: bool = True
    refused: bool = False


def case(
    only_nova: tuple[str, ...] = (), starts: bool = True, refused: bool = False, **options: Any
) -> Case:
    return Case(options, frozenset(only_nova), starts, refused)


CASES: Mapping[str, Case] = {
    "nothing": case(),
    "cpu sets": case(compute={"cpu_shared_set": "0-1", "cpu_dedicated_set": "2-5,^3"}),
    "dedicated only": case(compute={"cpu_dedicated_set": "0-5"}),
    "the old pin set": case(DEFAULT={"vcpu_pin_set": "0-3"}),
    "the old pin set beside a shared one": case(
        DEFAULT={"vcpu_pin_set": "0-3"}, compute={"cpu_shared_set": "4"}
    ),
    "the old pin set beside a dedicated one": case(
        DEFAULT={"vcpu_pin_set": "0-3"},
        compute={"cpu_dedicated_set": "4"},
        starts=False,
        refused=True,
    ),
    "reserved": case(
        DEFAULT={
            "reserved_host_cpus": 2,
            "reserved_host_memory_mb": 700,
            "reserved_host_disk_mb": 1025,
        }
    ),
    "reserved CPUs beside sets": case(
        DEFAULT={"reserved_host_cpus": 2}, compute={"cpu_shared_set": "0-3"}, starts=False
    ),
    "ratios": case(
        DEFAULT={
            "cpu_allocation_ratio": 2.0,
            "ram_allocation_ratio": 1.5,
            "disk_allocation_ratio": 1.6,
        }
    ),
    "initial ratios": case(
        DEFAULT={
            "initial_cpu_allocation_ratio": 8.0,
            "initial_ram_allocation_ratio": 1.2,
            "initial_disk_allocation_ratio": 1.3,
        }
    ),
    "excluded images": case(compute={"image_type_exclude_list": "qcow2,iso"}),
    "no CPU for guests": case(libvirt={"cpu_mode": "none"}),
    "a model": case(libvirt=HASWELL),
    "a model in other letters": case(libvirt={**HASWELL, "cpu_models": "haswell-NOTSX"}),
    "a model with flags": case(
        libvirt={**HASWELL, "cpu_model_extra_flags": "sgx,-avx2"}, only_nova=("HW_CPU_X86_AVX2",)
    ),
    "two models": case(libvirt={**HASWELL, "cpu_models": "Nehalem,Haswell-noTSX"}),
    "no such model": case(
        libvirt={**HASWELL, "cpu_models": "Hasswell"}, starts=False, refused=True
    ),
    "CPUs that sleep": case(
        compute={"cpu_shared_set": "0-1", "cpu_dedicated_set": "4-7"},
        libvirt={"cpu_power_management": True},
    ),
    "governors of a CPU that is offline": case(
        compute={"cpu_shared_set": "0-1", "cpu_dedicated_set": "4-7"},
        libvirt={"cpu_power_management": True, "cpu_power_management_strategy": "governor"},
        starts=False,
        refused=True,
    ),
    "another machine": case(libvirt={"hw_machine_type": "x86_64=isapc"}),
    "memory of files": case(
        libvirt={"file_backed_memory": 4096},
        DEFAULT={"ram_allocation_ratio": 1.0, "reserved_host_memory_mb": 0},
    ),
    "memory of files with a ratio": case(
        libvirt={"file_backed_memory": 4096},
        DEFAULT={"ram_allocation_ratio": 1.5, "reserved_host_memory_mb": 0},
        starts=False,
    ),
    "memory of files that is reserved": case(
        libvirt={"file_backed_memory": 4096}, DEFAULT={"ram_allocation_ratio": 1.0}, starts=False
    ),
    "a volume group": case(libvirt=LVM),
    "a volume group without conversion": case(libvirt=LVM, DEFAULT={"force_raw_images": False}),
    "Ceph without conversion": case(
        libvirt={"images_type": "rbd"}, DEFAULT={"force_raw_images": False}, starts=False
    ),
    "a TPM": case(libvirt=TPM),
    "a TPM with secrets of the host": case(
        libvirt={**TPM, "supported_tpm_secret_security": "host"}
    ),
    "mediated devices": case(devices={"enabled_mdev_types": "nvidia-35"}),
    "mediated devices of a class": case(
        devices={"enabled_mdev_types": "nvidia-35"},
        **{"mdev_nvidia-35": {"mdev_class": "CUSTOM_CUT", "device_addresses": GPU}},
    ),
    "mediated devices of another card": case(
        devices={"enabled_mdev_types": "nvidia-35"},
        **{"mdev_nvidia-35": {"device_addresses": "0000:07:00.0"}},
    ),
    "the cache of images": case(
        DEFAULT={"reserved_host_disk_mb": 1024},
        workarounds={"reserve_disk_resource_for_image_cache": True},
    ),
}


COMMANDS = {
    "vgs": f'case "$*" in *vg_free*) echo "{100 * GIB}|{50 * GIB}";; *) echo {100 * GIB};; esac',
    "ceph": f"""echo '{{"pools": [{{"name": "rbd", "stats": {{"stored": {GIB}, "max_avail": {GIB}}}}}]}}'""",
    **dict.fromkeys(
        ("swtpm", "swtpm_ioctl", "swtpm_setup"),
        'echo \'{"type": "swtpm", "features": ["tpm-1.2", "tpm-2.0"], "version": "0.7"}\'',
    ),
}
"""What the host's tools print, for libvirtd, nova and the agent alike."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not NOVA:
        pytest.skip(
            backends.reason(
                "nova's own LibvirtDriver",
                "set NOVA_PYTHON to a Python with nova==34.0.0 'SQLAlchemy<2.1' libvirt-python",
            )
        )
    folder = tmp_path_factory.mktemp("beside")
    (folder / "bin").mkdir()
    for name, script in COMMANDS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        yield folder


@pytest.fixture(scope="module")
def recorded(places: Path) -> Iterator[tuple[Libvirtd, RecordedSysfs]]:
    tree = smt_host(places / "sys")
    tree.pci(GPU, "10de:1db4", class_code="0x030200", cell=8)
    tree.mediated(
        GPU,
        {"nvidia-35": 14, "nvidia-36": 7},
        {"8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01": "nvidia-35"},
    )
    recording = tree.for_libvirt()
    server = Libvirtd(recording.root)
    server.start()
    yield server, recording
    server.remove()


@pytest.fixture(scope="module")
def novas(places: Path, recorded: tuple[Libvirtd, RecordedSysfs]) -> Mapping[str, Any]:
    """What nova tells in each case."""
    server, _ = recorded
    files = [
        write_config(places / f"nova-{number}.conf", _configured(places, server, one.options))
        for number, one in enumerate(CASES.values())
    ]
    # Where the recording is /sys, because nova looks there itself.
    enter = [
        "nsenter",
        "--target",
        str(server.pid),
        "--mount",
        *([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]),
    ]
    script = CHECKOUT / "tests" / "functional" / "libvirt" / "nova_libvirt.py"
    ran = subprocess.run(
        [*enter, str(NOVA), "-W", "ignore", str(script), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return dict(zip(CASES, map(json.loads, ran.stdout.splitlines()), strict=True))


def _configured(places: Path, server: Libvirtd, options: Options) -> dict[str, dict[str, Any]]:
    (places / "instances" / "_base").mkdir(parents=True, exist_ok=True)
    (places / "instances" / "_base" / "image").write_bytes(b"x" * 100_000)
    base: dict[str, dict[str, Any]] = {
        "DEFAULT": {
            "compute_driver": "libvirt.LibvirtDriver",
            "state_path": places,
            "instances_path": places / "instances",
            "my_ip": "127.0.0.1",
        },
        "libvirt": {"connection_uri": server.uri, "virt_type": "qemu"},
    }
    return base | {name: {**base.get(name, {}), **given} for name, given in options.items()}


@pytest.mark.parametrize("name", CASES)
def test_placement_is_told_what_nova_tells_but_for_what_the_table_of_options_says(
    name: str,
    novas: Mapping[str, Any],
    recorded: tuple[Libvirtd, RecordedSysfs],
    places: Path,
    http_placement: HttpPlacement,
    tmp_path: Path,
) -> None:
    (server, recording), nova, expected = recorded, novas[name], CASES[name]
    assert ("error" not in nova) == expected.starts, nova
    base = LibvirtDaemon(tmp_path / "agent", server, http_placement, -1).config
    ours = _configured(places, server, expected.options)
    config = {group: {**base.get(group, {}), **ours.get(group, {})} for group in {*base, *ours}}
    config["compute"] = {**config.get("compute", {}), "tree_layout": "flat"}
    ran = AgentHere(tmp_path / "agent", {**config, "host": {"sysfs_root": recording.root}}).run(
        "--once"
    )
    assert (ran.code == 1) == expected.refused, ran
    if not expected.starts:
        return
    providers = http_placement.dump()["providers"].values()
    (root,) = (one["name"] for one in providers if one["parent"] is None)
    agents = {one["name"].removeprefix(root).lstrip("_"): one for one in providers}
    assert {one: found["inventories"] for one, found in agents.items()} == {
        one: found["inventories"] for one, found in nova["providers"].items()
    }
    told, novas_own = set(agents[""]["traits"]), set(nova["providers"][""]["traits"])
    assert novas_own - told == expected.only_nova
    more = {one for one in told - novas_own if not one.startswith("CUSTOM_COMPUTE_NODE_AGENT_")}
    assert {one for one in more if not one.startswith("HW_CPU_X86_")} == set()


@pytest.mark.usefixtures("places")
def test_what_an_observer_holds_to_be_unknown_to_nova_is_not_in_novas_table() -> None:
    """But for SSE3, which nova looks for by a name that libvirt does not use."""
    script = (
        "import json; from nova.virt.libvirt.utils import TRAITS_CPU_MAPPING as table; "
        "print(json.dumps(table))"
    )
    ran = subprocess.run(
        [str(NOVA), "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    table = json.loads(ran.stdout)
    assert {trait: table[trait] for trait in NOT_REPORTED_BY_NOVA & table.keys()} == {
        "HW_CPU_X86_SSE3": "sse3"
    }
