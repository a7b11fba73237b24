"""[placement] and [nova]: requests to Placement and to nova's API, beside every option of
keystoneauth.
"""

from oslo_config import cfg

PLACEMENT = [
    cfg.StrOpt(
        "backend",
        default="auto",
        choices=["auto", "http", "embedded"],
        help=(
            "auto: the catalog or endpoint when credentials are set, else, for --once, the "
            "embedded Placement."
        ),
    ),
    cfg.IntOpt(
        "max_in_flight",
        default=4,
        min=1,
        max=64,
        help="Requests under way at once; the embedded Placement always takes one.",
    ),
    cfg.IntOpt(
        "interval",
        default=0,
        min=0,
        help=(
            "Seconds between two passes that read the node's tree from Placement, while host and "
            "records give nothing to publish; a change by others in Placement is seen that much "
            "later. 0: each pass."
        ),
    ),
    cfg.IntOpt(
        "full_reread_interval",
        default=86400,
        min=0,
        help=(
            "Seconds within which every provider is read again in full, spread over the providers; "
            "finds changes that generations do not show. 0: never."
        ),
    ),
    cfg.IntOpt(
        "consumers_refresh",
        default=600,
        min=0,
        help=(
            "Seconds within which the consumers of the node's root and of its cells are read from "
            "Placement again, one provider a pass at most, because the removal of an allocation "
            "shows nowhere else; on nodes with records of guests. 0: never."
        ),
    ),
    cfg.IntOpt("connect_timeout", default=5, min=1, help="Seconds to wait for a connection."),
    cfg.IntOpt(
        "read_timeout",
        default=60,
        min=1,
        help="Seconds within which an answer has to arrive as a whole.",
    ),
    cfg.IntOpt(
        "max_answer",
        default=64,
        min=1,
        max=1024,
        help="MiB that an answer may have at most, after decompression.",
    ),
    cfg.IntOpt(
        "reshape_timeout",
        default=300,
        min=1,
        help="Seconds within which the answer to a reshape has to arrive.",
    ),
]

# Defaults that differ from keystoneauth's. Its own retries are off, because they would repeat
# writes too.
PLACEMENT_DEFAULTS = {
    "service_type": "placement",
    "valid_interfaces": ["internal", "public"],
    "connect_retries": 0,
    "status_code_retries": 0,
}

# It is asked for no more than what an audit tells besides, so that an audit does not wait long.
NOVA_DEFAULTS = {
    "service_type": "compute",
    "valid_interfaces": ["internal", "public"],
    "timeout": 10,
    "connect_retries": 0,
    "status_code_retries": 0,
}


def nova_is_asked(conf: cfg.ConfigOpts) -> bool:
    """Return whether the section [nova] has credentials."""
    return bool(conf.nova.auth_type or conf.nova.auth_section)
