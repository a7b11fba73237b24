"""The common driver as the agent loads it: by an entry point."""

import time
from collections.abc import Mapping
from pathlib import Path

from oslo_config import cfg

from agent.driver.interface import NAMESPACE, HostContext
from agent.errors import ReshapeNeeded
from agent.model.facts import HostFacts
from bench.tree_driver import TreeDriver

DRIVER = "bench.tree"


class AgentTreeDriver(TreeDriver):
    """The common driver with what the agent's interface needs besides."""

    reshape_needed = ReshapeNeeded

    def __init__(self, _conf: cfg.ConfigOpts) -> None:
        super().__init__()

    def start(self, host: HostContext) -> None:
        """Do nothing: there is no hypervisor."""

    def stop(self) -> None:
        """Do nothing."""

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return the nodes, uuid to name."""
        return self.tree.names

    def facts(self, name: str) -> HostFacts:
        """Return facts without contents: the driver shapes the tree itself."""
        return HostFacts(name, time.time(), DRIVER)

    def is_node_deleted(self, name: str) -> bool:
        """Whether there is no such node."""
        return name not in self.tree.names.values()


def install(folder: Path) -> Path:
    """Make the entry point of the driver in ``folder``, which has to be on ``PYTHONPATH``; return
    the folder.
    """
    information = folder / "bench_driver-1.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-driver\nVersion: 1\n")
    line = f"{DRIVER} = {__name__}:{AgentTreeDriver.__name__}"
    (information / "entry_points.txt").write_text(f"[{NAMESPACE}]\n{line}\n")
    return folder
