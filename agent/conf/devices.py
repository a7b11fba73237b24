"""[neutron], [pci] and [devices]: on which cells networks are, the devices that guests may have,
the aliases by which flavors ask for them, and mediated devices with a section [mdev_<type>] for
each type. All names but max_per_guest are nova's.
"""

from collections.abc import Mapping, Sequence

from oslo_config import cfg, types

PCI = [
    cfg.MultiStrOpt(
        "device_spec",
        default=[],
        deprecated_opts=[
            cfg.DeprecatedOpt("passthrough_whitelist", "pci"),
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

DEVICES = [
    cfg.ListOpt(
        "enabled_mdev_types",
        default=[],
        deprecated_opts=[cfg.DeprecatedOpt("enabled_vgpu_types", "devices")],
        help=(
            "Types of mediated devices that guests may have, such as nvidia-35. Each may have a "
            "section [mdev_<type>] with device_addresses (PCI addresses of its parents, or names "
            "of virtual ones; one type may do without and has all other parents), mdev_class (the "
            "resource class: VGPU, which it is by default, or CUSTOM_*), max_instances (how many "
            "there may be on the whole host) and max_per_guest (how many one guest may have of "
            "one parent)."
        ),
    ),
]


def type_group(mdev_type: str) -> str:
    """Return the name of a type's section."""
    return f"mdev_{mdev_type}"


def type_options(mdev_type: str) -> list[cfg.Opt]:
    """Return the options of a type's section."""
    return [
        cfg.ListOpt(
            "device_addresses",
            default=[],
            deprecated_group=f"vgpu_{mdev_type}",
            help="Parents that are cut into devices of this type.",
        ),
        cfg.StrOpt(
            "mdev_class", default="VGPU", help="Resource class of the type: VGPU, or CUSTOM_*."
        ),
        cfg.IntOpt(
            "max_instances", min=1, help="How many devices of the type there may be on the host."
        ),
        cfg.IntOpt("max_per_guest", min=1, help="How many of them a guest may have of one parent."),
    ]


def register_types(conf: cfg.ConfigOpts) -> list[tuple[str, list[cfg.Opt]]]:
    """Register the section of every type that ``conf`` lists. Return the options by group."""
    sections = [(type_group(name), type_options(name)) for name in conf.devices.enabled_mdev_types]
    for group, options in sections:
        conf.register_opts(options, group)
    return sections


NEUTRON = [
    cfg.ListOpt(
        "physnets",
        default=[],
        help=(
            "Physical networks that are local to some NUMA nodes of this host. Each has a section "
            "[neutron_physnet_<name>], whose numa_nodes lists these. Any other network is as near "
            "to one node as to another."
        ),
    ),
]

TUNNEL = [
    cfg.ListOpt(
        "numa_nodes",
        default=[],
        item_type=types.Integer(min=0),
        help=(
            "NUMA nodes of this host that tunneled networks are local to. Empty: as near to one "
            "as to another."
        ),
    ),
]

NUMA_NODES = cfg.ListOpt(
    "numa_nodes",
    default=[],
    item_type=types.Integer(min=0),
    help="NUMA nodes that the physical network is local to.",
)


def physnet_group(name: str) -> str:
    """Return the name of a physical network's section."""
    return f"neutron_physnet_{name}"


def register_physnets(conf: cfg.ConfigOpts) -> list[tuple[str, list[cfg.Opt]]]:
    """Register the section of every physical network that ``conf`` lists. Return the options by
    group.
    """
    sections: list[tuple[str, list[cfg.Opt]]] = [
        (physnet_group(name), [NUMA_NODES]) for name in conf.neutron.physnets
    ]
    for group, options in sections:
        conf.register_opts(options, group)
    return sections


def physnet_nodes(conf: cfg.ConfigOpts) -> Mapping[str, Sequence[int]]:
    """Return the NUMA nodes of each physical network."""
    register_physnets(conf)
    return {name: conf[physnet_group(name)].numa_nodes for name in conf.neutron.physnets}
