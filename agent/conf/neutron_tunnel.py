"""[neutron_tunnel]: the NUMA nodes of tunneled networks."""

from oslo_config import cfg, types

GROUP = "neutron_tunnel"

OPTIONS = [
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
