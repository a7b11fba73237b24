"""The frame of a command on Placement: its client, and the one report at its end."""

import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any

from oslo_config import cfg

from agent.bootstrap.fleet import embedded_transport
from agent.cli.command import Options
from agent.cli.output import write, write_document
from agent.errors import AgentError, AlreadyTold, OutputFailed
from agent.model.finding import CHANGED, DONE, FAILED, PARTLY, Problem
from agent.model.mirror import ServerCapabilities
from agent.model.names import printable
from agent.model.report import METHODS
from agent.placement.answers import PlacementAnswer
from agent.placement.client import PlacementClient
from agent.placement.embedded import name_embedded
from agent.placement.exchange import Exchange
from agent.placement.server import check_version
from agent.placement.transport import Transport, connect_http, uses_embedded
from agent.render.document import error_lines, error_rows, problems_of
from agent.render.json_report import request_counts
from agent.render.look import Look, Text, escape_text, look_of, to_string, wrap_line
from agent.render.text import count_with_parts
from agent.store.lock import RunLock


@dataclass(frozen=True, slots=True)
class Write:
    """One request other than a GET."""

    method: str
    path: str
    version: str | None
    body: Any
    status: int | None
    """The status of the answer, ``None`` if the request was not sent."""


def render_work(
    lines: Sequence[str],
    writes: Sequence[Write],
    problems: Sequence[Problem],
    counts: Mapping[str, int],
    look: Look,
    *,
    dry_run: bool,
) -> str:
    """Return the text: the outcome, the requests that write, what failed, and the number of
    requests.
    """
    methods = Counter({method: counts.get(method, 0) for method in METHODS})
    end = ", dry run: nothing was written" if dry_run else ""
    sections = [
        [line for text in lines for line in wrap_line(escape_text(text), look)],
        [line for write in writes for line in _write(write, look)],
        error_lines(problems, look),
        [Text(count_with_parts("request", +methods) + end, "bold")],
    ]
    first, *others = [section for section in sections if section]
    return to_string([*first, *(line for section in others for line in (Text(), *section))], look)


def _write(write: Write, look: Look) -> list[Text]:
    what = f"{write.method} {printable(write.path)}"
    body = "" if write.body is None else f" {json.dumps(write.body, sort_keys=True)}"
    became = "not sent" if write.status is None else str(write.status)
    return wrap_line(
        Text.assemble((what, "bold"), escape_text(body), f" {look.signs.change} {became}"), look
    )


class RecordingExchange(Exchange):
    """An exchange that records every write that was answered.

    In a dry run only GETs are sent, and every write is assumed to succeed. A read
    after such a write still shows the state before it, so a dry run suits only operations that
    decide before they write.
    """

    def __init__(self, transport: Transport, request_id: str, *, dry_run: bool) -> None:
        super().__init__(transport, request_id)
        self.dry_run = dry_run
        self.writes: list[Write] = []

    def send_once(
        self, method: str, path: str, version: str | None, body: Any, timeout: float | None
    ) -> PlacementAnswer:
        """Send or record one request."""
        looks = self.dry_run and method != "GET"
        answer = (
            self._assume_success(method, path, body)
            if looks
            else super().send_once(method, path, version, body, timeout)
        )
        if method != "GET":
            status = None if looks else answer.status
            self.writes.append(Write(method, path, version, body, status))
        return answer

    def _assume_success(self, method: str, path: str, body: Any) -> PlacementAnswer:
        """Return the answer of a Placement that accepts the request."""
        without_body = method == "DELETE" or path.startswith("/allocations")
        status, said = (204, b"") if without_body else (200, json.dumps(body).encode())
        return PlacementAnswer(self.transport.endpoint, method, path, status, said, "no request id")


@dataclass(frozen=True, slots=True)
class PlacementWork:
    """A client of the configured Placement, and what the server offers. In a dry run the client
    sends no writes.
    """

    client: PlacementClient
    exchange: RecordingExchange
    capabilities: ServerCapabilities
    embedded: str
    """The line that says which embedded Placement is used; empty over HTTP."""


@contextmanager
def placement_work(
    conf: cfg.ConfigOpts, options: Options, name: str, *, writes: bool
) -> Iterator[PlacementWork]:
    """Yield the Placement that [placement] names, or the embedded one.

    With ``writes``, the embedded one is locked for this run; a command that only reads gets a copy.
    ``name``: what the report is called, also if the work fails.

    :raises AgentError: Placement cannot be used, or the work fails.
    :raises AlreadyTold: the work failed, and the document with the error and the sent requests was
        written.
    """
    folder, cancelled = Path(conf.store.path), Event()
    looks = options.dry_run or not writes
    with ExitStack() as stack:
        embedded = name_embedded(folder) if uses_embedded(conf, daemon=False) else ""
        if embedded and not looks:
            stack.enter_context(RunLock(folder))
        transport = (
            embedded_transport(conf, cancelled, dry_run=looks)
            if embedded
            else connect_http(conf, cancelled)
        )
        exchange = RecordingExchange(transport, f"req-{uuid.uuid4()}", dry_run=looks)
        client = PlacementClient(exchange)
        capabilities = ServerCapabilities(transport.endpoint, client.max_version())
        check_version(capabilities)
        work = PlacementWork(client, exchange, capabilities, embedded)
        try:
            yield work
        except OutputFailed:
            raise
        except AgentError as error:
            if not options.as_document:
                raise
            raise AlreadyTold(finish(work, options, name, {}, [], [error])) from error


def finish(
    work: PlacementWork,
    options: Options,
    name: str,
    result: Mapping[str, Any],
    lines: Sequence[str],
    errors: Sequence[AgentError] = (),
) -> int:
    """Write the report: ``result`` for tools, ``lines`` for people, ``errors`` beside what was
    done. Return the exit code.
    """
    problems = [problem for error in errors for problem in problems_of(error)]
    writes, requests = work.exchange.writes, work.exchange.counts
    code = _exit_code(work, options, errors)
    if options.as_document:
        document = {
            "schema": f"compute-node-agent/{name}/1",
            "placement": {
                "mode": "embedded" if work.embedded else "http",
                "endpoint": work.capabilities.endpoint,
                "max_version": work.capabilities.max_version,
            },
            "dry_run": options.dry_run,
            "result": result,
            "writes": [asdict(write) for write in writes],
            "requests": request_counts(requests),
            "errors": error_rows(problems),
            "exit_code": code,
        }
        write_document(document, options)
    else:
        look = look_of(sys.stdout)
        if work.embedded:
            lines_of_it = wrap_line(escape_text(work.embedded, "italic"), look)
            write(to_string([*lines_of_it, Text()], look))
        write(render_work(lines, writes, problems, requests, look, dry_run=options.dry_run))
    return code


def _exit_code(work: PlacementWork, options: Options, errors: Sequence[AgentError]) -> int:
    # A delete that found nothing (404) is no change.
    changed = any(sent.status in (None, 200, 204) for sent in work.exchange.writes)
    if errors:
        return PARTLY if changed else FAILED
    return CHANGED if changed and options.detailed_exitcode else DONE
