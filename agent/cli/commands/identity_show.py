"""``agent identity show``: shows the uuid by which Placement knows this node."""

from pathlib import Path

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.conf.default import host_name
from agent.errors import IdentityError
from agent.store import identity
from agent.store.store import open_read_only

SCHEMA = "compute-node-agent/identity/1"


def show_identity(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the identity; creates none. Return the exit code.

    :raises IdentityError: there is no identity yet, or its file and the store contradict each
        other.
    :raises StoreError: the store cannot be read.
    """
    folder, host = Path(conf.store.path), host_name(conf)
    with open_read_only(folder, conf.store.connection) as store:
        found = identity.find(folder, Path(conf.state_path), host, store)
    if found is None:
        raise IdentityError(
            f"[store] path {folder}: host {host} has no identity yet", "agent --once makes one"
        )
    if options.as_document:
        write_document(
            {"schema": SCHEMA, "host": host, "uuid": found, "errors": [], "exit_code": 0}, options
        )
    else:
        write(f"{found}\n")
    return 0
