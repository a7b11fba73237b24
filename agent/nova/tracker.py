"""nova's resource tracker, which reports to Placement by the agent's mirror, plan and flush."""

import logging
from pathlib import Path
from typing import Any

from nova import conf
from nova.compute import resource_tracker
from nova.scheduler.client import report

from agent.errors import AgentError
from agent.nova.report_client import MirroredReportClient
from agent.placement.server import NoStorage, PlacementStorage
from agent.store.lock import RunLock
from agent.store.store import open_store

CONF = conf.CONF
LOG = logging.getLogger(__name__)

FOLDER = "compute-node-agent"


class ResourceTracker(resource_tracker.ResourceTracker):  # type: ignore[misc]
    """The tracker that claims and audits as nova's does; its report of the tree of a compute node
    sends the differences only.
    """

    def __init__(self, host: str, driver: Any, reportclient: Any = None) -> None:
        client = reportclient or report.report_client_singleton()
        mirrored = MirroredReportClient(client, _endpoint(), self.storage(host))
        super().__init__(host, driver, reportclient=mirrored)

    @staticmethod
    def storage(host: str) -> PlacementStorage:
        """Return the store of the mirror, below nova's ``state_path``. Without one, a start reads
        the whole tree.
        """
        folder = Path(CONF.state_path) / FOLDER / host
        try:
            # Held until the process ends: two processes must not write one mirror.
            RunLock(folder).acquire()
            return open_store(folder)
        except (AgentError, OSError) as error:
            LOG.warning("the mirror of Placement is kept in memory only: %s", error)
            return NoStorage()


def _endpoint() -> str:
    """Return a name of the Placement that nova is configured for."""
    placement = CONF.placement
    # Only registered where nova has loaded the plug-in that takes it.
    identity = getattr(placement, "auth_url", None) or "identity"
    return placement.endpoint_override or f"placement of {identity}, {placement.region_name}"
