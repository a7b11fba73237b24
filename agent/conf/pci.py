"""[pci]: the devices that guests may have, and the aliases by which flavors ask for them. All names
are nova's.
"""

from oslo_config import cfg

GROUP = "pci"

OPTIONS = [
    cfg.MultiStrOpt(
        "device_spec",
        default=[],
        deprecated_opts=[
            cfg.DeprecatedOpt("passthrough_whitelist", GROUP),
            cfg.DeprecatedOpt("pci_passthrough_whitelist", "DEFAULT"),
        ],
        help=(
            "Devices for guests: a JSON object, or a list of objects. vendor_id, product_id, "
            "address or devname select devices, all other keys describe these devices. May be "
            "given several times; the first object that matches a device counts."
        ),
    ),
    cfg.MultiStrOpt(
        "alias",
        default=[],
        deprecated_opts=[cfg.DeprecatedOpt("pci_alias", "DEFAULT")],
        help=(
            "A name by which flavors ask for a device, as a JSON object of name, vendor_id, "
            "product_id, device_type, numa_policy, "
            "resource_class, traits, live_migratable. May be given several times."
        ),
    ),
    cfg.BoolOpt(
        "report_in_placement",
        default=False,
        help=(
            "Whether the devices of device_spec become providers in Placement. Once true, it has "
            "to stay true."
        ),
    ),
]
