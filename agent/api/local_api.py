"""The local API at work: its socket, its server, its figures."""

import logging
from pathlib import Path
from threading import Thread

from oslo_config import cfg

from agent.api.access import Access, group_id
from agent.api.application import application
from agent.api.metrics import Metrics
from agent.api.node_figures import NodeFigures
from agent.api.server import GRACE, WORKERS, LocalServer
from agent.api.service import Service
from agent.api.socket_file import SocketFile
from agent.model.names import printable

LOG = logging.getLogger(__name__)

# More waiters than this would leave too few threads for everybody else.
WAITERS = WORKERS // 2


class LocalApi:
    """Open from :meth:`start` to :meth:`stop`. ``metrics`` are what it shows to Prometheus."""

    def __init__(self, conf: cfg.ConfigOpts, service: Service) -> None:
        self.metrics = Metrics()
        self.metrics.add(NodeFigures(service))
        self._path, self._group = Path(conf.api.socket), group_id(conf, "group")
        self._access = Access.from_options(conf)
        self._application = application(service, lambda: self._access, self.metrics, WAITERS)
        self._server: LocalServer | None = None
        self._file: SocketFile | None = None
        self._ending: Thread | None = None

    def start(self) -> None:
        """Begin to serve.

        :raises SocketUnusable: the socket cannot be opened.
        """
        self._file = SocketFile(self._path, self._group)
        self._server = LocalServer(self._file.listening, self._application)
        self._server.prepare()
        Thread(target=self._server.serve, name="api", daemon=True).start()
        LOG.info("the local API listens on %s", printable(str(self._path)))

    def allow(self, access: Access) -> None:
        """Go by other rights from now on."""
        self._access = access

    def stop(self) -> None:
        """Take no more requests; those under way get a moment to end. Returns at once."""
        if self._ending is None and self._server is not None and self._file is not None:
            # First, so that nobody finds a socket where nobody listens.
            self._file.remove()
            self._ending = Thread(target=self._server.stop, name="api ends", daemon=True)
            self._ending.start()

    def wait(self) -> None:
        """Until the end that :meth:`stop` began, but not for ever."""
        if self._ending is not None:
            self._ending.join(2 * GRACE)
