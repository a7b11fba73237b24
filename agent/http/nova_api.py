"""The client of nova's API: what nova knows of the servers and the migrations of a host, and of its
nova-compute. Only reads.
"""

import email.utils
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from requests import Response

from agent.conf.service import nova_is_asked
from agent.deadline import within
from agent.errors import AgentError
from agent.http.session import service_adapter
from agent.model.names import ConsumerUuid, is_uuid, masked, normal_uuid, printable
from agent.model.nova_answers import NovaAnswers, NovaMigration, NovaServer, NovaService

VERSION = "2.59"
"""The microversion of every request: the first that lists migrations with their uuids."""
_PAGE = 1000
# Pages of the servers of one host, and of its newest migrations; more are not read.
_MAX_PAGES = 20
# Servers that are asked for one by one.
_MAX_SINGLE = 20
_LONGEST = 200
"""Characters of an answer that a message quotes."""
_HOST = "OS-EXT-SRV-ATTR:host"
_OTHER_SERVICE = "check that [nova] endpoint_override or the catalog names nova, Queens or later"
_REMEDIES = {
    401: "check the credentials in section [nova]",
    403: "give the account in [nova] the role admin: nova asks for it to list all servers",
    404: _OTHER_SERVICE,
    406: _OTHER_SERVICE,
}

Document = Mapping[str, Any]


class NovaNotAsked(AgentError):
    """nova's API did not give a usable answer.
    Remedy: see to ``[nova]`` and nova's API; everything else is reported as without nova.
    """

    code = "nova.not-asked"


class NovaApi:
    """nova's API at one endpoint. Threads may share it. Every question takes at most ``seconds``,
    whatever the number of its requests.
    """

    def __init__(self, adapter: Adapter, seconds: float) -> None:
        self._adapter, self._seconds = adapter, seconds

    def answers(
        self, host: str, consumers: Iterable[ConsumerUuid], guests: Collection[ConsumerUuid] = ()
    ) -> NovaAnswers:
        """Return what nova knows of ``consumers`` of ``host``. ``guests``: those that the
        hypervisor shows.

        :raises NovaNotAsked: an answer is missing or not usable.
        """
        wanted = {uuid for uuid in consumers if is_uuid(uuid)}
        with within(self._seconds):
            here = self._servers(host)
            servers = {uuid: here[uuid] for uuid in wanted & here.keys()}
            left = wanted - servers.keys()
            if not left:
                return NovaAnswers(servers)
            migrations, complete = self._migrations(host, left)
            # The servers of migrations anew: a move that began after the list was read would look
            # as if its server did nothing.
            movers = {found.server for found in migrations.values() if not found.over}
            unknown = set()
            for uuid in [*sorted(movers), *sorted(left - migrations.keys() - movers)][:_MAX_SINGLE]:
                server = self._server(uuid)
                if server is not None:
                    servers[uuid] = server
                elif complete or uuid in movers:
                    unknown.add(uuid)
            if unknown and guests and here.keys().isdisjoint(guests):
                self._check_whole(host, min(guests))
        return NovaAnswers(servers, migrations, frozenset(unknown))

    def service(self, host: str) -> NovaService | None:
        """Return the record of nova-compute on ``host``; None if there is none.

        :raises NovaNotAsked: the answer is missing or not usable.
        """
        what = "/os-services"
        with within(self._seconds):
            answer = self._get(what, {"host": host, "binary": "nova-compute"})
        for service in _entries(_document(answer, what), "services", what):
            if service.get("host") == host and service.get("binary") == "nova-compute":
                updated_at = _text_or_none(service, "updated_at", what)
                return NovaService(
                    _text(service, "state", what),
                    _text(service, "status", what),
                    service.get("forced_down") is True,
                    updated_at,
                    _age(updated_at, answer),
                )
        return None

    # --- helpers ----------------------------------------------------------------------------------

    def _servers(self, host: str) -> dict[ConsumerUuid, NovaServer]:
        """Return the servers of ``host``, by uuid."""
        query = {"all_tenants": "1", "host": host}
        found: dict[ConsumerUuid, NovaServer] = {}
        for page in self._pages("/servers/detail", "servers", "id", query):
            for entry in page:
                server = _server(entry, "/servers/detail")
                # nova leaves out filters that the account may not use.
                if server.host == host:
                    found[ConsumerUuid(str(entry["id"]))] = server
        return found

    def _migrations(
        self, host: str, wanted: set[ConsumerUuid]
    ) -> tuple[dict[ConsumerUuid, NovaMigration], bool]:
        """Return the migrations of ``wanted`` that begin or end at ``host``, and whether all of its
        migrations were looked through.
        """
        what, found, pages = "/os-migrations", dict[ConsumerUuid, NovaMigration](), 0
        for page in self._pages(what, "migrations", "uuid", {"host": host}):
            pages += 1
            for migration in page:
                uuid = ConsumerUuid(str(migration["uuid"]))
                if uuid in wanted:
                    found[uuid] = NovaMigration(
                        _uuid(migration, "instance_uuid", what),
                        _text_or_none(migration, "source_compute", what),
                        _text_or_none(migration, "dest_compute", what),
                        _text(migration, "status", what),
                    )
            if found.keys() == wanted:
                break
        return found, pages < _MAX_PAGES

    def _check_whole(self, host: str, guest: ConsumerUuid) -> None:
        """Check that nova leaves out nothing of ``host``, of which it lists no guest: while the
        database of a cell is away, lists lack what is in it.

        :raises NovaNotAsked: nova cannot say where the guest is, or it is on the host.
        """
        server = self._server(guest)
        if server is not None and server.host == host:
            raise NovaNotAsked(
                f"nova GET /servers/detail: it lacks server {guest} of this host",
                "see the log of nova's API: a cell may be down",
            )

    def _server(self, uuid: ConsumerUuid) -> NovaServer | None:
        """Return one server; None if nova itself answers that it does not exist."""
        what = f"/servers/{quote(uuid, safe='')}"
        answer = self._get(what)
        if answer.status_code == 404 and "itemNotFound" in _json(answer):
            return None
        server = _document(answer, what).get("server")
        if not isinstance(server, Mapping):
            raise _unusable(answer, what)
        return _server(server, what)

    def _pages(
        self, what: str, name: str, key: str, query: Mapping[str, str]
    ) -> Iterator[list[Document]]:
        """Yield the pages of a list, at most ``_MAX_PAGES``; ``key``: what marks an entry."""
        seen, marker = set[str | None](), dict[str, str]()
        for _ in range(_MAX_PAGES):
            answer = self._get(what, {**query, "limit": str(_PAGE), **marker})
            document = _document(answer, what)
            page = _entries(document, name, what)
            keys = [entry.get(key) for entry in page]
            valid = all(isinstance(found, str) and is_uuid(found) for found in keys)
            if not valid or not seen.isdisjoint(keys):
                raise _unusable(answer, what)
            seen.update(keys)
            yield page
            # The link to the next page is not followed, because behind a proxy it may name a host
            # that only nova knows.
            if not page or not document.get(f"{name}_links"):
                return
            marker = {"marker": str(page[-1][key])}

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Response:
        url = path + (f"?{urlencode(query)}" if query else "")
        try:
            answer: Response = self._adapter.get(url, microversion=VERSION, raise_exc=False)
        except MemoryError:
            raise
        except Exception as error:
            # Libraries below raise many types: a ValueError for a malformed URL in the catalog.
            raise NovaNotAsked(
                f"nova GET {path}: {_line(str(error))}",
                "check section [nova], and that nova's API answers",
            ) from error
        return answer


def build_nova_api(conf: cfg.ConfigOpts) -> NovaApi | None:
    """Return the client of the nova that [nova] describes; None without credentials there. Sends
    nothing.

    :raises ConfigErrors: everything that is wrong with the section.
    """
    if not nova_is_asked(conf):
        return None
    seconds = float(conf.nova.timeout or 10)
    adapter = service_adapter(conf, "nova")
    adapter.session.timeout = seconds
    return NovaApi(adapter, seconds)


def _server(entry: Document, what: str) -> NovaServer:
    """Return a server of an answer.

    :raises NovaNotAsked: the account does not see the hosts of servers.
    """
    if _HOST not in entry:
        raise NovaNotAsked(
            f"nova GET {what}: the account does not see the hosts of servers",
            "give the account in [nova] the role admin",
        )
    return NovaServer(
        _text_or_none(entry, _HOST, what),
        _text(entry, "status", what),
        _text_or_none(entry, "OS-EXT-STS:task_state", what),
    )


def _text(entry: Document, name: str, what: str) -> str:
    """Return a text of an entry, printable and not too long.

    :raises NovaNotAsked: it is none, so that nothing can be concluded from the entry.
    """
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise NovaNotAsked(
            f"nova GET {what}: {printable(name)} is no text", "check that [nova] names a nova"
        )
    return _line(value)


def _text_or_none(entry: Document, name: str, what: str) -> str | None:
    return None if entry.get(name) is None else _text(entry, name, what)


def _uuid(entry: Document, name: str, what: str) -> ConsumerUuid:
    """Return a uuid of an entry, which becomes a part of commands.

    :raises NovaNotAsked: it is none.
    """
    value = _text(entry, name, what)
    if not is_uuid(value):
        raise NovaNotAsked(f"nova GET {what}: {name} is no uuid", "check that [nova] names a nova")
    return ConsumerUuid(normal_uuid(value))


def _document(answer: Response, what: str) -> Document:
    """Return the document of an answer that is one.

    :raises NovaNotAsked: it is none.
    """
    document = _json(answer) if answer.status_code == 200 else {}
    if not document:
        raise _unusable(answer, what)
    return document


def _json(answer: Response) -> Document:
    """Return the object of an answer; empty if it has none."""
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}


def _entries(document: Document, name: str, what: str) -> list[Document]:
    entries = document.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise NovaNotAsked(f"nova GET {what}: no list of {name}", "check that [nova] names a nova")
    return entries


def _unusable(answer: Response, what: str) -> NovaNotAsked:
    """Return the error for an answer that is not the expected one."""
    status = answer.status_code
    remedy = _REMEDIES.get(status, "see the log of nova's API, or of what is in front of it")
    body = _json(answer)
    faults = (fault.get("message") for fault in body.values() if isinstance(fault, Mapping))
    message = next(faults, None)
    # Something in front of nova may quote the request.
    sent = answer.request.headers.get("X-Auth-Token") or ""
    token = sent.decode("latin-1") if isinstance(sent, bytes) else sent
    shown = str(message).replace(token, "***") if token else str(message)
    detail = f": {_line(shown)}" if message else ""
    return NovaNotAsked(f"nova GET {what} -> {status}{detail}", remedy)


def _line(text: str) -> str:
    line = masked(printable(" ".join(text[: 10 * _LONGEST].split())))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _age(updated_at: str | None, answer: Response) -> float | None:
    """Return how many seconds before the answer that time was, by nova's own clock."""
    try:
        now = email.utils.parsedate_to_datetime(answer.headers["Date"])
        return (now - datetime.fromisoformat(updated_at or "").replace(tzinfo=UTC)).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None
