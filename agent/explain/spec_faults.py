"""Extra specs and image properties that say nothing to nova, because their name or their value does
not exist: nova ignores them, and an explanation would answer another question. Pure.
"""

import difflib
from collections.abc import Iterator, Mapping

import os_resource_classes as orc

from agent.explain.scheduler_query import FORBIDDEN, GROUP_POLICY, OVERRIDE, REQUIRED
from agent.model.names import printable
from agent.pci.device_request import EXTRA_SPEC
from agent.placement.allocations.candidates import POLICIES

SHOWN = 100
# What flavor and image can say with the same name, of which nova makes hw:NAME and hw_NAME.
HARDWARE = frozenset(
    [
        "boot_menu",
        "cpu_cores",
        "cpu_dedicated_mask",
        "cpu_max_cores",
        "cpu_max_sockets",
        "cpu_max_threads",
        "cpu_policy",
        "cpu_realtime",
        "cpu_realtime_mask",
        "cpu_sockets",
        "cpu_thread_policy",
        "cpu_threads",
        "emulator_threads_policy",
        "ephemeral_encryption",
        "ephemeral_encryption_format",
        "firmware_stateless",
        "hide_hypervisor_id",
        "locked_memory",
        "maxphysaddr_bits",
        "maxphysaddr_mode",
        "mem_encryption",
        "mem_encryption_model",
        "mem_page_size",
        "numa_nodes",
        "pci_numa_affinity_policy",
        "pmem",
        "serial_port_count",
        "sound_model",
        "tpm_model",
        "tpm_secret_security",
        "tpm_version",
        "vif_multiqueue_enabled",
        "viommu_model",
        "virtio_packed_ring",
        "watchdog_action",
    ]
)
# What only an image can say.
OF_IMAGES = frozenset(
    [
        "cdrom_bus",
        "disk_bus",
        "firmware_type",
        "floppy_bus",
        "input_bus",
        "machine_type",
        "pointer_model",
        "qemu_guest_agent",
        "rescue_bus",
        "rescue_device",
        "rng_model",
        "scsi_model",
        "time_hpet",
        "usb_model",
        "video_model",
        "video_ram",
        "vif_model",
    ]
)
PREFIXES = ("resources", "trait")
SPECS = frozenset({*(f"hw:{name}" for name in HARDWARE), GROUP_POLICY, EXTRA_SPEC})
PROPERTIES = frozenset(f"hw_{name}" for name in HARDWARE | OF_IMAGES)
CLOSE = 0.85


def spec_faults(specs: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the extra specs of a flavor."""
    for key, value in specs.items():
        found = OVERRIDE.fullmatch(key)
        if found is not None:
            why = _amount_fault(found[3], value) if found[1] == "resources" else _trait_fault(value)
        elif key == GROUP_POLICY and value not in POLICIES:
            why = f"the value is not one of {', '.join(POLICIES)}"
        else:
            why = _name_fault(key, SPECS)
        if why:
            yield f"extra spec {_shown(key, value)}: {why}"


def property_faults(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the properties of an image."""
    for key, value in properties.items():
        if key.startswith("trait:"):
            why = "" if value == REQUIRED else f"the value is not {REQUIRED}"
        else:
            why = _name_fault(key, PROPERTIES)
        if why:
            yield f"image property {_shown(key, value)}: {why}"


def _amount_fault(name: str, value: str) -> str:
    if not (name.startswith(orc.CUSTOM_NAMESPACE) or name in orc.STANDARDS):
        alike = difflib.get_close_matches(name, orc.STANDARDS, n=1, cutoff=CLOSE)
        return f"no resource class has that name{_meant(alike)}"
    return "" if value.isascii() and value.isdecimal() else "no whole number of at least 0"


def _trait_fault(value: str) -> str:
    known = value in (REQUIRED, FORBIDDEN)
    return "" if known else f"the value is neither {REQUIRED} nor {FORBIDDEN}"


def _name_fault(key: str, known: frozenset[str]) -> str:
    """Return what is wrong with a name that nova may or may not know: only that it is close to a
    known one, because other services and options read names of their own.
    """
    if key in known:
        return ""
    prefix, colon, _ = key.partition(":")
    if colon and (alike := difflib.get_close_matches(prefix, PREFIXES, n=1, cutoff=CLOSE)):
        return f"nova knows no {printable(prefix[:SHOWN])}:{_meant([f'{alike[0]}:'])}"
    alike = difflib.get_close_matches(key[:SHOWN], known, n=1, cutoff=CLOSE)
    return f"nova does not know it{_meant(alike)}" if alike else ""


def _meant(alike: list[str]) -> str:
    return f"; did you mean {alike[0]}?" if alike else ""


def _shown(key: str, value: str) -> str:
    return printable(f"{key}={value}"[:SHOWN])
