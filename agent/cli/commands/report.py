"""``agent report FILE``: writes the page of the nodes as the daemon, or without one the store, has
them. The page of ``--report FILE`` too, and the file of both.
"""

import os
import secrets
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg

from agent.api.client import ApiClient
from agent.cli.command import Commands, Options
from agent.cli.daemon_client import Page, from_daemon, read_pages, select_nodes, select_trees
from agent.cli.output import answer
from agent.errors import ConfigError
from agent.model.names import number_of, printable
from agent.model.node_records import ENDED
from agent.model.report import NodeReport, Report
from agent.render.document import Document, error_rows
from agent.render.json_report import node_document, tree_document
from agent.version import agent_version

if TYPE_CHECKING:
    from agent.api.node_documents import JsonObject
    from agent.audit.fleet import Fleet
    from agent.store.store import Store
    from agent.tracker.node_state import NodeState
    from agent.tracker.tracker import Tracker

SCHEMA = "compute-node-agent/report-file/1"


def write_report_page(conf: cfg.ConfigOpts, options: Options) -> int:
    """Write the page of all nodes, or of those that match ``--node`` by name or uuid. Return the
    exit code.

    :raises ConfigError, ConfigErrors: the file cannot be written, or there is no such node.
    :raises StoreError: no daemon runs, and the store cannot be read or has no tree.
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
        from agent.cli.without_daemon import open_stored

        with open_stored(conf) as store:
            nodes = sorted(_of_store(conf, store, wanted), key=lambda node: str(node["name"]))
        count = len(nodes)
        write_page(path, nodes, source="as the store has it")
    document = {"source": source, "file": str(path), "nodes": count}
    text = f"{printable(str(path))} shows {number_of(count, 'node')} as the {source} has it\n"
    return answer(options, SCHEMA, document, text)


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
    from agent.api.node_documents import NO_RECORDS, allocations_document
    from agent.cli import without_daemon
    from agent.render.status import found_since

    stored = [one for one in without_daemon.recorded_trees(conf, store) if one[0].endpoint]
    trees, states = [tree for tree, _ in stored], {tree.uuid: state for tree, state in stored}
    chosen = select_trees(trees, wanted, "the store")
    found = without_daemon.last_found(conf, store)
    views = without_daemon.record_views(conf, store)
    moves = [move for move in _all(views.migrations, "migrations") if move["status"] not in ENDED]
    claims, devices = (
        _by_node(_all(views.claims, "claims")),
        _by_node(_all(views.devices, "devices")),
    )
    for tree, shown in zip(chosen, tree_document(chosen)["nodes"], strict=True):
        state = states[tree.uuid]
        node = without_daemon.drift_of(tree, found.get(tree.uuid))
        yield {
            **shown,
            **node,
            **NO_RECORDS,
            "drift": node["drift"] or (),
            "operations": (),
            "hint": found_since(node),
            "records": None if state is None else without_daemon.records_document(state),
            "allocations": allocations_document(tree.consumers),
            "claims": claims[tree.uuid],
            "devices": devices[tree.uuid],
            "migrations": [
                move for move in moves if tree.uuid in (move["source_node"], move["dest_node"])
            ],
        }


def _all(page: Page, name: str) -> list[Document]:
    return [document for found in read_pages({}, page) for document in found[name]]


def _by_node(documents: Iterable[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        found[document["node"]].append(document)
    return found


# Every page has it among its first bytes.
MARK = b'<meta name="generator" content="compute-node-agent">'
HEAD_SIZE = 1024
FILE_MODE = 0o600


def check_file(file: str) -> Path:
    """Return the path of a page that can be written. Nothing is written yet.

    :raises ConfigError: it is a folder, a device or a file with something else than a page, or its
        folder does not exist or cannot be written.
    """
    path, where = Path(file), f"report {printable(file)}"
    if file in ("", "-"):
        raise ConfigError(f"{where}: a page is written into a file", "name a file")
    try:
        _check_present(path, where)
        folder = Path(os.path.realpath(path)).parent
        if file.endswith("/") or path.is_dir():
            raise ConfigError(f"{where}: it is a folder", "name a file")
        if not folder.is_dir():
            raise ConfigError(f"{where}: there is no folder {printable(str(folder))}", "create it")
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror or error}", "name another file") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(
            f"{where}: the folder {printable(str(folder))} cannot be written", "name another"
        )
    return path


def _check_present(path: Path, where: str) -> None:
    """Check that what is at ``path`` may be replaced: nothing, or a file that is empty or a page.

    :raises ConfigError: it is something else.
    :raises OSError: it cannot be looked at.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode) or _leads_to_open_file(path):
        # A page replaces the file: root would take the machine its /dev/null.
        raise ConfigError(f"{where}: it is no regular file", "name another")
    with path.open("rb") as opened:
        head = opened.read(HEAD_SIZE)
    if head and MARK not in head:
        raise ConfigError(
            f"{where}: the file has something else than a page of the agent",
            "name another file, or delete this one first",
        )


def _leads_to_open_file(path: Path) -> bool:
    """Return whether the path is a name for an open file of this process, as /dev/stdout is one
    also where the output goes to a file.
    """
    while path.is_symlink():
        folder = os.path.realpath(path.parent)
        if folder == "/dev" or folder.startswith("/proc/"):
            return True
        path = Path(folder) / path.readlink()
    return False


def write_page(
    path: Path,
    nodes: Sequence[Document],
    *,
    source: str,
    placement: str | None = None,
    errors: Sequence[Document] = (),
) -> None:
    """Write the page of nodes, as :func:`agent.render.page.page_of` takes them. A page that is
    there already is replaced only by a whole one.

    :raises ConfigError: the file cannot be written.
    """
    # Imported here, because only pages need the template engine.
    from agent.render.page import page_of
    from agent.render.page_html import render_page

    page = page_of(
        nodes,
        source=source,
        made_at=time.time(),
        version=agent_version(),
        placement=placement or "",
        errors=errors,
    )
    replace_file(path, render_page(page).encode("utf-8", "backslashreplace"))


def replace_file(path: Path, content: bytes) -> None:
    """Put the page ``content`` where ``path``, which may be a symbolic link, leads.

    :raises ConfigError: the file cannot be written.
    """
    file = Path(os.path.realpath(path))
    finished = file.with_name(f".report-{secrets.token_hex(8)}")
    try:
        try:
            with finished.open("xb") as opened:
                # Who holds what of a host is for its operators.
                os.fchmod(opened.fileno(), FILE_MODE)
                _take_rights(opened.fileno(), file)
                opened.write(content)
            finished.replace(file)
        except BaseException:
            finished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"report {printable(str(path))} cannot be written: {error.strerror or error}",
            "check the path and the space on its disk",
        ) from error


def _take_rights(descriptor: int, former: Path) -> None:
    """Give an open file the mode, and as far as allowed the owner, of the file that it replaces."""
    with suppress(FileNotFoundError):
        status = former.stat()
        with suppress(PermissionError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


def write_audit_page(path: Path, report: Report, fleet: "Fleet") -> None:
    """Write the page of an audit, while its fleet is open.

    :raises ConfigError: the file cannot be written.
    """
    tracker, states = fleet.context.tracking.tracker, fleet.states()
    source = "audit" if not report.observes else "audit that only observes"
    if report.dry_run and not report.observes:
        source = "dry run, nothing was written"
    write_page(
        path,
        [_audited_node(node, states.get(node.uuid), tracker) for node in report.nodes],
        source=source,
        placement=report.endpoint,
        errors=error_rows(report.errors),
    )


def _audited_node(
    report: NodeReport, state: "NodeState | None", tracker: "Tracker"
) -> "JsonObject":
    # Imported here, because the daemon makes its pages itself.
    from agent.api.node_documents import node_page_document

    now = time.time() if report.seconds else None
    node = {
        **node_document(report),
        "audited_at": now,
        "last_good_audit_at": now if report.state in ("in-sync", "changed") else None,
        "hint": report.hint,
    }
    return node_page_document(node, report.consumers, state, tracker)


RUN: Commands = {
    ("report",): write_report_page,
}
