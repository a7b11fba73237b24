"""nova-compute's manager and resource tracker, which report to Placement by the agent's mirror,
plan and flush.
"""

import logging
from pathlib import Path
from typing import Any

from nova import conf
from nova.compute import manager, resource_tracker
from nova.scheduler.client import report

from agent.errors import AgentError
from agent.nova.report_client import MirroredReportClient
from agent.placement.server import MEMORY_ONLY, OptionalStorage, PlacementStorage
from agent.store.lock import RunLock
from agent.store.store import open_store

CONF = conf.CONF
LOG = logging.getLogger(__name__)

FOLDER = "compute-node-agent"


class ComputeManager(manager.ComputeManager):  # type: ignore[misc]
    """nova-compute's manager; only its resource tracker and report client are others."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rt = ResourceTracker(self.host, self.driver, reportclient=self.reportclient)
        # One client for all three, as in nova, because it has the node's state.
        self.reportclient: Any = self.rt.reportclient
        self.virtapi.reportclient = self.reportclient


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
            return OptionalStorage(open_store(folder))
        except (AgentError, OSError) as error:
            LOG.warning(MEMORY_ONLY, error)
            return OptionalStorage()


def _endpoint() -> str:
    """Return a name of the Placement that nova is configured for."""
    placement = CONF.placement
    # Only registered where nova has loaded the plug-in that takes it.
    identity = getattr(placement, "auth_url", None) or "identity"
    return placement.endpoint_override or f"placement of {identity}, {placement.region_name}"
