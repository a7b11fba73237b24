"""[workarounds]: nova's switches for special cases of some clouds."""

from oslo_config import cfg

GROUP = "workarounds"

OPTIONS = [
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
