"""[api]: the local API."""

import os
from pathlib import Path

from oslo_config import cfg

GROUP = "api"

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


OPTIONS = [
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
