"""The query for allocation candidates that nova's scheduler sends for a guest, built from flavor
and image, as nova 34 builds it, with what it
requires for features of the guest. Pure.

What other services and the options of the scheduler add is unknown here: ports, accelerators,
availability zones, host aggregates.

Extra specs and image properties that say nothing to nova, because their name or their value does
not exist, are named: nova ignores them, and an explanation would answer another question.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import os_resource_classes as orc
import os_traits

from agent.model.names import printable
from agent.numa.flavor_and_image import FlavorAndImage, boolean
from agent.pci.device_request import (
    EXTRA_SPEC,
    Aliases,
    DeviceRequestError,
    device_groups,
    device_requests,
)
from agent.placement.allocations.candidates import POLICIES, CandidateQuery, RequestGroup
from agent.tracker.errors import FlavorImageConflict, InvalidDevices, InvalidTrackerRequest
from agent.tracker.reserving import guest_topology
from agent.tracker.stored_state import InstanceClaim

MEMORY_TRAITS = {
    "amd-sev": os_traits.HW_CPU_X86_AMD_SEV,
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    "amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP",
    "intel-tdx": "HW_CPU_X86_INTEL_TDX",
}
"""By the model of memory encryption, of which the first is the default."""
TPM_TRAITS = {
    "1.2": os_traits.COMPUTE_SECURITY_TPM_1_2,
    "2.0": os_traits.COMPUTE_SECURITY_TPM_2_0,
}
TPM_MODEL_TRAITS = {
    "tpm-tis": "COMPUTE_SECURITY_TPM_TIS",
    "tpm-crb": "COMPUTE_SECURITY_TPM_CRB",
}
"""The first is the default."""
ADDRESS_TRAITS = {
    "passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
    "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED",
}
SECRET_SECURITY = ("user", "host", "deployment")
"""Who may use the secret of a TPM; the first is the default."""
SECURE_BOOT = ("required", "disabled", "optional")
DISK_FORMATS = ("plain", "luks", "luksv2")
SOUND_MODELS = ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")


def _tpm_traits(settings: FlavorAndImage) -> Iterator[str]:
    version = _value(settings, "hw:tpm_version", (*TPM_TRAITS,))
    if not version:
        return
    model = _value(settings, "hw:tpm_model", (*TPM_MODEL_TRAITS,)) or next(iter(TPM_MODEL_TRAITS))
    if model == "tpm-crb" and version != "2.0":
        raise InvalidTrackerRequest(
            f"the TPM model {model} does not exist for version {version}",
            "hw:tpm_version 2.0, or the model tpm-tis",
        )
    yield TPM_TRAITS[version]
    yield TPM_MODEL_TRAITS[model]


def _other_traits(settings: FlavorAndImage) -> Iterator[str]:
    if _value(settings, "os:secure_boot", SECURE_BOOT) == "required":
        yield os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT
    if mode := _value(settings, "hw:maxphysaddr_mode", (*ADDRESS_TRAITS,)):
        yield ADDRESS_TRAITS[mode]
    # nova ignores the property without UEFI, and has no extra spec for it.
    if boolean(settings.image("firmware_stateless")) and settings.image("firmware_type") == "uefi":
        yield "COMPUTE_SECURITY_STATELESS_FIRMWARE"
    policy = settings.flavor("pci_numa_affinity_policy") or settings.image(
        "pci_numa_affinity_policy"
    )
    if policy == "socket":
        yield os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY


def _root_traits(settings: FlavorAndImage) -> Iterator[str]:
    """Yield what nova's request filters require that are always on."""
    if settings.specs.get("accel:device_profile"):
        yield os_traits.COMPUTE_ACCELERATORS
    if _switch(settings, "virtio_packed_ring"):
        yield "COMPUTE_NET_VIRTIO_PACKED"
    if _switch(settings, "ephemeral_encryption"):
        yield os_traits.COMPUTE_EPHEMERAL_ENCRYPTION
        if name := _value(settings, "hw:ephemeral_encryption_format", DISK_FORMATS):
            yield f"{os_traits.COMPUTE_EPHEMERAL_ENCRYPTION}_{name.upper()}"
    if _value(settings, "hw:sound_model", SOUND_MODELS) == "virtio":
        yield "COMPUTE_SOUND_MODEL_VIRTIO"
    if settings.flavor("tpm_version") or settings.image("tpm_version"):
        # Only flavors have it.
        key = "hw:tpm_secret_security"
        security = _known(key, settings.specs.get(key, ""), SECRET_SECURITY) or SECRET_SECURITY[0]
        yield f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{security.upper()}"


def _switch(settings: FlavorAndImage, name: str) -> bool:
    """Return whether flavor or image turn a feature on.

    :raises FlavorImageConflict: one turns it on, the other off.
    """
    flavor, image = settings.flavor(name), settings.image(name)
    if flavor is not None and image is not None and boolean(flavor) != boolean(image):
        raise _conflict(f"hw_{name}", image, flavor)
    return boolean(flavor) or boolean(image)


def _value(settings: FlavorAndImage, key: str, allowed: Sequence[str]) -> str:
    """Return the value of an extra spec, or of the image property of that name; empty if neither is
    there.

    :raises InvalidTrackerRequest: it is not one of ``allowed``, or the two differ.
    """
    property_key = key.replace(":", "_")
    flavor = _known(key, settings.specs.get(key, ""), allowed)
    image = _known(property_key, settings.properties.get(property_key, ""), allowed)
    if flavor and image and flavor != image:
        raise _conflict(property_key, image, flavor)
    return flavor or image


def _known(key: str, value: str, allowed: Sequence[str]) -> str:
    if value and value not in allowed:
        raise InvalidTrackerRequest(
            printable(f"{key} = {value}: not known"), f"allowed: {', '.join(allowed)}"
        )
    return value


def _conflict(key: str, image: str, flavor: str) -> FlavorImageConflict:
    return FlavorImageConflict(
        printable(f"{key} = {image}: the flavor says {flavor}"),
        "the same in flavor and image, or only in one",
    )


MAX_RESULTS = 1000
"""nova's default of ``[scheduler] max_placement_results``."""
OVERRIDE = re.compile(r"(resources|trait)([A-Za-z0-9_-]{1,64})?:(.+)")
GROUP_POLICY = "group_policy"
REQUIRED, FORBIDDEN = "required", "forbidden"


@dataclass(frozen=True, slots=True)
class SchedulerQuery:
    """A query, and which of its groups an alias stands for."""

    query: CandidateQuery
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Suffix of a group to the alias that requests its device."""


@dataclass(slots=True)
class _QueryBuilder:
    """The groups while the query is built."""

    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    """Suffix to class to amount. An amount of 0 keeps the class out of the query."""
    required: dict[str, set[str]] = field(default_factory=dict)
    forbidden: dict[str, set[str]] = field(default_factory=dict)
    policy: str | None = None
    named: set[str] = field(default_factory=set)
    """The suffixes that the flavor names, also of groups that request nothing."""

    def has(self, *names: str) -> bool:
        """Return whether a group names one of the classes, an amount of 0 included."""
        return any(name in amounts for amounts in self.resources.values() for name in names)

    def add(self, name: str, amount: int, suffix: str = "") -> None:
        self.resources.setdefault(suffix, {})[name] = amount

    def require(self, *traits: str, suffix: str = "") -> None:
        self.required.setdefault(suffix, set()).update(traits)

    def forbid(self, *traits: str, suffix: str = "") -> None:
        self.forbidden.setdefault(suffix, set()).update(traits)

    def groups(self) -> Iterator[RequestGroup]:
        """Yield the groups, the one without a suffix first."""
        for suffix in sorted({*self.resources, *self.required, *self.forbidden}):
            amounts = {
                name: amount for name, amount in self.resources.get(suffix, {}).items() if amount
            }
            required = frozenset(self.required.get(suffix, ()))
            forbidden = frozenset(self.forbidden.get(suffix, ()))
            if amounts or required or forbidden:
                yield RequestGroup(suffix, amounts, required, forbidden)


def scheduler_query(
    claim: InstanceClaim, aliases: Aliases, *, devices_in_placement: bool
) -> SchedulerQuery:
    """Return the query for the guest that ``claim`` describes.

    ``devices_in_placement``: whether aliases become groups, as with ``[pci] report_in_placement``.

    :raises InvalidTrackerRequest: flavor and image contradict each other, or ask for something
        impossible.
    """
    flavor, builder = claim.instance.flavor, _QueryBuilder()
    settings = FlavorAndImage(flavor.extra_specs, claim.instance.image_properties)
    _add_overrides(builder, settings)
    _add_cpus(builder, claim)
    if not builder.has(orc.MEMORY_MB):
        builder.add(orc.MEMORY_MB, flavor.memory_mb)
    if not builder.has(orc.DISK_GB):
        disk_mb = flavor.amounts(volume_backed=claim.instance.volume_backed).disk_mb
        builder.add(orc.DISK_GB, -(-disk_mb // 1024))
    _add_features(builder, settings)
    root_required = frozenset(_root_traits(settings))
    suffixes = _add_devices(builder, claim, aliases, settings) if devices_in_placement else {}
    groups = tuple(builder.groups())
    several = sum(bool(group.suffix) for group in groups) > 1
    if builder.policy is None and several and len(builder.named) <= 1:
        # Placement refuses several groups without a policy. Of groups that the flavor names, the
        # flavor has to give the policy.
        builder.policy = "none"
    return SchedulerQuery(
        CandidateQuery(
            groups,
            policy=builder.policy,
            root_required=root_required,
            root_forbidden=frozenset({os_traits.COMPUTE_STATUS_DISABLED}),
            limit=MAX_RESULTS,
        ),
        suffixes,
    )


def _add_overrides(builder: _QueryBuilder, settings: FlavorAndImage) -> None:
    """Add the classes, traits and the policy that the flavor names, and the image's traits."""
    for key, value in settings.specs.items():
        if key == GROUP_POLICY and value in POLICIES:
            builder.policy = value
        elif (found := OVERRIDE.fullmatch(key)) is not None:
            kind, suffix, name = found[1], found[2] or "", found[3]
            builder.named |= {suffix} - {""}
            if kind == "resources":
                _add_amount(builder, name, value, suffix)
            elif value == REQUIRED:
                builder.require(name, suffix=suffix)
            elif value == FORBIDDEN:
                builder.forbid(name, suffix=suffix)
    for key, value in settings.properties.items():
        # A trait that the image forbids has no effect.
        if key.startswith("trait:") and value == REQUIRED:
            builder.require(key.removeprefix("trait:"))


def _add_amount(builder: _QueryBuilder, name: str, text: str, suffix: str) -> None:
    """Add the amount of a class that the flavor names. nova ignores an amount that is none, and a
    class that cannot exist.
    """
    try:
        amount = int(text)
    except ValueError:
        return
    if amount >= 0 and (name.startswith(orc.CUSTOM_NAMESPACE) or name in orc.STANDARDS):
        builder.add(name, amount, suffix)


def _add_cpus(builder: _QueryBuilder, claim: InstanceClaim) -> None:
    flavor, properties = claim.instance.flavor, claim.instance.image_properties
    guest = guest_topology(flavor, properties)
    settings = FlavorAndImage(flavor.extra_specs, properties)
    if guest is not None and guest.pinned:
        if settings.flavor("cpu_policy") or settings.image("cpu_policy"):
            # In place of amounts of the flavor, which are 0 then.
            cells = range(len(guest.cells))
            pinned = sum(len(guest.cells[row].dedicated) for row in cells)
            builder.add(orc.PCPU, pinned + sum(map(guest.emulator_cpus, cells)))
            if shared := sum(len(cell.shared) for cell in guest.cells):
                builder.add(orc.VCPU, shared)
        threads = settings.flavor("cpu_thread_policy") or settings.image("cpu_thread_policy")
        if threads is not None and guest.thread_policy == "require":
            builder.require(os_traits.HW_CPU_HYPERTHREADING)
        elif threads is not None and guest.thread_policy == "isolate":
            builder.forbid(os_traits.HW_CPU_HYPERTHREADING)
    if not builder.has(orc.VCPU, orc.PCPU):
        builder.add(orc.VCPU, flavor.vcpus)


def _add_features(builder: _QueryBuilder, settings: FlavorAndImage) -> None:
    """Add what the features of the guest request."""
    labels = (label.strip() for label in (settings.flavor("pmem") or "").split(","))
    resources = Counter(orc.normalize_name(f"PMEM_NAMESPACE_{label}") for label in labels if label)
    if _switch(settings, "mem_encryption"):
        model = _value(settings, "hw:mem_encryption_model", (*MEMORY_TRAITS,))
        builder.require(MEMORY_TRAITS[model or next(iter(MEMORY_TRAITS))])
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    for name, amount in resources.items():
        builder.add(name, amount)
    builder.require(*_tpm_traits(settings), *_other_traits(settings))


def _add_devices(
    builder: _QueryBuilder, claim: InstanceClaim, aliases: Aliases, settings: FlavorAndImage
) -> dict[str, str]:
    """Add a group for each device that the flavor's aliases request. Return the alias of each
    suffix.
    """
    try:
        requests = device_requests(settings.specs, aliases, None, claim.id)
    except DeviceRequestError as error:
        raise InvalidDevices(error.message, error.remedy) from error
    suffixes = {}
    for request in requests:
        if request.alias is None:
            continue
        # With devices in Placement an alias has one alternative.
        for group in device_groups(
            request.id, request.count, aliases[request.alias].alternatives[0]
        ):
            suffixes[group.suffix] = request.alias
            for name, amount in group.resources.items():
                builder.add(name, amount, group.suffix)
            builder.require(*group.required, suffix=group.suffix)
            builder.forbid(*group.forbidden, suffix=group.suffix)
    return suffixes


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
            why = (
                _amount_fault(found[3], value)
                if found[1] == "resources"
                else ""
                if value in (REQUIRED, FORBIDDEN)
                else f"the value is neither {REQUIRED} nor {FORBIDDEN}"
            )
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
