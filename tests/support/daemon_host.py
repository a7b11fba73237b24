"""A host of ``fake.file`` with a daemon of its own."""

from pathlib import Path
from typing import Any, ClassVar

from agent.api.client import ApiClient
from tests.support.service_manager import PATIENCE, Service
from tests.support.system import AgentCommand

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000d001"


class DaemonHost:
    """A host file, a configuration around it, the daemon that they are for, and a client of
    its API.
    """

    text: ClassVar[str]
    """The host file, with ``{root}`` and ``{vcpus}``."""
    interval: ClassVar[int] = 1
    """Seconds between two audits; -1 is one audit and never again."""

    def __init__(self, folder: Path, url: str, watchdog: float = 0) -> None:
        self.folder, self.file = folder, folder / "host.yaml"
        self.config: dict[str, dict[str, Any]] = {
            "DEFAULT": {
                "compute_driver": "fake.file",
                "host": "node-a",
                "state_path": folder / "nova",
                "update_resources_interval": self.interval,
                "log_file": folder / "agent.log",
            },
            "fake": {"host_file": self.file},
            "placement": {
                "auth_type": "admin_token",
                "endpoint": url,
                "token": "a-token",
                "max_in_flight": 1,
            },
        }
        self.command = AgentCommand(folder, self.config)
        self.service = Service(self.command, watchdog)
        self.client = ApiClient(self.command.socket, timeout=PATIENCE)
        self.has(8)

    def has(self, vcpus: int) -> None:
        """Edit the host file, as one does: all at once, because the daemon may be reading it."""
        new = self.file.with_suffix(".new")
        new.write_text(self.text.format(root=ROOT, vcpus=vcpus))
        new.replace(self.file)

    def set(self, group: str, **options: Any) -> None:
        """Edit the configuration file."""
        self.config.setdefault(group, {}).update(options)
        self.command.configure(self.config)
