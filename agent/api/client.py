"""A client of the local API. Answers are checked as far as a client relies on them: whatever
listens at a socket may be another program, or a daemon of another version.
"""

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import quote, urlencode

from agent.api.socket_file import UnixConnection
from agent.errors import AgentError
from agent.model.names import printable

Document = Mapping[str, Any]


class AnswerUnknown(AgentError):
    """What answers at the socket is no agent, or an agent of another version.
    Remedy: name the socket of an agent; use a command of the daemon's version, and restart the
    daemon after an upgrade.
    """

    code = "api.answer_unknown"

    def __init__(self, asked: str, what: str) -> None:
        super().__init__(
            f"{asked}: the answer {what}",
            (
                "is that the [api] socket of an agent? use a command of the daemon's version, and "
                "restart the daemon after an upgrade"
            ),
        )


class _Fields(dict[str, Any]):
    """A JSON object of an answer. Asked for a field that it does not have, it raises
    :class:`AnswerUnknown`.
    """

    __slots__ = ("_asked",)

    def __init__(self, fields: Mapping[str, Any], asked: str) -> None:
        super().__init__(fields)
        self._asked = asked

    def __missing__(self, name: str) -> NoReturn:
        raise AnswerUnknown(self._asked, f"has no field {name}")


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer with a status below 400."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    asked: str = ""
    """Who was asked for what, for messages."""

    @property
    def document(self) -> Document:
        """The JSON object. Asked for a field that it does not have, it raises
        :class:`AnswerUnknown`, as does each object in it.

        :raises AnswerUnknown: the answer is no JSON object.
        """
        try:
            found = json.loads(self.body, object_hook=lambda fields: _Fields(fields, self.asked))
        except (ValueError, RecursionError) as error:
            raise AnswerUnknown(self.asked, "is no JSON") from error
        if not isinstance(found, Mapping):
            raise AnswerUnknown(self.asked, "is no JSON object")
        return found

    def objects(self, name: str) -> Sequence[Document]:
        """Return the JSON objects in the list that is the field ``name``.

        :raises AnswerUnknown: there is no such list.
        """
        found: Sequence[Document] = self.page(name, marked=False)[name]
        return found

    def page(self, name: str, *, marked: bool = True) -> Document:
        """Return the JSON object, one page of the list that is the field ``name``. A page that is
        ``marked`` has the marker of the next one, or none, in the field ``next``.

        :raises AnswerUnknown: it is no such page.
        """
        found = self.document
        documents = found[name]
        if not isinstance(documents, list) or not all(
            isinstance(document, Mapping) for document in documents
        ):
            raise AnswerUnknown(self.asked, f"has no list of objects in the field {name}")
        if marked and not isinstance(found["next"], str | None):
            raise AnswerUnknown(self.asked, "has no text in the field next")
        return found

    @property
    def problem(self) -> Document:
        """The problem document of a refusal, whose ``errors`` are objects and whose ``reasons`` are
        texts. If there is none, one is made up.
        """
        try:
            found = dict(self.document)
        except AnswerUnknown:
            found = {}
        if "detail" not in found:
            return {
                "status": self.status,
                "detail": f"the agent answered {self.status}, and no problem document",
                "remedy": "look at the agent's log",
            }
        parts = {
            name: [part for part in value if isinstance(part, kind)]
            for name, kind in (("errors", Mapping), ("reasons", str))
            if isinstance(value := found.pop(name, None), list)
        }
        return {**found, **parts, "status": self.status}


TIMEOUT = 30.0
# In seconds. A reload restarts the driver, which may take long.
RELOAD_TIMEOUT = 300.0
# In seconds: the longest wait that one request asks for.
LONGEST_WAIT = 60.0
PAUSE = 0.2

MoveStep = Literal["confirm", "revert", "abort", "finish"]


class ApiUnreachable(AgentError):
    """No agent answers at the socket.

    Remedy: start the agent, or use ``--offline``; the user must be in the socket's group.
    """

    code = "api.unreachable"


class ApiProblem(AgentError):
    """The agent answered with a problem document.

    ``code`` is the problem's code, ``problem`` the whole document.
    """

    def __init__(self, problem: Document) -> None:
        super().__init__(str(problem.get("detail", "")), str(problem.get("remedy", "")))
        self.code = str(problem.get("code", "api.problem"))
        self.problem = problem

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self.problem.get("status", 500))

    @property
    def parts(self) -> Sequence[Document]:
        """The single errors of a problem that has several; else empty."""
        found: Sequence[Document] = self.problem.get("errors", ())
        return found


class ApiClient:
    """A client of the agent that listens at ``socket``. A method makes one request unless it says
    otherwise.

    ``timeout`` in seconds.

    :raises ApiProblem: from every method: the agent refused.
    :raises ApiUnreachable: from every method: no agent answers.
    :raises AnswerUnknown: from every method: what answers is no agent of this version.
    """

    def __init__(self, socket: Path, timeout: float = TIMEOUT) -> None:
        self._socket, self._timeout = socket, timeout

    # --- state ------------------------------------------------------------------------------------

    def health(self) -> str:
        """Return the agent's status line; raise a problem if the process does not work."""
        return str(self._get("/healthz")["status"])

    def readiness(self) -> str:
        """Return the agent's status line; raise a problem unless all nodes are well."""
        return str(self._get("/readyz")["status"])

    def metrics(self) -> str:
        """Return the metrics, in Prometheus' text format."""
        return self.request("GET", "/metrics").body.decode()

    def nodes(self) -> Iterator[Document]:
        """Yield a summary of each node. One request for each thousand."""
        return self._list_pages("/v1/nodes", "nodes")

    def node(self, uuid: str) -> Document:
        """Return a node as its last audit left it."""
        return self._get(f"/v1/nodes/{quote(uuid, safe='')}")

    def tree(self, uuid: str) -> Document:
        """Return a node's tree: ``name``, ``uuid``, ``endpoint``, ``tree``."""
        return self._get(f"/v1/nodes/{quote(uuid, safe='')}/tree")

    def report_page(self, nodes: Sequence[str] = ()) -> bytes:
        """Return the page in HTML of all nodes, or of those with these names, patterns or uuids."""
        target = f"/v1/report?{urlencode({'node': nodes}, doseq=True)}"
        return self.request("GET", target, wait=LONGEST_WAIT).body

    # --- audits -----------------------------------------------------------------------------------

    def request_audit(self, nodes: Sequence[str] = (), *, dry_run: bool = False) -> str:
        """Request an audit of all nodes, or of the given names or uuids. Return the audit's id."""
        body = {
            **({"nodes": list(nodes)} if nodes else {}),
            **({"dry_run": True} if dry_run else {}),
        }
        answer = self.request("POST", "/v1/audits", body)
        return str(answer.document["id"])

    def audit_report(self, audit_id: str, wait: float = 0) -> Document | None:
        """Return the report of an audit; None if there is none after ``wait`` seconds. Makes as
        many requests as that takes.
        """
        end = time.monotonic() + wait
        while True:
            left = max(0, min(LONGEST_WAIT, end - time.monotonic()))
            answer = self.request(
                "GET",
                f"/v1/audits/{quote(audit_id, safe='')}",
                headers={"Prefer": f"wait={round(left)}"},
                wait=left,
            )
            if answer.status == 200:
                return answer.document
            if time.monotonic() >= end:
                return None
            # The agent may answer at once instead of waiting.
            time.sleep(PAUSE)

    def reload(self) -> str:
        """Have the agent reload its configuration. Return the agent's status line afterwards."""
        return str(self.request("POST", "/v1/reload", wait=RELOAD_TIMEOUT).document["status"])

    # --- claims of guests and devices -------------------------------------------------------------

    def claims(self, **query: str) -> Iterator[Document]:
        """Yield the open claims, of one ``node`` or ``instance`` if given. A request a thousand."""
        return self._list_pages("/v1/claims", "claims", **query)

    def claim(self, claim: str) -> Document:
        """Return a claim, open or released."""
        return self._get(f"/v1/claims/{quote(claim, safe='')}")

    def create_claim(self, wanted: Document) -> Document:
        """Claim a node's resources for a new guest.

        ``repeated`` in the answer says whether the claim existed before.
        """
        return self._post("/v1/claims", wanted)

    def abort_claim(self, claim: str) -> Document:
        """Release a claim. Harmless when repeated."""
        return self._delete(f"/v1/claims/{quote(claim, safe='')}")

    def devices(self) -> Iterator[Document]:
        """Yield the host's devices. One request for each thousand."""
        return self._list_pages("/v1/devices", "devices")

    def report_cleaned_device(self, address: str, node: str | None = None) -> Document:
        """Report that a device was cleaned: guests can have it again. Harmless when repeated.

        ``node``: the node's name or uuid; needed if several nodes have such a device.
        """
        return self._post(
            "/v1/devices/cleaned",
            {"address": address, **({"node": node} if node is not None else {})},
        )

    def create_device_claim(self, wanted: Document) -> Document:
        """Claim devices for an existing guest."""
        return self._post("/v1/devices/claims", wanted)

    def allocate_devices(self, claim: str) -> Document:
        """Report that the guest uses the devices of a claim. Harmless when repeated."""
        return self._post(f"/v1/devices/claims/{quote(claim, safe='')}/allocate")

    def release_device_claim(self, claim: str) -> Document:
        """Release a claim of devices. Harmless when repeated."""
        return self._delete(f"/v1/devices/claims/{quote(claim, safe='')}")

    def release_devices(self, instance: str, state: Literal["claimed", "allocated"]) -> int:
        """Release the devices that an instance has in that state beside its claim. Return their
        number.
        """
        query = urlencode({"instance": instance, "state": state})
        return int(self._delete(f"/v1/devices/claims?{query}")["released"])

    # --- moves ------------------------------------------------------------------------------------

    def create_move(self, wanted: Document) -> Document:
        """Claim a node's resources for a guest that moves or is resized."""
        return self._post("/v1/moves", wanted)

    def move(self, move: str) -> Document:
        """Return a move: ``id``, ``migration`` and ``claims``."""
        return self._get(f"/v1/moves/{quote(move, safe='')}")

    def report_progress(self, move: str, status: str) -> Document:
        """Report the status that a move has reached. Harmless when repeated."""
        return self.request(
            "PATCH", f"/v1/moves/{quote(move, safe='')}", {"status": status}
        ).document

    def drop_half(self, move: str, half: Literal["old", "new"]) -> Document:
        """Release one half of a move, and nothing else. Harmless when repeated."""
        return self._post(f"/v1/moves/{quote(move, safe='')}/drop", {"half": half})

    def take_move(self, move: str, step: MoveStep) -> Document:
        """Confirm, revert, abort or finish a move. Harmless when repeated."""
        return self._post(f"/v1/moves/{quote(move, safe='')}/{step}")

    def migrations(self) -> Iterator[Document]:
        """Yield the migrations from, to and on the host, ended ones included. One request for each
        thousand.
        """
        return self._list_pages("/v1/migrations", "migrations")

    # --- instances --------------------------------------------------------------------------------

    def instances(self) -> Iterator[Document]:
        """Yield the host's instances. One request for each thousand."""
        return self._list_pages("/v1/instances", "instances")

    def instance(self, uuid: str) -> Document:
        """Return an instance. An update has to name its ``version``."""
        return self._get(f"/v1/instances/{quote(uuid, safe='')}")

    def update_instance(self, uuid: str, version: int, changes: Document) -> Document:
        """Report an instance's new ``vm_state``, ``task_state``, ``deleted``, ``hidden`` or
        ``image_properties``. Return the instance.

        :raises ApiProblem: with status 412: ``version`` is not the record's last version.
        """
        return self.request(
            "PATCH", f"/v1/instances/{quote(uuid, safe='')}", changes, {"If-Match": f'"{version}"'}
        ).document

    def remove_allocation(
        self, uuid: str, scope: Literal["node", "all"], node: str | None = None
    ) -> None:
        """Remove an instance's allocation in Placement, of one node of this agent or everywhere.
        Harmless when repeated.

        ``node``: the node; needed if the instance has allocations of several nodes.
        """
        query = {"scope": scope, **({"node": node} if node is not None else {})}
        self.request(
            "DELETE", f"/v1/instances/{quote(uuid, safe='')}/allocation?{urlencode(query)}"
        )

    def guests(self) -> Sequence[Document]:
        """Return the guests that the hypervisor shows, by node: ``name``, ``uuid``, ``guests``,
        ``errors``.
        """
        return self.request("GET", "/v1/guests").objects("nodes")

    def import_guests(
        self, nodes: Sequence[str] = (), *, dry_run: bool = False, again: Sequence[str] = ()
    ) -> Sequence[Document]:
        """Write records for the guests without any, of all nodes or of the given names or uuids;
        also for those of ``again``, whose records say that they are deleted or elsewhere. Harmless
        when repeated.

        Returns the guests by node, as :meth:`guests`.
        """
        wanted = {**({"nodes": list(nodes)} if nodes else {}), "dry_run": dry_run}
        if again:
            wanted["again"] = list(again)
        return self.request("POST", "/v1/guests/import", wanted).objects("nodes")

    def forget_guest(self, instance: str) -> Document:
        """End the record of a guest that is gone for good, and return it. Harmless if repeated."""
        return self._delete(f"/v1/guests/{quote(instance, safe='')}")

    def report_build(self, node: str, result: Literal["failed", "succeeded"]) -> int:
        """Report the result of a build on the node. Return how many builds failed in a row."""
        return int(
            self._post(f"/v1/nodes/{quote(node, safe='')}/builds", {"result": result})[
                "failed_builds"
            ]
        )

    # --- requests ---------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        wait: float = 0,
    ) -> ApiAnswer:
        """Send one request.

        ``wait``: seconds that the agent may take beyond the client's timeout.
        """
        connection = UnixConnection(self._socket, self._timeout + wait)
        try:
            content = {} if body is None else {"Content-Type": "application/json"}
            connection.request(
                method,
                target,
                None if body is None else json.dumps(body),
                {**content, **(headers or {})},
            )
            response = connection.getresponse()
            answer = ApiAnswer(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
                f"{printable(str(self._socket))}: {method} {printable(target)}",
            )
        except (OSError, http.client.HTTPException) as error:
            self._lost(error)
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiProblem(answer.problem)
        return answer

    def pages(self, target: str, query: Mapping[str, str]) -> Iterator[Document]:
        """Yield the pages of a list: the documents of each, and in ``next`` the marker of the next
        page. One request for each.
        """
        asked: set[str] = set()
        marked = query
        while True:
            answer = self.request("GET", f"{target}?{urlencode(marked)}" if marked else target)
            page = answer.page(target.rpartition("/")[2])
            yield page
            if not (marker := page["next"]):
                return
            if marker in asked:
                raise AnswerUnknown(answer.asked, "leads to a page that was there before")
            asked.add(marker)
            marked = {**query, "marker": marker}

    def _get(self, target: str) -> Document:
        return self.request("GET", target).document

    def _post(self, target: str, body: Document | None = None) -> Document:
        return self.request("POST", target, body).document

    def _delete(self, target: str) -> Document:
        return self.request("DELETE", target).document

    def _list_pages(self, target: str, name: str, **query: str) -> Iterator[Document]:
        for page in self.pages(target, query):
            yield from page[name]

    def _lost(self, error: Exception) -> NoReturn:
        where = printable(str(self._socket))
        if isinstance(error, PermissionError):
            reason, remedy = (
                "you may not connect to it",
                "be root, or a member of the socket's group",
            )
        elif isinstance(error, FileNotFoundError | ConnectionRefusedError):
            reason, remedy = "no agent listens there", "start the agent, or name its [api] socket"
        else:
            reason, remedy = (
                f"the answer did not come: {printable(str(error)) or type(error).__name__}",
                "look at the agent's log",
            )
        raise ApiUnreachable(
            f"{where}: {reason}",
            remedy,
            listening=not isinstance(error, FileNotFoundError | ConnectionRefusedError),
        ) from error
