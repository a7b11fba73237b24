"""``agent tree``: the provider trees as the store knows them from Placement."""

import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.output import write, write_document
from agent.errors import StoreError
from agent.render.json_report import tree_document
from agent.render.look import look_of
from agent.render.own_tree import StoredTree
from agent.render.text import render_trees
from agent.store.store import Store, open_read_only


def run(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the trees of all nodes, or of those that match ``--node`` by name or uuid.

    :raises StoreError: the store cannot be read, or has no such tree.
    """
    with open_read_only(Path(conf.store.path), conf.store.connection) as store:
        found = list(_trees(store))
        chosen = [one for one in found if not options.nodes or any(_matches(one, name) for name in options.nodes)]
        missing = [name for name in options.nodes if not any(_matches(one, name) for one in found)]
        if missing:
            raise StoreError(f"--node {missing[0]}: no such tree in the store {store}", f"it has {', '.join(one.name for one in found[:10]) or 'none'}")
        if not chosen:
            raise StoreError(f"no tree in the store {store}", "agent --once puts one there")
    if options.format == "json":
        write_document(tree_document(chosen))
    else:
        write(render_trees(chosen, look_of(sys.stdout)))
    return 0


def _trees(store: Store) -> Iterator[StoredTree]:
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root):
            yield StoredTree(view.tree.name_of(root), root, endpoint, view.tree, frozenset(store.journal(root).providers))


def _matches(one: StoredTree, wanted: str) -> bool:
    return one.uuid == wanted or fnmatchcase(one.name, wanted)
