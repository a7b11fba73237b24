"""[image_cache]: where the images are from which guests were made. The name is nova's."""

from oslo_config import cfg

GROUP = "image_cache"

OPTIONS = [
    cfg.StrOpt(
        "subdirectory_name",
        default="_base",
        help=(
            "Folder of the cached images below instances_path; see [workarounds] "
            "reserve_disk_resource_for_image_cache."
        ),
    ),
]
