"""[compute] and [workarounds]: the layout and the audits of a node's tree, and nova's switches for
special cases of some clouds.
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
