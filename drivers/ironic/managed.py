"""Which of ironic's nodes this agent manages, the list of them for one pass, and the client of
ironic's API: versions, the list page by page, one node; with its failures, their remedies, and the
retry policies.
"""

import json
import logging
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, urlencode

from keystoneauth1 import exceptions as ksa
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from requests import Response
from retrying import Retrying

from agent.driver.interface import Instances
from agent.errors import ConfigError, ConfigErrors, NotReady
from agent.http.session import service_adapter
from agent.model.names import ApiVersion, printable
from drivers.ironic.node import FIELDS, BareMetalNode

LOG = logging.getLogger(__name__)

LEAST = ApiVersion(1, 46)
WITH_SHARDS = ApiVersion(1, 82)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of ironic's nodes that the agent manages."""

    group: str | None = None
    """None: any conductor group; empty: the default one."""
    shard: str | None = None
    """None: any shard."""

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the scope that [ironic] sets."""
        group, shard = conf.ironic.conductor_group, conf.ironic.shard
        return cls(None if group is None else group.lower(), shard or None)

    @property
    def version(self) -> ApiVersion:
        """The API version that requests to ironic use."""
        return WITH_SHARDS if self.shard else LEAST

    @property
    def filters(self) -> dict[str, str]:
        """The scope as a query."""
        given = {"conductor_group": self.group, "shard": self.shard}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def lease(self) -> str:
        """The name of the lease on this scope."""
        parts = [f"{name}={value}" for name, value in self.filters.items()]
        return f"nodes of ironic with {' and '.join(parts)}" if parts else "all nodes of ironic"

    def check(self, highest: ApiVersion, url: str) -> None:
        """Check that the API knows the filters: it would ignore an unknown one, and nodes of other
        agents would be managed too.

        :raises ConfigErrors: the API is too old.
        """
        errors = []
        if self.shard and highest < WITH_SHARDS:
            errors.append(_too_old(f"[ironic] shard = {self.shard}", WITH_SHARDS, highest, url))
        if self.group is not None and highest < LEAST:
            errors.append(_too_old(f"[ironic] conductor_group = {self.group}", LEAST, highest, url))
        if not errors and highest < LEAST:
            errors.append(_too_old("the driver ironic", LEAST, highest, url))
        ConfigErrors.raise_if_any(errors)


def _too_old(what: str, needed: ApiVersion, highest: ApiVersion, url: str) -> ConfigError:
    return ConfigError(
        f"{what} needs an ironic API of {needed}, and {url} has no more than {highest}",
        "upgrade ironic, or remove the option",
    )


Ask = Callable[[str], BareMetalNode | None]
"""Returns what ironic says about one node now; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The managed nodes, by uuid."""

    nodes: Mapping[str, BareMetalNode] = field(default_factory=dict)
    taken_at: float = 0.0
    """When ironic sent the list, in seconds since the epoch; 0 if it never did."""

    @classmethod
    def of(cls, nodes: Collection[BareMetalNode], taken_at: float) -> Self:
        """Return the list of these nodes."""
        return cls({node.uuid: node for node in nodes}, taken_at)

    def tell_doubts(self, before: "NodeList") -> None:
        """Log the properties that could not be read, once for each change."""
        for uuid, node in self.nodes.items():
            known = before.nodes.get(uuid)
            if node.properties.doubts and (
                known is None or known.properties.doubts != node.properties.doubts
            ):
                LOG.warning("node %s: %s", uuid, "; ".join(node.properties.doubts))


def managed_nodes(
    listed: Collection[BareMetalNode], instances: Instances | None, ask: Ask
) -> list[BareMetalNode]:
    """Return the nodes that this agent manages: those ``listed`` without an instance of another
    host, and those elsewhere that have an instance of this host.

    Without records all listed nodes are managed. An instance that no record knows does not exclude
    its node, because it may have been deployed without any agent, and the node must not look free.
    """
    if instances is None:
        return [*listed]
    foreign = instances.elsewhere([node.instance for node in listed if node.instance is not None])
    own = [node for node in listed if node.instance is None or node.instance not in foreign]
    missing = instances.nodes() - {node.uuid for node in listed}
    return [
        *own,
        *(
            node
            for uuid in sorted(missing)
            if (node := ask(uuid)) is not None and node.instance is not None
        ),
    ]


VERSION_HEADER = "X-OpenStack-Ironic-API-Version"
HIGHEST_HEADER = "X-OpenStack-Ironic-API-Maximum-Version"
ROOT = "/v1"

Document = Mapping[str, Any]


class Api:
    """The API at one endpoint. Threads may share it. Every call may block as long as [ironic]
    timeout allows each request.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    @property
    def url(self) -> str:
        """The URL of ironic, with its version.

        :raises NotReady: the catalog has no endpoint, or identity does not answer.
        """
        try:
            found = self._adapter.get_endpoint()
        except (ksa.ClientException, ksa.RetriableConnectionFailure) as error:
            raise not_ready(error, "its endpoint") from error
        if not found:
            raise not_ready(ksa.EndpointNotFound(), "its endpoint")
        base = str(found).rstrip("/")
        return base if base.endswith(ROOT) else base + ROOT

    def highest(self) -> ApiVersion:
        """Return the highest API version that ironic offers.

        :raises NotReady: it does not answer, or not as an ironic does.
        """
        answer = self._get("")
        try:
            if answer.status_code == 200:
                return ApiVersion.of(answer.headers[HIGHEST_HEADER])
        except (KeyError, ValueError) as error:
            raise NotReady(
                f"{self.url} does not answer as an ironic does",
                "check that [ironic] endpoint_override or the catalog names one",
            ) from error
        raise refused(answer, "GET /v1")

    def probe(self, version: ApiVersion, filters: Mapping[str, str]) -> None:
        """Send the smallest possible request of the later kind, to check that the account may list
        nodes and that ironic knows the filters.

        :raises NotReady: one of them fails, or ironic does not answer.
        """
        answer = self._get(
            f"/nodes?{urlencode({'fields': 'uuid', 'limit': 1, **filters})}", version
        )
        self._page(answer, "GET /v1/nodes")

    def nodes(self, version: ApiVersion, filters: Mapping[str, str]) -> Iterator[Document]:
        """Yield all nodes that match ``filters``; pages are requested as they are needed.

        :raises NotReady: a page could not be read; the nodes yielded before are not a complete
            list.
        """
        query, seen = {"fields": ",".join(FIELDS), **filters}, set[Any]()
        while True:
            what = "GET /v1/nodes" + (f" after {query['marker']}" if "marker" in query else "")
            answer = self._get(f"/nodes?{urlencode(query)}", version)
            page, last = self._page(answer, what)
            for node in page:
                uuid = node.get("uuid") if isinstance(node, Mapping) else None
                if uuid in seen:
                    raise NotReady(
                        f"ironic {what}: it lists node {uuid} a second time",
                        "the list is asked for again",
                    )
                seen.add(uuid)
                yield node
            if last:
                return
            query["marker"] = str(page[-1]["uuid"])

    def node(self, uuid: str, version: ApiVersion) -> Document | None:
        """Return one node; None if ironic itself answers that it does not exist.

        :raises NotReady: no such answer came.
        """
        answer = self._get(
            f"/nodes/{quote(uuid, safe='')}?{urlencode({'fields': ','.join(FIELDS)})}", version
        )
        # A proxy without ironic behind it answers 404 too, but without ironic's header.
        if answer.status_code == 404 and VERSION_HEADER in answer.headers:
            return None
        if answer.status_code != 200:
            raise refused(answer, f"GET /v1/nodes/{uuid}")
        return self._json(answer, f"GET /v1/nodes/{uuid}")

    def _get(self, path: str, version: ApiVersion | None = None) -> Response:
        url = self.url
        headers = {} if version is None else {VERSION_HEADER: str(version)}
        try:
            answer: Response = self._adapter.get(url + path, headers=headers, raise_exc=False)
        except (ksa.ClientException, ksa.RetriableConnectionFailure) as error:
            raise not_ready(error, url) from error
        return answer

    def _page(self, answer: Response, what: str) -> tuple[list[Document], bool]:
        """Return the nodes of a page, and whether it is the last page."""
        if answer.status_code != 200:
            raise refused(answer, what)
        document = self._json(answer, what)
        page = document.get("nodes")
        if not isinstance(page, list):
            raise refused(answer, what)
        # The link to the next page is not followed, because behind a proxy it may name a host that
        # only ironic knows.
        return page, not page or "next" not in document

    @staticmethod
    def _json(answer: Response, what: str) -> Document:
        try:
            document = answer.json()
        except ValueError as error:
            raise refused(answer, what) from error
        if not isinstance(document, Mapping):
            raise refused(answer, what)
        return document


def build_api(conf: cfg.ConfigOpts) -> Api:
    """Return the API of the ironic that [ironic] describes. Sends nothing.

    :raises ConfigErrors: everything that is wrong with the authentication plugin, its options and
        the certificates.
    """
    return Api(service_adapter(conf, "ironic"))


CREDENTIALS = "credentials"
LONGEST = 300
"""Characters of an answer that a message quotes."""

# The first matching entry counts: subclasses stand before their bases. Exception, what, remedy,
# kind.
_MEANINGS: tuple[tuple[type[BaseException], str, str, str], ...] = (
    (
        ksa.CatalogException,
        "the service catalog has no bare-metal endpoint",
        "check [ironic] region_name, valid_interfaces and service_type",
        "catalog",
    ),
    (
        ksa.MissingAuthPlugin,
        "there are no credentials in section [ironic]",
        "set auth_type and its options, as in nova.conf",
        CREDENTIALS,
    ),
    (
        ksa.Unauthorized,
        "identity refuses the credentials",
        "check the user, password and project in [ironic]",
        CREDENTIALS,
    ),
    (
        ksa.AuthorizationFailure,
        "the credentials are incomplete or contradictory",
        "check section [ironic]",
        CREDENTIALS,
    ),
    (
        ksa.SSLError,
        "its certificate is not accepted",
        "set [ironic] cafile to the bundle that signed it",
        "tls",
    ),
    (
        ksa.HttpError,
        "identity failed",
        "nothing to do if it comes back; it is asked again",
        "identity",
    ),
    (
        ksa.ConnectTimeout,
        "no answer in time",
        "check the service, or raise [ironic] timeout",
        "timeout",
    ),
    (
        ksa.ConnectFailure,
        "no connection",
        "check that it runs and can be reached from here",
        "connect",
    ),
    (Exception, "the connection broke", "check what stands between this host and ironic", "broken"),
)

_OTHER_SERVICE = "check that [ironic] endpoint_override or the catalog names a bare-metal service"
_REMEDIES = {
    401: "check the credentials in section [ironic]",
    403: "the account in [ironic] may not read nodes; give it a role that may",
    404: _OTHER_SERVICE,
    406: _OTHER_SERVICE,
}


def not_ready(error: Exception, url: str) -> NotReady:
    """Return the error for a keystoneauth exception on the way to ``url``."""
    _, what, remedy, kind = next(meaning for meaning in _MEANINGS if isinstance(error, meaning[0]))
    return NotReady(f"ironic at {url}: {what}: {_line(str(error))}", remedy, kind=kind)


def refused(answer: Response, what: str) -> NotReady:
    """Return the error for an answer that is not the expected one to ``what``."""
    status, detail = answer.status_code, _detail(answer)
    remedy = _REMEDIES.get(status, "see the log of ironic, or of what stands in front of it")
    return NotReady(
        f"ironic {what} -> {status}" + (f": {detail}" if detail else ""),
        remedy,
        kind=CREDENTIALS if status == 401 else "refused",
        status=status,
    )


def _detail(answer: Response) -> str:
    """Return ironic's own message, which is JSON in JSON in older releases; empty for a proxy's
    page.
    """
    try:
        body: Any = answer.json()
        message = body.get("error_message", "") if isinstance(body, Mapping) else ""
        if isinstance(message, str) and message.startswith("{"):
            message = json.loads(message)
    except ValueError:
        return ""
    if isinstance(message, Mapping):
        message = message.get("faultstring") or message.get("description")
    return _line(str(message or ""))


def _line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


TRIES = 3
"""Attempts in all."""
LONGEST_WAIT = 2.0
"""Seconds."""
# Seconds before the deadline at which retries end, so that the start fails with a reason before it
# is abandoned.
MARGIN = 5.0


def patient(stopped: threading.Event) -> Retrying:
    """Return the policy of a pass: ``TRIES`` attempts in all, after short random waits."""
    return _policy(stopped, lambda: random.uniform(0, LONGEST_WAIT), stop_max_attempt_number=TRIES)


def persistent(
    stopped: threading.Event, retries: int, interval: float, deadline: float
) -> Retrying:
    """Return the policy of a start: ``retries`` more attempts, ``interval`` seconds apart, not
    beyond ``deadline``, in seconds.
    """
    return _policy(
        stopped,
        lambda: interval,
        stop_max_attempt_number=retries + 1,
        stop_max_delay=max(0.0, deadline - MARGIN - interval) * 1000,
    )


def _policy(stopped: threading.Event, pause: Callable[[], float], **limits: float) -> Retrying:
    """Return a retry policy that ends when the driver is stopped, and does not repeat refused
    credentials.
    """
    reason = ""

    def worth_repeating(error: BaseException) -> bool:
        nonlocal reason
        reason = str(error)
        return (
            isinstance(error, NotReady)
            and error.data.get("kind") != CREDENTIALS
            and not stopped.is_set()
        )

    def wait(attempt: int, _elapsed_ms: int) -> int:
        LOG.log(logging.WARNING if attempt == 1 else logging.DEBUG, "%s; it is asked again", reason)
        # Waited here, because the library's own sleep cannot be interrupted.
        stopped.wait(pause())
        return 0

    return Retrying(
        retry_on_exception=worth_repeating, wait_func=wait, wrap_exception=False, **limits
    )
