"""``agent report FILE``: writes the page of the nodes as the daemon, or without one the store, has
them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.command import Options
from agent.cli.daemon_client import from_daemon, select_nodes
from agent.cli.output import write, write_document
from agent.cli.page_file import check_file, replace_file, write_page
from agent.errors import StoreError
from agent.model.claim import ENDED
from agent.model.names import choose_nodes, number_of, printable
from agent.render.json_report import tree_document

if TYPE_CHECKING:
    from agent.api.record_views import RecordViews
    from agent.store.store import Store

Document = Mapping[str, Any]
SCHEMA = "compute-node-agent/report-file/1"


def write_report_page(conf: cfg.ConfigOpts, options: Options) -> int:
    """Write the page of all nodes, or of those that match ``--node`` by name or uuid. Return the
    exit code.

    :raises ConfigError: the file cannot be written, or the daemon has no such node.
    :raises StoreError: no daemon runs, and the store cannot be read or has no such node.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    path = check_file(options.arguments["file"])
    wanted = options.nodes
    found = (
        None if options.offline else from_daemon(conf, lambda client: _of_daemon(client, wanted))
    )
    source = "daemon" if found is not None else "store"
    if found is not None:
        count, html = found
        replace_file(path, html)
    else:
        from agent.cli.stored import open_stored

        with open_stored(conf) as store:
            nodes = sorted(_of_store(conf, store, wanted), key=lambda node: str(node["name"]))
        count = len(nodes)
        write_page(path, nodes, source="as the store has it")
    if options.as_document:
        document = {"schema": SCHEMA, "source": source, "file": str(path), "nodes": count}
        write_document({**document, "errors": [], "exit_code": 0}, options)
    else:
        shown = number_of(count, "node")
        write(f"{printable(str(path))} shows {shown} as the {source} has it\n")
    return 0


def _of_daemon(client: ApiClient, wanted: Sequence[str]) -> tuple[int, bytes] | None:
    """Return the number of nodes, and the page that the daemon makes of them. None: the daemon has
    not audited any node yet, and knows no more than the store.
    """
    if not (known := list(client.nodes())):
        return None
    # A wrong name is refused here, with the names that there are.
    return len(select_nodes(known, wanted)), client.report_page(wanted)


def _of_store(conf: cfg.ConfigOpts, store: "Store", wanted: Sequence[str]) -> Iterator[Document]:
    """Yield the nodes as the last run left them. What the hypervisor shows is unknown."""
    from agent.api.documents.node_page import NO_RECORDS, allocations_document
    from agent.cli import stored

    trees = list(stored.trees(store))
    chosen, unmatched = choose_nodes(trees, wanted, lambda tree: (tree.uuid, tree.name))
    if unmatched or not chosen:
        raise StoreError(
            f"--node {unmatched[0]}: no such tree in the store"
            if unmatched
            else "no tree in the store",
            f"it has {', '.join(tree.name for tree in trees[:10])}"
            if trees
            else "agent --once puts one there",
        )
    records = {node["uuid"]: node["records"] for node in stored.resources(conf, store)}
    views = stored.record_views(conf, store)
    found = {name: _pages(_view(views, name), name) for name in ("claims", "devices", "migrations")}
    moves = [move for move in found["migrations"] if move["status"] not in ENDED]
    claims, devices = _by_node(found["claims"]), _by_node(found["devices"])
    for tree, shown in zip(chosen, tree_document(chosen)["nodes"], strict=True):
        yield {
            **shown,
            **UNKNOWN,
            **NO_RECORDS,
            "records": records.get(tree.uuid),
            "allocations": allocations_document(tree.consumers),
            "claims": claims[tree.uuid],
            "devices": devices[tree.uuid],
            "migrations": _moves_of(tree.uuid, moves),
        }


UNKNOWN: Document = {
    "driver": None,
    "state": None,
    "operations": (),
    "drift": (),
    "errors": (),
    "audited_at": None,
    "last_good_audit_at": None,
}
"""What only an audit knows."""


def _view(views: "RecordViews", name: str) -> Callable[[Document], Document]:
    lists: Mapping[str, Callable[[Document], Document]] = {
        "claims": views.claims,
        "devices": views.devices,
        "migrations": views.migrations,
    }
    return lists[name]


def _pages(page: Callable[[Document], Document], name: str) -> list[Document]:
    found, marker = [], ""
    while True:
        answer = page({"marker": marker} if marker else {})
        found += answer[name]
        if not (marker := answer["next"] or ""):
            return found


def _by_node(documents: Iterable[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        found[document["node"]].append(document)
    return found


def _moves_of(node: str, moves: Sequence[Document]) -> list[Document]:
    return [move for move in moves if node in (move["source_node"], move["dest_node"])]
