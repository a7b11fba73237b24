"""The daemon's local API, which exists only where ``[api] socket`` is set."""

from oslo_config import cfg

from agent.api.access import Access
from agent.api.local_api import LocalApi
from agent.api.record_views import RecordViews
from agent.conf.default import host_name
from agent.driver.worker import Outcome
from agent.model.report import Report
from agent.service.daemon_service import DaemonService
from agent.store.records import Records
from agent.store.store import Store


class OptionalApi:
    """The local API and its metrics. Without a socket, the methods do nothing for them."""

    def __init__(self, conf: cfg.ConfigOpts, service: DaemonService) -> None:
        self._conf, self._service = conf, service
        self._api: LocalApi | None = None

    def open(self, store: Store) -> None:
        """Open the sockets, and the listener for metrics. Requests read the records of ``store``.

        :raises SocketUnusable, ListenerUnusable: one of them cannot be opened.
        """
        self._service.set_records(RecordViews(Records(store), host_name(self._conf)))
        if self._conf.api.socket:
            self._api = LocalApi(self._conf, self._service)
            self._api.start()

    def allow(self, access: Access) -> None:
        """Apply these rights from now on."""
        if self._api is not None:
            self._api.allow(access)

    def stop(self) -> None:
        """Stop at once, so that every waiting request gets an answer."""
        self._service.stop()
        if self._api is not None:
            self._api.stop()

    def wait(self) -> None:
        """Wait for the end that :meth:`stop` began, for a limited time."""
        if self._api is not None:
            self._api.wait()

    # --- what the API and its metrics show --------------------------------------------------------

    def show(self, report: Report, hanging: int, *, whole: bool) -> None:
        """Show the report of an audit, of all nodes if ``whole``. ``hanging``: how many driver
        calls never returned.
        """
        self._service.take_report(report, whole=whole)
        if self._api is not None:
            self._api.metrics.count_report(report, hanging, whole=whole)

    def count_request(self, method: str, status: int | None, seconds: float) -> None:
        """Count a request to Placement."""
        if self._api is not None:
            self._api.metrics.count_request(method, status, seconds)

    def count_call(self, call: str, outcome: Outcome, seconds: float) -> None:
        """Count a call of the driver."""
        if self._api is not None:
            self._api.metrics.count_call(call, outcome, seconds)
