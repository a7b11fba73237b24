"""The way from a command to the daemon, if one runs; and lists of records for people and tools,
from the daemon, or from the store if none runs.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from oslo_config import cfg

from agent.api.client import ApiClient, ApiUnreachable
from agent.cli.command import Options
from agent.cli.output import answer, write, write_document
from agent.conf.service import SYSTEM_SOCKET, default_socket
from agent.errors import AgentError, ConfigError, ConfigErrors, StoreError
from agent.model.finding import DONE, PARTLY, Problem
from agent.model.names import choose_nodes, name_first, printable
from agent.render.document import Document, error_lines, error_rows
from agent.render.look import Look, Text, look_of, to_string

if TYPE_CHECKING:
    from agent.api.record_views import RecordViews
    from agent.render.json_report import StoredTree
    from agent.store.store import Store


Answer = TypeVar("Answer")
Node = TypeVar("Node")


def client(conf: cfg.ConfigOpts) -> ApiClient:
    """Return a client of the daemon of ``conf``. If the user's own default socket does not exist,
    it is the system's daemon.
    """
    path = Path(conf.api.socket)
    return ApiClient(
        Path(SYSTEM_SOCKET) if str(path) == default_socket() and not path.exists() else path
    )


def select_nodes(
    nodes: Sequence[Document], wanted: Sequence[str], place: str = "the daemon"
) -> Sequence[Document]:
    """Return the nodes that ``--node`` names, by name, pattern or uuid; all of them if it names
    none.

    :raises ConfigErrors: a name matches no node.
    """
    return _select(nodes, wanted, place, lambda node: (node["uuid"], node["name"]))


def select_trees(
    trees: Sequence["StoredTree"], wanted: Sequence[str], place: str
) -> Sequence["StoredTree"]:
    """Return the trees of the nodes that ``--node`` names, as :func:`select_nodes`.

    :raises ConfigErrors: a name matches no node.
    :raises StoreError: there is none.
    """
    if chosen := _select(trees, wanted, place, lambda tree: (tree.uuid, tree.name)):
        return chosen
    raise StoreError(f"no tree in {place}", "put one there: agent --once")


def _select(
    nodes: Sequence[Node],
    wanted: Sequence[str],
    place: str,
    identify: Callable[[Node], tuple[str, str]],
) -> Sequence[Node]:
    chosen, unmatched = choose_nodes(nodes, wanted, identify)
    if unmatched:
        there = name_first([printable(identify(node)[1]) for node in nodes]) or "none yet"
        raise ConfigErrors(
            [
                ConfigError(
                    f"--node {printable(name)}: {place} has no such node", f"it has {there}"
                )
                for name in unmatched
            ]
        )
    return chosen


def from_daemon(conf: cfg.ConfigOpts, ask: Callable[[ApiClient], Answer]) -> Answer | None:
    """Return what ``ask`` gets from the daemon; None if none runs.

    :raises ApiProblem: the daemon refuses.
    :raises ApiUnreachable: the user may not connect, or the answer was lost.
    """
    if not conf.api.socket:
        return None
    try:
        return ask(client(conf))
    except ApiUnreachable as error:
        if error.data["listening"]:
            raise
        return None


class RecordDamaged(AgentError):
    """A record contradicts itself or was written by a newer agent; the others are shown.
    Remedy: correct or remove the record, or use the newer agent.
    """

    code = "record.damaged"


Render = Callable[[Sequence[Document], Look], list[Text]]
Page = Callable[[Mapping[str, str]], Document]


@dataclass(frozen=True, slots=True)
class RecordList:
    """A list of records, and where it comes from."""

    source: Literal["daemon", "store"]
    documents: Sequence[Document]
    damaged: Sequence[str] = ()
    """One line for each damaged record."""


def ask_daemon_or_store(
    conf: cfg.ConfigOpts,
    options: Options,
    daemon: Callable[[ApiClient], Answer],
    store: Callable[["Store"], Answer],
) -> tuple[Answer, bool]:
    """Return what ``daemon`` gets from the daemon, or, if none runs or with ``--offline``, what
    ``store`` reads from the store; and whether it was the store.

    :raises StoreError: no daemon runs, and the store cannot be read.
    :raises ApiProblem, ApiUnreachable: a daemon runs, but does not answer.
    """
    found = None if options.offline else from_daemon(conf, daemon)
    if found is not None:
        return found, False
    from agent.cli.without_daemon import open_stored

    with open_stored(conf) as opened:
        return store(opened), True


def read_list(
    conf: cfg.ConfigOpts,
    options: Options,
    name: str,
    stored: Callable[["RecordViews"], Page],
    query: Mapping[str, str],
) -> RecordList:
    """Return all pages of the list ``name``, which is ``stored`` in the store.

    :raises AgentError: as :func:`ask_daemon_or_store`.
    """

    def of_store(store: "Store") -> list[Document]:
        from agent.cli.without_daemon import record_views

        return read_pages(query, stored(record_views(conf, store)))

    pages, offline = ask_daemon_or_store(
        conf,
        options,
        lambda client: list(client.pages(f"/v1/{name}", query)),
        of_store,
    )
    return RecordList(
        "store" if offline else "daemon",
        [document for page in pages for document in page[name]],
        [line for page in pages for line in page["damaged"]],
    )


def show_list(options: Options, name: str, found: RecordList, render: Render) -> int:
    """Write a list under its name. Return the exit code."""
    problems = [
        Problem(RecordDamaged.code, line, "correct or remove the record") for line in found.damaged
    ]
    code = PARTLY if problems else DONE
    if options.as_document:
        document = {
            "schema": f"compute-node-agent/{name}/1",
            "source": found.source,
            name: list(found.documents),
        }
        write_document({**document, "errors": error_rows(problems), "exit_code": code}, options)
        return code
    look = look_of(sys.stdout)
    lines = (
        [Text("the daemon was not asked; this is what the store knows", "yellow")]
        if found.source == "store"
        else []
    )
    write(
        to_string(
            [
                *lines,
                *(render(found.documents, look) or [Text(f"no {name}", "dim")]),
                *error_lines(problems, look),
            ],
            look,
        )
    )
    return code


def show_record(options: Options, name: str, document: Document, render: Render) -> int:
    """Write one record under its name. Return the exit code."""
    look = look_of(sys.stdout)
    done = (
        [Text("it was done before; nothing has changed", "dim")] if document.get("repeated") else []
    )
    text = to_string([*render([document], look), *done], look)
    return answer(options, f"compute-node-agent/{name}/1", {name: document}, text)


def read_pages(query: Mapping[str, str], page: Page) -> list[Document]:
    """Return all pages of a list."""
    pages = [page(query)]
    while marker := pages[-1]["next"]:
        pages.append(page({**query, "marker": marker}))
    return pages
