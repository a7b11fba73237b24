"""[host]: the bare Linux host."""

from oslo_config import cfg

GROUP = "host"

OPTIONS = [
    cfg.StrOpt(
        "sysfs_root",
        default="/sys",
        help=(
            "Folder that stands in for /sys, so that a recording of another machine can be audited."
        ),
    ),
]
