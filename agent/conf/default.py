"""[DEFAULT]: the host, its driver, ratios and reserved amounts. All names are nova's. With them,
the options of nova that the agent does not use, registered so that it can warn of them.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oslo_config import cfg

RATIO_HELP = (
    "What is set here wins over the value in Placement; unset or 0, the value in Placement is "
    "kept and a new inventory gets the initial ratio."
)

HOST = cfg.StrOpt(
    "host",
    default=socket.gethostname(),
    sample_default="<hostname>",
    help="Name of this host; nodes are named after it unless the driver knows better.",
)

OPTIONS = [
    cfg.StrOpt(
        "compute_driver",
        help=(
            "Driver to audit with: libvirt, host, ironic, fake, fake.numa, fake.file, ... or one "
            "of nova's spellings. Unset: agent --once takes host, "
            "the daemon libvirt, if that answers."
        ),
    ),
    HOST,
    cfg.StrOpt(
        "mode",
        default="manage",
        choices=[
            ("manage", "The agent writes inventories, traits and allocations to Placement."),
            (
                "observe",
                "The agent writes nothing to Placement. It reports what Placement has otherwise "
                "than this host and its guests, for a host that nova-compute manages.",
            ),
        ],
        help="Whether the agent manages the nodes of this host, or only observes them.",
    ),
    cfg.StrOpt("my_ip", sample_default="<address>", help="Address of this host."),
    cfg.BoolOpt(
        "enabled",
        help=(
            "Whether the host takes new instances. Unset: COMPUTE_STATUS_DISABLED is left as "
            "found. False: it is set. True: it is removed if the agent had set it."
        ),
    ),
    cfg.StrOpt(
        "pybasedir",
        default="/usr/lib/python3/dist-packages",
        help="Only for values of a nova.conf that refer to it as $pybasedir.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/nova",
        help=(
            "nova's state folder; only its compute_id is read, never written. As in nova, one "
            "beside a configuration file is read first."
        ),
    ),
    cfg.StrOpt(
        "instances_path",
        default="$state_path/instances",
        help=(
            "Folder of the guests' disks; its file system is DISK_GB. The nearest existing parent "
            "stands in for it."
        ),
    ),
    cfg.BoolOpt(
        "force_raw_images",
        default=True,
        help=(
            "Whether images are made raw for guests. If not, images_type lvm and rbd cannot take "
            "QCOW2: COMPUTE_IMAGE_TYPE_QCOW2 is not set then."
        ),
    ),
    cfg.IntOpt(
        "update_resources_interval",
        default=0,
        min=-1,
        help="Seconds between audits of a node; 0 means 60, -1 never.",
    ),
    cfg.FloatOpt("cpu_allocation_ratio", min=0.0, help=f"Overcommit of VCPU. {RATIO_HELP}"),
    cfg.FloatOpt("ram_allocation_ratio", min=0.0, help=f"Overcommit of MEMORY_MB. {RATIO_HELP}"),
    cfg.FloatOpt("disk_allocation_ratio", min=0.0, help=f"Overcommit of DISK_GB. {RATIO_HELP}"),
    cfg.FloatOpt(
        "initial_cpu_allocation_ratio",
        default=4.0,
        min=0.0,
        help="Overcommit of VCPU in a new inventory.",
    ),
    cfg.FloatOpt(
        "initial_ram_allocation_ratio",
        default=1.0,
        min=0.0,
        help="Overcommit of MEMORY_MB in a new inventory.",
    ),
    cfg.FloatOpt(
        "initial_disk_allocation_ratio",
        default=1.0,
        min=0.0,
        help="Overcommit of DISK_GB in a new inventory.",
    ),
    cfg.StrOpt(
        "vcpu_pin_set",
        help=(
            "nova's old name of [compute] cpu_shared_set: the host CPUs for guest CPUs, shared "
            "ones and, as in nova, dedicated ones too, all of them "
            "VCPU. Not beside cpu_dedicated_set. A warning says how to replace it."
        ),
    ),
    cfg.IntOpt("reserved_host_cpus", default=0, min=0, help="CPUs kept for the host, out of VCPU."),
    cfg.IntOpt(
        "reserved_host_memory_mb",
        default=512,
        min=0,
        help="MiB kept for the host, out of MEMORY_MB.",
    ),
    cfg.IntOpt(
        "reserved_host_disk_mb",
        default=0,
        min=0,
        help="MiB kept for the host, out of DISK_GB, rounded up to GiB.",
    ),
    cfg.MultiStrOpt(
        "reserved_huge_pages",
        default=[],
        help=(
            "Pages of a NUMA node kept for the host, as node:0,size:2048,count:64; size in KiB or "
            "like 1GB. May be given several times."
        ),
    ),
]


def host_name(conf: cfg.ConfigOpts) -> str:
    """Return ``[DEFAULT] host``. ``conf.host`` would be the section [host]."""
    name: str = conf.DEFAULT.host
    return name


def host_is_given(conf: cfg.ConfigOpts) -> bool:
    """Return whether ``[DEFAULT] host`` was set, and is not what the machine is called now."""
    found = conf.get_location("host", "DEFAULT")
    return found is not None and found.location is not cfg.Locations.opt_default


def nova_folders(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the folders in which nova looks for its ``compute_id``, in its order."""
    return [*(Path(file).parent for file in conf.config_file or ()), Path(conf.state_path)]


def is_novas(conf: cfg.ConfigOpts) -> bool:
    """Return whether the configuration is nova's: one of its files is."""
    # What has read the files knows; options without files do not.
    return bool(getattr(conf, "is_novas", False))


def only_observes(conf: cfg.ConfigOpts) -> bool:
    """Return whether the agent writes nothing to Placement."""
    return bool(conf.mode == "observe")


@dataclass(frozen=True, slots=True)
class UnusedOption:
    """One such option."""

    group: str | None
    option: cfg.Opt
    matters: Callable[[Any], bool]
    """Whether a value changes anything in nova, as a function of the value."""
    instead: str
    """What the agent does, or what to set instead."""
    driver: str | None = None
    """The only driver that the option concerns; None: every driver."""


UNUSED = (
    UnusedOption(
        None,
        cfg.BoolOpt("enable_new_services"),
        lambda value: value is False,
        "a new host takes guests at once; set [DEFAULT] enabled = false for a host that shall not",
    ),
    UnusedOption(
        "compute",
        cfg.IntOpt("consecutive_build_service_disable_threshold"),
        bool,
        (
            "the agent disables no host because builds fail; agent status and the metrics show how "
            "many have failed"
        ),
    ),
    UnusedOption(
        "ironic",
        cfg.ListOpt("peer_list"),
        bool,
        (
            "one agent manages all nodes of a conductor group and shard; give each agent a shard, "
            "and one store to agents that shall stand in for each other"
        ),
        driver="ironic",
    ),
)
