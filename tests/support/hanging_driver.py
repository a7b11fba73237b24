"""A driver from another distribution than the agent's: ``fake.file`` with a backend that stops
answering when told to.
"""

import time
from pathlib import Path

from oslo_config import cfg

from agent.driver.interface import HostContext
from agent.errors import NotReady
from agent.model.facts import HostFacts
from drivers.fake.file import FileDriver
from tests.support import distribution

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
    return distribution.install(folder, "hanging-driver", {NAME: f"{__name__}:HangingDriver"})
