"""[store], [tracker] and [api]: the agent's persistent state, its records of claims, and its local
API; [placement] and [nova]: the services that it asks, beside the options of keystoneauth.
"""

import os
from pathlib import Path

from oslo_config import cfg


def default_path() -> str:
    """Return ``/var/lib/compute-node-agent`` for root, else a path in the user's state folder."""
    if os.geteuid() == 0:
        return "/var/lib/compute-node-agent"
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(state) / "compute-node-agent")


STORE = [
    cfg.StrOpt(
        "path",
        sample_default="/var/lib/compute-node-agent",
        help="Folder of the store, the node's identity, the run lock and the embedded Placement.",
    ),
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:///<path>/database/store.sqlite",
        help=(
            "Database URL of the store, SQLite or PostgreSQL. Default: a SQLite file in the folder "
            "database below path."
        ),
    ),
]

TRACKER = [
    cfg.IntOpt(
        "node_lease",
        default=300,
        min=30,
        help=(
            "Seconds for which no other host may take a node over after its agent last renewed "
            "the lease on it. Every audit renews the lease, so this time has to be longer than the "
            "time between two audits; a clean stop ends the lease."
        ),
    ),
    cfg.IntOpt(
        "stranded_after",
        default=3600,
        min=0,
        help=(
            "Seconds after which a move that has not arrived is reported as stranded-claim, with "
            "the command that ends it, unless its progress or a state of its instance was reported "
            "meanwhile; likewise a claim whose guest has not appeared. The claim stays open until "
            "somebody ends it: age alone releases nothing."
        ),
    ),
    cfg.IntOpt(
        "keep_ended",
        default=90,
        min=1,
        help=(
            "Days for which records are kept of released claims, of migrations that ended or "
            "failed, of instances that are deleted or whose build failed, and of deleted nodes. "
            "Until then they prove whose leaked allocations were."
        ),
    ),
    cfg.BoolOpt(
        "count_orphans",
        default=False,
        help="Whether memory and CPUs of guests that no record knows count as used.",
    ),
]

SYSTEM_SOCKET = "/run/compute-node-agent/agent.sock"


def default_socket() -> str:
    """Return the system's path for root and without XDG_RUNTIME_DIR (services), else a path in the
    user's own run-time folder.
    """
    own = os.environ.get("XDG_RUNTIME_DIR")
    return (
        str(Path(own) / "compute-node-agent" / "agent.sock")
        if own and os.geteuid() != 0
        else SYSTEM_SOCKET
    )


API = [
    cfg.StrOpt(
        "socket",
        sample_default=SYSTEM_SOCKET,
        help="Path of the Unix socket of the local API, mode 0660. Changed by a restart only.",
    ),
    cfg.StrOpt(
        "group",
        help=(
            "Group of the socket, by name or number: who may connect at all, beside root and the "
            "agent's own user. Default: the agent's own group. Changed by a restart only."
        ),
    ),
    cfg.StrOpt(
        "metrics_address",
        sample_default="127.0.0.1:9653",
        help=(
            "Address and port of a TCP listener that answers /metrics, /healthz and /readyz, to "
            "whoever can reach it, and nothing else; for a Prometheus that cannot read the "
            "socket. [::1]:9653 for IPv6. Better a loopback address behind a proxy that checks its "
            "clients. Default: none. Changed by a restart only."
        ),
    ),
    cfg.StrOpt(
        "read_group",
        help="Members of this group may look at everything over the local API. Default: nobody.",
    ),
    cfg.StrOpt(
        "write_group",
        help="Members of this group may do everything over the local API. Default: nobody.",
    ),
]


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
