"""[neutron] and [neutron_tunnel]: physical networks, with a section [neutron_physnet_<name>] for
each, and tunneled ones.
"""

from collections.abc import Mapping, Sequence

from oslo_config import cfg, types

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
