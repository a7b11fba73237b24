"""nova-compute's manager with the tracker of :mod:`agent.nova.tracker`."""

from typing import Any

from nova.compute import manager

from agent.nova.tracker import ResourceTracker


class ComputeManager(manager.ComputeManager):  # type: ignore[misc]
    """nova-compute's manager; only its resource tracker is another one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rt = ResourceTracker(self.host, self.driver, reportclient=self.reportclient)
