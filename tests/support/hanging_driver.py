"""A driver from another distribution than the agent's: ``fake.file`` with a backend that stops answering when told to."""

import time
from pathlib import Path

from oslo_config import cfg

from agent.driver import HostContext
from agent.errors import NotReady
from agent.model.facts import HostFacts
from drivers.fake.file import FileDriver

NAME = "hanging"
HANG = Path("hang")
"""While this file is in the agent's working folder, facts do not come."""

ABSENT = Path("absent")
"""While this one is, the backend does not answer at the driver's start."""


class HangingDriver(FileDriver):
    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)

    def start(self, host: HostContext) -> None:
        if ABSENT.exists():
            raise NotReady("the backend does not answer", "start it")
        super().start(host)

    def facts(self, name: str) -> HostFacts:
        while HANG.exists():
            time.sleep(0.02)
        return super().facts(name)

    def stop(self) -> None:
        while HANG.exists():
            time.sleep(0.02)
        super().stop()


def install(folder: Path) -> Path:
    """Install it as pip would, into a folder of its own for PYTHONPATH; that folder."""
    site = folder / "site"
    info = site / "hanging_driver-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging-driver\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[compute_node_agent.drivers]\n{NAME} = {__name__}:HangingDriver\n")
    return site
