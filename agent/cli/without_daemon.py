"""What the commands that ask the daemon first show without one: nodes and trees, from the store.
Imported only then, because the database's library takes longer to load than the daemon takes to
answer.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.render.json_report import StoredTree
from agent.store.store import Store, open_read_only

# The keys of a node that only a daemon knows.
ONLY_OF_A_DAEMON = (
    "driver",
    "state",
    "audited_at",
    "last_good_audit_at",
    "usage",
    "drift",
    "drift_kinds",
    "drift_warnings",
)


def open_stored(conf: cfg.ConfigOpts) -> Store:
    """Open the store of ``conf`` for reading.

    :raises StoreError: the store cannot be read.
    """
    return open_read_only(Path(conf.store.path), conf.store.connection)


def nodes(store: Store) -> Iterator[dict[str, Any]]:
    """Yield the nodes as the last run left them. Their present state is unknown."""
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root):
            unknown: dict[str, Any] = dict.fromkeys(ONLY_OF_A_DAEMON)
            yield {
                "name": view.tree.name_of(root),
                "uuid": root,
                **unknown,
                "providers": len(view.tree.get_provider_uuids(root)),
                "errors": [],
            }


def trees(store: Store) -> Iterator[StoredTree]:
    """Yield the trees as they were last seen in Placement. Usages are not stored."""
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root):
            yield StoredTree(
                view.tree.name_of(root),
                root,
                endpoint,
                view.tree,
                frozenset(store.journal(root).providers),
                consumers=view.consumers,
            )
