"""[fake]: the fake drivers."""

from oslo_config import cfg

GROUP = "fake"

OPTIONS = [
    cfg.StrOpt(
        "host_file",
        help="YAML file that describes the host of fake.file; read again when it changes.",
    ),
    cfg.IntOpt("baremetal_nodes", default=10, min=0, help="How many nodes fake.baremetal has."),
    cfg.IntOpt("chaos_seed", default=0, help="Seed of what fake.chaos does."),
    cfg.FloatOpt(
        "chaos_probability",
        default=0.3,
        min=0.0,
        max=1.0,
        help="How often a call of fake.chaos is disturbed.",
    ),
]
