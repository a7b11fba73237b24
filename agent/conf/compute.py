"""[compute] and [workarounds]: the layout and the audits of a node's tree, and nova's switches for
special cases of some clouds; [libvirt], [image_cache], [ironic], [host] and [fake]: the options of
the drivers. The names of the first three are nova's.
"""

from oslo_config import cfg, types

COMPUTE = [
    cfg.StrOpt(
        "tree_layout",
        choices=["nested", "flat"],
        help=(
            "nested: every NUMA cell is a child provider; flat: everything on the root, as nova "
            "has it. Unset: an existing root keeps its layout, and a new one is nested; with a "
            "configuration file of nova it is flat, as nova's scheduler wants it: it asks for all "
            "PCPU of a guest in one provider, so that a pinned guest with hw:numa_nodes=2 that "
            "needs more than one cell has is not scheduled to a nested tree."
        ),
    ),
    cfg.StrOpt(
        "numa_mode",
        default="mixed",
        choices=["mixed", "strict"],
        help=(
            "What the cells of a nested tree count. mixed: dedicated CPUs; shared CPUs and memory "
            "are the root's, because a guest without a topology is on no cell. strict: shared "
            "CPUs and memory as well; every guest has to have a topology."
        ),
    ),
    cfg.BoolOpt(
        "memory_page_classes",
        default=False,
        help=(
            "Count huge pages too, in MiB, as CUSTOM_MEMORY_PAGE_<size in KiB>. Their memory is "
            "inside MEMORY_MB as well."
        ),
    ),
    cfg.ListOpt(
        "counted_on_root",
        default=[],
        item_type=types.String(choices=["VGPU", "MEM_ENCRYPTION_CONTEXT"]),
        help=(
            "Resource classes of children that are counted on the root instead, as in old "
            "releases, in order to go back to such a release. Allocations move along at the next "
            "start, and back again when this is unset. Of MEM_ENCRYPTION_CONTEXT only that of SEV."
        ),
    ),
    cfg.StrOpt(
        "owner_trait",
        default="OWNER_NOVA",
        help="Trait that says which service owns the node's providers.",
    ),
    cfg.StrOpt(
        "provider_config_location",
        default="/etc/compute-node-agent/provider_config/",
        help=(
            "Folder of YAML files that add custom inventories and traits to providers. It may be "
            "missing; empty: no folder is read."
        ),
    ),
    cfg.StrOpt(
        "cpu_shared_set", help="Host CPUs for shared guest CPUs (VCPU), as a list like 0-3,^2."
    ),
    cfg.StrOpt("cpu_dedicated_set", help="Host CPUs for dedicated guest CPUs (PCPU)."),
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help=(
            "Fill the fullest NUMA cells that have room first, instead of spreading guests over "
            "the emptiest."
        ),
    ),
    cfg.IntOpt(
        "resource_provider_association_refresh",
        default=300,
        min=0,
        help="Seconds between queries for sharing providers; 0: only once.",
    ),
    cfg.BoolOpt(
        "purge_unknown_allocations",
        default=False,
        help=(
            "Remove the allocations on the node's providers whose consumer has been in no record "
            "for purge_unknown_allocations_grace."
        ),
    ),
    cfg.IntOpt(
        "purge_unknown_allocations_grace",
        default=86400,
        min=0,
        help=(
            "Seconds for which a consumer has to be in no record before its allocations are "
            "removed; two audits at least."
        ),
    ),
    cfg.IntOpt(
        "facts_deadline",
        default=60,
        min=1,
        help="Seconds a driver may take for one node's facts before the call is abandoned.",
    ),
    cfg.IntOpt(
        "nodes_deadline",
        default=300,
        min=1,
        help="Seconds a driver may take to list its nodes before the call is abandoned.",
    ),
    cfg.IntOpt(
        "full_audit_interval",
        default=600,
        min=0,
        help=(
            "Seconds within which an unchanged node is audited again, spread over the nodes; for "
            "drivers of many nodes that report which nodes have changed. 0: in every pass."
        ),
    ),
    cfg.ListOpt(
        "image_type_exclude_list",
        default=[],
        help=(
            "Types of images (qcow2, raw, iso, ...) from which no guests are made here, although "
            "the driver could."
        ),
    ),
    cfg.IntOpt("start_deadline", default=60, min=1, help="Seconds a driver may take to start."),
    cfg.ListOpt(
        "monitors",
        default=[],
        help=(
            "Monitors of the host whose metrics are shown: cpu, memory, and whatever else is "
            "installed."
        ),
    ),
    cfg.IntOpt(
        "monitor_deadline",
        default=5,
        min=1,
        help="Seconds a monitor may take before it is left out.",
    ),
    cfg.IntOpt("workers", default=4, min=1, max=64, help="Nodes audited at the same time."),
]

WORKAROUNDS = [
    cfg.BoolOpt(
        "skip_reserve_in_use_ironic_nodes",
        default=False,
        help=(
            "Do not reserve a bare-metal node for the sole reason that it has an instance. "
            "Without automatic cleaning it is free for "
            "others sooner; with it, others may be sent to a node that is about to be cleaned."
        ),
    ),
    cfg.BoolOpt(
        "reserve_disk_resource_for_image_cache",
        default=False,
        help=(
            "Reserve of DISK_GB what the cached images take, rounded up to GiB, where they are on "
            "the file system of the guests' disks. Only with the driver libvirt, and not with "
            "images_type lvm or rbd, whose disks are elsewhere."
        ),
    ),
]


LIBVIRT = [
    cfg.StrOpt(
        "connection_uri",
        default="",
        help="URI of the libvirt to connect to. Empty: qemu:///system.",
    ),
    cfg.StrOpt(
        "virt_type",
        default="kvm",
        choices=["kvm", "qemu"],
        help="How guests run: by KVM, or emulated.",
    ),
    cfg.StrOpt(
        "cpu_mode",
        choices=["host-model", "host-passthrough", "custom", "none"],
        help=(
            "Which CPU guests have, and so whose features become traits. host-model, "
            "host-passthrough: the host's; custom: those of cpu_models; "
            "none: the hypervisor's default. Unset: the host's."
        ),
    ),
    cfg.ListOpt(
        "cpu_models",
        default=[],
        deprecated_name="cpu_model",
        help="CPU models of guests, for cpu_mode = custom.",
    ),
    cfg.ListOpt(
        "hw_machine_type",
        default=[],
        help=(
            "Machines that guests get unless they ask for another, as arch=machine. What they "
            "offer becomes traits, beside what pc and q35 offer."
        ),
    ),
    cfg.ListOpt(
        "cpu_model_extra_flags",
        default=[],
        help="CPU features that guests have in addition (pcid, +pcid), or do not have (-pcid).",
    ),
    cfg.StrOpt(
        "images_type",
        default="default",
        choices=["raw", "flat", "qcow2", "lvm", "rbd", "ploop", "default"],
        help=(
            "Where the disks of guests are, and so what DISK_GB is: lvm: a volume group; rbd: a "
            "Ceph pool; all others: the file system of instances_path."
        ),
    ),
    cfg.StrOpt("images_volume_group", help="The LVM volume group, for images_type = lvm."),
    cfg.StrOpt("images_rbd_pool", default="rbd", help="The Ceph pool, for images_type = rbd."),
    cfg.StrOpt(
        "images_rbd_ceph_conf",
        default="",
        help="The configuration file of Ceph, if it is not in its usual place.",
    ),
    cfg.StrOpt("rbd_user", help="The client of Ceph that asks for the size of the pool."),
    cfg.ListOpt(
        "pmem_namespaces",
        default=[],
        help=(
            "Namespaces of persistent memory for guests, as label:ns0|ns1,label:ns2. Each label "
            "becomes a resource class CUSTOM_PMEM_NAMESPACE_<label>."
        ),
    ),
    cfg.IntOpt(
        "file_backed_memory",
        default=0,
        min=0,
        help=(
            "MiB of files that back the memory of guests, reported as MEMORY_MB in place of the "
            "host's memory."
        ),
    ),
    cfg.BoolOpt("swtpm_enabled", default=False, help="Whether guests may have an emulated TPM."),
    cfg.ListOpt(
        "supported_tpm_secret_security",
        default=["user", "host", "deployment"],
        help=(
            "Where the secret of a guest's emulated TPM may be kept: user, host, deployment. "
            "Guests that ask for another are not scheduled here."
        ),
    ),
    cfg.IntOpt(
        "num_memory_encrypted_guests",
        min=0,
        help=(
            "How many guests may have memory encrypted by SEV or TDX at once, if that is less "
            "than the host says, or the host does not say. It is no limit of SEV-ES and SEV-SNP."
        ),
    ),
    cfg.IntOpt(
        "num_intel_tdx_guests",
        min=0,
        help=("The same limit for TDX alone. If both options are set, the smaller number counts."),
    ),
    cfg.BoolOpt(
        "cpu_power_management",
        default=False,
        help=(
            "Whether dedicated CPUs sleep while no guest has them. CPUs that are offline for this "
            "reason are counted all the same."
        ),
    ),
    cfg.StrOpt(
        "cpu_power_management_strategy",
        default="cpu_state",
        choices=["cpu_state", "governor"],
        help=(
            "How dedicated CPUs sleep: offline, or with another governor, with which they stay "
            "online."
        ),
    ),
]

# The cache of the images that guests were created from.
IMAGE_CACHE = [
    cfg.StrOpt(
        "subdirectory_name",
        default="_base",
        deprecated_name="image_cache_subdirectory_name",
        deprecated_group="DEFAULT",
        help=(
            "Folder of the cached images below instances_path; see [workarounds] "
            "reserve_disk_resource_for_image_cache."
        ),
    ),
]

# Beside every option of keystoneauth.
IRONIC = [
    cfg.StrOpt(
        "conductor_group",
        deprecated_name="partition_key",
        regex=r"^[A-Za-z0-9_.-]*$",
        max_length=255,
        help=(
            "Manage only the nodes of this conductor group, in upper or lower case. Unset: those "
            "of all groups; empty: those of the default group."
        ),
    ),
    cfg.StrOpt(
        "shard",
        regex=r"^[A-Za-z0-9_.-]+$",
        max_length=255,
        help="Manage only the nodes of this shard. Needs an ironic API of 1.82.",
    ),
    cfg.IntOpt(
        "api_max_retries",
        default=60,
        min=0,
        help=(
            "How many times a start repeats a request that ironic does not answer, as far as "
            "[compute] start_deadline allows."
        ),
    ),
    cfg.IntOpt("api_retry_interval", default=2, min=0, help="Seconds between these requests."),
]

IRONIC_DEFAULTS = {
    "service_type": "baremetal",
    "valid_interfaces": ["internal", "public"],
    "timeout": 60,
}

HOST = [
    cfg.StrOpt(
        "sysfs_root",
        default="/sys",
        help=(
            "Folder that stands in for /sys, so that a recording of another machine can be audited."
        ),
    ),
]

FAKE = [
    cfg.StrOpt(
        "host_file",
        help="YAML file that describes the host of fake.file; read again when it changes.",
    ),
    cfg.IntOpt("baremetal_nodes", default=10, min=0, help="How many nodes fake.baremetal has."),
    cfg.IntOpt("chaos_seed", default=0, help="Seed of what fake.chaos does."),
    cfg.FloatOpt(
        "chaos_probability",
        default=0.3,
        min=0.0,
        max=1.0,
        help="How often a call of fake.chaos is disturbed.",
    ),
]
