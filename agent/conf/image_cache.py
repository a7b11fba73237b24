"""[image_cache]: the cache of the images that guests were created from. The name is nova's."""

from oslo_config import cfg

GROUP = "image_cache"

OPTIONS = [
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
