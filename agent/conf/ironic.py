"""[ironic]: the nodes that the agent manages, and every keystoneauth option. All names
are nova's.
"""

from oslo_config import cfg

GROUP = "ironic"

DEFAULTS = {"service_type": "baremetal", "valid_interfaces": ["internal", "public"], "timeout": 60}

OPTIONS = [
    cfg.StrOpt(
        "conductor_group",
        deprecated_name="partition_key",
        regex=r"^[A-Za-z0-9_.-]*$",
        max_length=255,
        help=(
            "Manage only the nodes of this conductor group, in upper or lower case. Unset: those "
            "of all groups; empty: those of the default group."
        ),
    ),
    cfg.StrOpt(
        "shard",
        regex=r"^[A-Za-z0-9_.-]+$",
        max_length=255,
        help="Manage only the nodes of this shard. Needs an ironic API of 1.82.",
    ),
    cfg.IntOpt(
        "api_max_retries",
        default=60,
        min=0,
        help=(
            "How many times a start repeats a request that ironic does not answer, as far as "
            "[compute] start_deadline allows."
        ),
    ),
    cfg.IntOpt("api_retry_interval", default=2, min=0, help="Seconds between these requests."),
]
