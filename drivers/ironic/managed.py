"""Which of ironic's nodes this agent manages, the list of them for one pass, and the client of
ironic's API: versions, the list page by page, one node.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, urlencode

from keystoneauth1 import exceptions as ksa
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from requests import Response

from agent.driver.interface import Instances
from agent.errors import ConfigError, ConfigErrors, NotReady
from agent.http.session import service_adapter
from agent.model.names import ApiVersion
from drivers.ironic.failure import not_ready, refused
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

    @property
    def names(self) -> Mapping[str, str]:
        """Uuid to name, which are the same."""
        return {uuid: uuid for uuid in self.nodes}

    def after(self, before: "NodeList") -> float:
        """Return how many seconds later than ``before`` the list was taken."""
        return self.taken_at - before.taken_at if before.taken_at else 0.0

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
