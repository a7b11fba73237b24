"""Client of ironic's API, as far as the driver needs it: versions, the list of nodes page by page,
one node.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from keystoneauth1 import exceptions as ksa
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from requests import Response

from agent.conf.ironic import GROUP
from agent.errors import NotReady
from agent.http.session import service_adapter
from agent.model.names import ApiVersion
from drivers.ironic.failure import not_ready, refused
from drivers.ironic.node import FIELDS

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
    return Api(service_adapter(conf, GROUP))
