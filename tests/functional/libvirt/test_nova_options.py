"""What nova's options make of a hypervisor in Placement: a test for each row of the table in
docs/nova-options.md.

The agent's command runs on a real libvirtd, over a recording with cells, cards and a card that can
be cut, and on a real Placement.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.libvirt_host import LibvirtDaemon
from tests.support.libvirtd import Libvirtd
from tests.support.recorded_sysfs import RecordedSysfs, smt_host
from tests.support.system import AgentHere, Result
from tests.support.tracking import uuid_of

pytestmark = pytest.mark.long

Root = dict[str, Any]
AgentWith = Callable[..., AgentHere]
"""The agent's command with these options, by group."""
Told = Callable[..., Root]
"""The root provider after one audit with these options, by group; ``children``: those of its children that are no cells, by the end of their names."""
Test = TypeVar("Test", bound=Callable[..., None])

SECRETS, IMAGES, X86 = "COMPUTE_SECURITY_TPM_SECRET_SECURITY_", "COMPUTE_IMAGE_TYPE_", "HW_CPU_X86_"
GPU, MDEV = "0000:06:00.0", "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
GIB = 1024**3

ROWS: list[str] = []


def row(*options: str) -> Callable[[Test], Test]:
    """The test shows these rows of the table."""

    def mark(test: Test) -> Test:
        ROWS.extend(options)
        return test

    return mark


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> RecordedSysfs:
    tree = smt_host(tmp_path_factory.mktemp("recording") / "sys")
    tree.pci(GPU, "10de:1db4", class_code="0x030200", cell=8)
    tree.mediated(GPU, {"nvidia-35": 14, "nvidia-36": 7}, {MDEV: "nvidia-35"})
    return tree.for_libvirt()


@pytest.fixture(scope="module")
def recorded(recording: RecordedSysfs) -> Iterator[Libvirtd]:
    server = Libvirtd(recording.root)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def agent(
    recorded: Libvirtd, recording: RecordedSysfs, http_placement: HttpPlacement, tmp_path: Path
) -> AgentWith:
    base = LibvirtDaemon(tmp_path / "agent", recorded, http_placement, -1).config
    base["host"] = {"sysfs_root": recording.root}

    def configured(**groups: Mapping[str, Any]) -> AgentHere:
        return AgentHere(
            tmp_path / "agent",
            base | {name: {**base.get(name, {}), **given} for name, given in groups.items()},
        )

    return configured


@pytest.fixture
def told(agent: AgentWith, http_placement: HttpPlacement) -> Told:
    def audited(**groups: Mapping[str, Any]) -> Root:
        ran = agent(**groups).run("--once")
        assert ran.code == 0, ran
        providers = http_placement.dump()["providers"]
        ((uuid, root),) = [(uuid, one) for uuid, one in providers.items() if one["parent"] is None]
        children = {
            one["name"].removeprefix(root["name"] + "_"): one
            for one in providers.values()
            if one["parent"] is not None
        }
        return {
            **root,
            "uuid": uuid,
            "children": {
                name: one for name, one in children.items() if not name.startswith("NUMA")
            },
        }

    return audited


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a command on the path that prints this; what it was called with."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    def say(name: str, text: str) -> Path:
        script = tmp_path / "bin" / name
        script.with_suffix(".says").write_text(text)
        script.write_text(f'#!/bin/sh\necho "$@" > {script}.called\ncat {script}.says\n')
        script.chmod(0o755)
        return script.with_suffix(".called")

    return say


def traits(root: Root, prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in root["traits"] if name.startswith(prefix)}


def inventory(root: Root, name: str, *fields: str) -> tuple[Any, ...]:
    return tuple(root["inventories"][name][field] for field in fields)


def warned(agent: AgentHere) -> list[str]:
    """What ``config check`` warns of, which a start does too."""
    checked = agent.run("config", "check", "--format", "json")
    assert checked.code == 0, checked
    found: list[str] = checked.json["warnings"]
    started = agent.run("--once", "--dry-run")
    assert [one for one in found if one not in started.stderr] == [], started
    return found


def refused(agent: AgentHere) -> Result:
    ran = agent.run("config", "check")
    assert ran.code == 1, ran
    return ran


def test_every_row_of_the_table_has_a_test() -> None:
    lines = (CHECKOUT / "docs" / "nova-options.md").read_text(encoding="utf-8").splitlines()
    rows = [
        re.findall(r"`\[(\w+)\] (\w+)`", line.split("|")[1])
        for line in lines
        if line.startswith("| `[")
    ]
    assert sorted(f"{group}.{name}" for one in rows for group, name in one) == sorted(ROWS)


# --- [DEFAULT] ------------------------------------------------------------------------------------


@row("DEFAULT.compute_driver", "DEFAULT.state_path")
def test_the_root_is_the_host_that_nova_has_under_its_compute_id(
    told: Told, tmp_path: Path
) -> None:
    uuid = uuid_of("compute node of nova")
    (tmp_path / "nova").mkdir()
    (tmp_path / "nova" / "compute_id").write_text(uuid)
    assert (
        told(DEFAULT={"compute_driver": "libvirt.LibvirtDriver", "state_path": tmp_path / "nova"})[
            "uuid"
        ]
        == uuid
    )


@row("DEFAULT.instances_path")
def test_the_disk_is_the_file_system_of_the_guests(told: Told, tmp_path: Path) -> None:
    assert inventory(told(DEFAULT={"instances_path": tmp_path}), "DISK_GB", "total") == (
        psutil.disk_usage(str(tmp_path)).total // GIB,
    )


@row("DEFAULT.vcpu_pin_set")
def test_the_cpus_of_the_old_pin_set_are_vcpu_and_a_warning_names_what_replaces_it(
    told: Told, agent: AgentWith
) -> None:
    options: Any = {"DEFAULT": {"vcpu_pin_set": "0-3"}, "compute": {"cpu_shared_set": "4"}}
    found = told(**options)
    assert ("PCPU" in found["inventories"], inventory(found, "VCPU", "total")) == (False, (4,))
    first, second = warned(agent(**options))
    assert first.startswith("[DEFAULT] vcpu_pin_set = 0-3 is nova's old option")
    assert "[compute] cpu_shared_set" in first
    assert second.startswith(
        "[compute] cpu_shared_set counts nothing beside [DEFAULT] vcpu_pin_set"
    )
    told_both = refused(
        agent(DEFAULT={"vcpu_pin_set": "0-3"}, compute={"cpu_dedicated_set": "4"})
    ).stderr
    assert "[DEFAULT] vcpu_pin_set and [compute] cpu_dedicated_set are both set" in told_both
    gone = agent(DEFAULT={"vcpu_pin_set": "0-3,7"}).run("--once")
    assert "[DEFAULT] vcpu_pin_set: CPUs 7 not online, online are 0-5,8" in " ".join(
        gone.stdout.split()
    )


@row("DEFAULT.reserved_host_cpus")
def test_cpus_of_the_host_are_reserved_and_beside_cpu_sets_a_warning_says_what_of(
    told: Told, agent: AgentWith
) -> None:
    assert inventory(told(DEFAULT={"reserved_host_cpus": 2}), "VCPU", "total", "reserved") == (7, 2)
    beside: Any = {"DEFAULT": {"reserved_host_cpus": 2}, "compute": {"cpu_shared_set": "0-3"}}
    assert inventory(told(**beside), "VCPU", "total", "reserved") == (4, 2)
    (warning,) = warned(agent(**beside))
    assert (
        "reserved_host_cpus = 2 beside CPU sets, with which nova does not start: they are taken "
        "out of VCPU"
    ) in warning
    (warning,) = warned(
        agent(DEFAULT={"reserved_host_cpus": 2}, compute={"cpu_dedicated_set": "0-3"})
    )
    assert "it has no effect without VCPU" in warning


@row("DEFAULT.reserved_host_memory_mb", "DEFAULT.reserved_host_disk_mb")
def test_what_is_reserved_of_memory_and_disk(told: Told) -> None:
    assert inventory(told(), "MEMORY_MB", "reserved") == (512,)
    found = told(DEFAULT={"reserved_host_memory_mb": 700, "reserved_host_disk_mb": 1025})
    assert (inventory(found, "MEMORY_MB", "reserved"), inventory(found, "DISK_GB", "reserved")) == (
        (700,),
        (2,),
    )


@row(
    "DEFAULT.cpu_allocation_ratio",
    "DEFAULT.ram_allocation_ratio",
    "DEFAULT.disk_allocation_ratio",
    "DEFAULT.initial_cpu_allocation_ratio",
    "DEFAULT.initial_ram_allocation_ratio",
    "DEFAULT.initial_disk_allocation_ratio",
)
def test_ratios_win_over_placement_and_initial_ones_are_for_new_inventories(told: Told) -> None:
    ratios = lambda root: [  # noqa: E731
        root["inventories"][name]["allocation_ratio"] for name in ("VCPU", "MEMORY_MB", "DISK_GB")
    ]
    initial = {
        f"initial_{name}_allocation_ratio": value
        for name, value in (("cpu", 8.0), ("ram", 1.2), ("disk", 1.3))
    }
    assert ratios(told(DEFAULT=initial)) == [8.0, 1.2, 1.3]
    assert ratios(told()) == [8.0, 1.2, 1.3]
    assert ratios(
        told(
            DEFAULT={
                "cpu_allocation_ratio": 2.0,
                "ram_allocation_ratio": 1.5,
                "disk_allocation_ratio": 1.6,
            }
        )
    ) == [2.0, 1.5, 1.6]


@row("DEFAULT.force_raw_images")
def test_qcow2_images_are_not_sent_to_a_host_whose_disks_cannot_be_made_of_them(
    told: Told, agent: AgentWith, says: Callable[[str, str], Path]
) -> None:
    says("vgs", f"{100 * GIB}")
    says("ceph", pools(GIB, 0))
    lvm: Any = {"images_type": "lvm", "images_volume_group": "vg0"}
    assert "QCOW2" in traits(told(DEFAULT={"force_raw_images": False}), IMAGES)
    assert "QCOW2" in traits(told(libvirt=lvm), IMAGES)
    assert "QCOW2" not in traits(told(libvirt=lvm, DEFAULT={"force_raw_images": False}), IMAGES)
    rbd: Any = {"libvirt": {"images_type": "rbd"}, "DEFAULT": {"force_raw_images": False}}
    assert "QCOW2" not in traits(told(**rbd), IMAGES)
    (warning,) = warned(agent(**rbd))
    assert warning.startswith(
        "[libvirt] images_type = rbd with [DEFAULT] force_raw_images = false, with which nova "
        "does not start"
    )


@row("DEFAULT.enable_new_services", "compute.consecutive_build_service_disable_threshold")
def test_what_disables_a_host_in_nova_alone_is_named_in_a_warning(
    told: Told, agent: AgentWith
) -> None:
    options: Any = {
        "DEFAULT": {"enable_new_services": False},
        "compute": {"consecutive_build_service_disable_threshold": 10},
    }
    assert "COMPUTE_STATUS_DISABLED" not in told(**options)["traits"]
    first, second = warned(agent(**options))
    assert first.startswith("[DEFAULT] enable_new_services = false has no effect here: ")
    assert second.startswith(
        "[compute] consecutive_build_service_disable_threshold = 10 has no effect here: "
    )
    assert (
        warned(
            agent(
                DEFAULT={"enable_new_services": True},
                compute={"consecutive_build_service_disable_threshold": 0},
            )
        )
        == []
    )


# --- [compute] ------------------------------------------------------------------------------------


@row("compute.cpu_shared_set", "compute.cpu_dedicated_set")
def test_cpu_sets_are_vcpu_and_pcpu(told: Told) -> None:
    flat = {"tree_layout": "flat"}
    both = told(compute={**flat, "cpu_shared_set": "0-1", "cpu_dedicated_set": "2-5,^3"})
    assert (
        inventory(both, "VCPU", "total"),
        inventory(both, "PCPU", "total", "allocation_ratio"),
    ) == ((2,), (3, 1.0))
    assert "VCPU" not in told(compute={**flat, "cpu_dedicated_set": "0-5"})["inventories"]


@row("compute.provider_config_location")
def test_files_that_nova_reads_and_the_agent_does_not_are_named(
    told: Told, agent: AgentWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "provider_config"
    folder.mkdir()
    (folder / "custom.yaml").write_text(
        "meta: {schema_version: '1.0'}\nproviders:\n  - identification: {uuid: "
        "$COMPUTE_NODE}\n   "
        " traits: {additional: [CUSTOM_OF_A_FILE]}\n"
    )
    monkeypatch.setattr("agent.tree.policy.NOVA_PROVIDER_CONFIG", folder)
    (warning,) = warned(agent())
    assert warning == (
        f"{folder}/ has custom.yaml, which nova reads and the agent does not: set [compute] "
        "provider_config_location"
    )
    assert warned(agent(compute={"provider_config_location": folder})) == []
    assert "CUSTOM_OF_A_FILE" in told(compute={"provider_config_location": folder})["traits"]


@row("compute.image_type_exclude_list")
def test_images_of_excluded_types_are_not_sent_here(told: Told) -> None:
    assert {"QCOW2", "ISO"} <= traits(told(), IMAGES)
    assert traits(told(compute={"image_type_exclude_list": "qcow2"}), IMAGES) == {
        "AKI",
        "AMI",
        "ARI",
        "ISO",
        "RAW",
    }


# --- [libvirt] ------------------------------------------------------------------------------------


@row("libvirt.connection_uri", "libvirt.virt_type")
def test_the_host_is_the_one_behind_the_uri_with_guests_of_one_type(
    told: Told, agent: AgentWith
) -> None:
    found = told(libvirt={"virt_type": "qemu"})
    assert inventory(found, "VCPU", "total") == (7,)
    assert "X86_64" in traits(found, "COMPUTE_ARCH_")
    assert (
        "[libvirt] virt_type = lxc: not one of kvm, qemu"
        in refused(agent(libvirt={"virt_type": "lxc"})).stderr
    )
    nowhere = agent(libvirt={"connection_uri": "qemu+unix:///system?socket=/nonexistent/sock"}).run(
        "--once"
    )
    assert (
        nowhere.code,
        "cannot connect to qemu+unix:///system?socket=/nonexistent/sock" in nowhere.stderr,
    ) == (1, True)


@row("libvirt.cpu_mode", "libvirt.cpu_models", "libvirt.cpu_model_extra_flags")
def test_the_cpu_that_guests_get_decides_the_traits_of_cpus(told: Told) -> None:
    haswell: Any = {"cpu_mode": "custom", "cpu_models": "Haswell-noTSX"}
    one = traits(told(libvirt=haswell), X86)
    assert {"AVX2", "BMI2"} <= one
    assert one.isdisjoint({"AVX512F", "SGX"})
    assert traits(told(libvirt={"cpu_mode": "custom", "cpu_models": "Nehalem"}), X86).isdisjoint(
        {"AVX", "AVX2"}
    )
    flagged = traits(told(libvirt={**haswell, "cpu_model_extra_flags": "sgx,-avx2"}), X86)
    assert ("SGX" in flagged, "AVX2" in flagged) == (True, False)
    assert traits(told(libvirt={"cpu_mode": "none"}), X86).isdisjoint({"AVX", "AVX2"})


def test_cpu_models_may_be_written_in_any_case_and_a_wrong_one_is_all_that_is_told(
    told: Told, agent: AgentWith, http_placement: HttpPlacement
) -> None:
    right, odd = (
        traits(told(libvirt={"cpu_mode": "custom", "cpu_models": one}), X86)
        for one in ("Haswell-noTSX", "haswell-NOTSX")
    )
    assert right == odd
    http_placement.reset()
    ran = agent(libvirt={"cpu_mode": "custom", "cpu_models": "nehalem,Hasswell"}).run(
        "--once", "--format", "json"
    )
    assert (ran.code, http_placement.dump()["providers"]) == (1, {})
    (error,) = ran.json["errors"]
    assert error["message"] == "[libvirt] cpu_models: libvirt knows no Hasswell on x86_64"
    assert {"Haswell", "Haswell-noTSX"} <= set(
        error["remedy"].removeprefix("it knows ").split(", ")
    )


@row("libvirt.cpu_power_management", "libvirt.cpu_power_management_strategy")
def test_dedicated_cpus_that_sleep_count_and_others_that_are_offline_do_not(
    told: Told, agent: AgentWith
) -> None:
    sets = {"tree_layout": "flat", "cpu_shared_set": "0-1", "cpu_dedicated_set": "4-7"}
    assert agent(compute=sets).run("--once").code == 1
    assert inventory(
        told(compute=sets, libvirt={"cpu_power_management": True}), "PCPU", "total"
    ) == (4,)
    assert (
        agent(
            compute=sets,
            libvirt={"cpu_power_management": True, "cpu_power_management_strategy": "governor"},
        )
        .run("--once")
        .code
        == 1
    )


@row("libvirt.hw_machine_type")
def test_what_the_usual_machine_of_guests_offers_counts_too(told: Told) -> None:
    """The machine ``isapc`` of QEMU is the only one here that offers less; asking for it must take
    nothing away, and a strange one nothing at all.
    """
    usual = set(told()["traits"])
    assert set(told(libvirt={"hw_machine_type": "x86_64=isapc,aarch64=virt"})["traits"]) >= usual
    assert set(told(libvirt={"hw_machine_type": "x86_64=of-nobody"})["traits"]) == usual


@row("libvirt.file_backed_memory")
def test_memory_of_files_is_the_memory_of_the_host_and_cannot_be_overcommitted(
    told: Told, agent: AgentWith
) -> None:
    assert "COMPUTE_MEM_BACKING_FILE" not in told()["traits"]
    backed = told(libvirt={"file_backed_memory": 4096})
    assert "COMPUTE_MEM_BACKING_FILE" in backed["traits"]
    assert inventory(backed, "MEMORY_MB", "total") == (4096,)
    assert "COMPUTE_MEM_BACKING_FILE" not in told()["traits"]
    ratio, reserved = warned(
        agent(libvirt={"file_backed_memory": 4096}, DEFAULT={"ram_allocation_ratio": 1.5})
    )
    assert ratio.startswith(
        "[libvirt] file_backed_memory with a ratio of MEMORY_MB of 1.5: such memory cannot be "
        "overcommitted"
    )
    assert reserved.startswith(
        "[libvirt] file_backed_memory with [DEFAULT] reserved_host_memory_mb: 512 MiB"
    )
    assert (
        warned(agent(libvirt={"file_backed_memory": 4096}, DEFAULT={"reserved_host_memory_mb": 0}))
        == []
    )


@row("libvirt.images_type", "libvirt.images_volume_group")
def test_a_volume_group_is_the_disk(
    told: Told, agent: AgentWith, says: Callable[[str, str], Path]
) -> None:
    called = says("vgs", f"  {100 * GIB + 5}\n")
    assert inventory(
        told(libvirt={"images_type": "lvm", "images_volume_group": "vg0"}), "DISK_GB", "total"
    ) == (100,)
    assert called.read_text().split()[-1] == "vg0"
    assert "images_volume_group" in refused(agent(libvirt={"images_type": "lvm"})).stderr


def pools(available: int, stored: int) -> str:
    stats = {"stored": stored, "bytes_used": 3 * stored, "max_avail": available}
    cluster = {"total_bytes": 9000 * GIB}
    return json.dumps(
        {
            "stats": cluster,
            "pools": [
                {"name": "rbd", "stats": stats},
                {"name": "vms", "stats": {**stats, "stored": 2 * stored}},
            ],
        }
    )


@row("libvirt.images_rbd_pool", "libvirt.images_rbd_ceph_conf", "libvirt.rbd_user")
def test_a_pool_of_ceph_is_what_it_holds_and_could_hold(
    told: Told, says: Callable[[str, str], Path]
) -> None:
    called = says("ceph", pools(900 * GIB, 100 * GIB))
    assert inventory(told(libvirt={"images_type": "rbd"}), "DISK_GB", "total") == (1000,)
    assert called.read_text().split() == ["df", "--format", "json"]
    options = {
        "images_type": "rbd",
        "images_rbd_pool": "vms",
        "images_rbd_ceph_conf": "/etc/ceph/other.conf",
        "rbd_user": "nova",
    }
    assert inventory(told(libvirt=options), "DISK_GB", "total") == (1100,)
    assert called.read_text().split() == [
        "df",
        "--format",
        "json",
        "--id",
        "nova",
        "--conf",
        "/etc/ceph/other.conf",
    ]


def test_other_peoples_data_in_a_pool_do_not_write_placement_every_minute(
    told: Told, http_placement: HttpPlacement, says: Callable[[str, str], Path]
) -> None:
    def total(available: int) -> tuple[Any, bool]:
        says("ceph", pools(available * GIB, 100 * GIB))
        http_placement.clear()
        found = told(libvirt={"images_type": "rbd"})
        return inventory(found, "DISK_GB", "total", "max_unit"), any(
            one.method != "GET" for one in http_placement.requests
        )

    assert total(900) == ((1000, 1000), True)
    # One per cent of it to each side is not told, however slowly it gets there.
    assert [total(available) for available in (905, 910, 890, 900)] == [((1000, 1000), False)] * 4
    assert total(911) == ((1011, 1011), True)
    assert total(901) == ((1011, 1011), False)
    assert total(100) == ((200, 200), True)


@row("libvirt.pmem_namespaces")
def test_namespaces_are_counted_by_their_labels(
    told: Told, says: Callable[[str, str], Path]
) -> None:
    says(
        "ndctl",
        json.dumps(
            [
                {
                    "dev": f"namespace0.{number}",
                    "name": f"ns{number}",
                    "size": GIB,
                    "chardev": "dax",
                }
                for number in range(3)
            ]
        ),
    )
    found = told(libvirt={"pmem_namespaces": "a:ns0|ns1,b:ns2"})
    assert [inventory(found, f"CUSTOM_PMEM_NAMESPACE_{label}", "total") for label in "AB"] == [
        (2,),
        (1,),
    ]


@row("libvirt.swtpm_enabled", "libvirt.supported_tpm_secret_security")
def test_guests_with_a_vtpm_can_be_scheduled_by_where_the_secret_of_their_tpm_may_be(
    told: Told, agent: AgentWith
) -> None:
    assert traits(told(), SECRETS) == set()
    assert traits(told(libvirt={"swtpm_enabled": True}), SECRETS) == {"USER", "HOST", "DEPLOYMENT"}
    assert traits(
        told(libvirt={"swtpm_enabled": True, "supported_tpm_secret_security": "host"}), SECRETS
    ) == {"HOST"}
    assert traits(told(libvirt={"supported_tpm_secret_security": "host"}), SECRETS) == set()
    (warning,) = warned(agent(libvirt={"supported_tpm_secret_security": "host,nobody"}))
    assert (
        warning
        == "[libvirt] supported_tpm_secret_security: nobody is none of user, host, deployment"
    )


@row("libvirt.num_intel_tdx_guests", "libvirt.num_memory_encrypted_guests")
def test_guests_of_tdx_are_limited_by_the_smallest_of_what_is_said(
    told: Told, recording: RecordedSysfs
) -> None:
    switch, capacity = "module/kvm_intel/parameters/tdx", "fs/cgroup/misc.capacity"
    recording.write(switch, "Y")
    recording.write(capacity, "tdx 31")
    try:
        contexts = lambda **options: inventory(  # noqa: E731
            told(libvirt=options)["children"]["intel_tdx"], "MEM_ENCRYPTION_CONTEXT", "total"
        )
        assert contexts() == (31,)
        assert contexts(num_intel_tdx_guests=8) == (8,)
        assert contexts(num_intel_tdx_guests=8, num_memory_encrypted_guests=5) == (5,)
        assert contexts(num_intel_tdx_guests=40) == (31,)
    finally:
        recording.remove(switch)
        recording.remove(capacity)


# --- devices --------------------------------------------------------------------------------------


@row("pci.device_spec", "pci.report_in_placement")
def test_offered_devices_are_told_if_they_are_to_be(told: Told) -> None:
    spec = '{"address": "0000:3b:02.0", "resource_class": "CUSTOM_VF", "traits": "CUSTOM_FAST"}'
    assert told(pci={"device_spec": spec})["children"].keys() == set()
    (card,) = told(pci={"device_spec": spec, "report_in_placement": True})["children"].values()
    assert (inventory(card, "CUSTOM_VF", "total"), "CUSTOM_FAST" in card["traits"]) == ((1,), True)


@row(
    "devices.enabled_mdev_types",
    "mdev_x.device_addresses",
    "mdev_x.mdev_class",
    "mdev_x.max_instances",
)
def test_mediated_devices_of_the_enabled_types_are_counted_by_their_parents(told: Told) -> None:
    child = "pci_0000_06_00_0"
    assert told()["children"] == {}
    assert inventory(
        told(devices={"enabled_mdev_types": "nvidia-35"})["children"][child], "VGPU", "total"
    ) == (15,)
    options: Any = {"mdev_class": "CUSTOM_CUT", "max_instances": 4, "device_addresses": GPU}
    found = told(devices={"enabled_mdev_types": "nvidia-35"}, **{"mdev_nvidia-35": options})
    assert inventory(found["children"][child], "CUSTOM_CUT", "total") == (4,)
    other = told(
        devices={"enabled_mdev_types": "nvidia-35"},
        **{"mdev_nvidia-35": {"device_addresses": "0000:07:00.0"}},
    )
    assert other["children"] == {}


# --- [workarounds] --------------------------------------------------------------------------------


@row("workarounds.reserve_disk_resource_for_image_cache", "image_cache.subdirectory_name")
def test_the_room_of_cached_images_is_reserved_where_guests_have_their_disks(
    told: Told, agent: AgentWith, tmp_path: Path, says: Callable[[str, str], Path]
) -> None:
    instances = tmp_path / "instances"
    (instances / "_base").mkdir(parents=True)
    (instances / "_base" / "image").write_bytes(b"x" * 100_000)
    (instances / "cache").mkdir()
    keep: Any = {
        "DEFAULT": {"instances_path": instances, "reserved_host_disk_mb": 1024},
        "workarounds": {"reserve_disk_resource_for_image_cache": True},
    }
    assert inventory(told(DEFAULT=keep["DEFAULT"]), "DISK_GB", "reserved") == (1,)
    assert inventory(told(**keep), "DISK_GB", "reserved") == (2,)
    assert inventory(
        told(**keep, image_cache={"subdirectory_name": "cache"}), "DISK_GB", "reserved"
    ) == (1,)
    assert inventory(
        told(**keep, image_cache={"subdirectory_name": "not yet"}), "DISK_GB", "reserved"
    ) == (1,)
    says("vgs", f"{100 * GIB}")
    lvm: Any = {"libvirt": {"images_type": "lvm", "images_volume_group": "vg0"}}
    assert inventory(told(**keep, **lvm), "DISK_GB", "reserved") == (1,)
    (warning,) = warned(agent(**keep, **lvm))
    assert warning.startswith(
        "[workarounds] reserve_disk_resource_for_image_cache has no effect with [libvirt] "
        "images_type = lvm"
    )
