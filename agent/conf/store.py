"""[store]: the place of the agent's persistent state."""

import os
from pathlib import Path

from oslo_config import cfg

GROUP = "store"


def default_path() -> str:
    """Return ``/var/lib/compute-node-agent`` for root, else a path in the user's state folder."""
    if os.geteuid() == 0:
        return "/var/lib/compute-node-agent"
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(state) / "compute-node-agent")


OPTIONS = [
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
